"""The consumer step that takes as many messages in one trip to Redis as slots are free.

Celery's loop takes them one by one: send BRPOP, wait, read; and after each of these system calls it waits for the
interpreter, which fifty busy threads share. Tasks that were released together came to their threads one by one, up to a
millisecond apart. Here an LMPOP of as many as the other free slots follows each BRPOP in the same packet: Redis answers
it at once when the BRPOP is answered, so who waits for one message gets all that came with it.

Invariants: no more is asked for than slots are free, when it is asked (and they only grow until the answer);
priorities stay, a trip takes from the most urgent queue that has any. Redis below 7 has no LMPOP, and is left as it is.
"""

import json
from queue import Empty
from time import monotonic
from typing import Any

from celery import bootsteps
from celery.utils.log import get_logger
from celery.worker import state
from kombu.utils.encoding import bytes_to_str
from redis.exceptions import RedisError, ResponseError

LMPOP_SINCE = 7

log = get_logger(__name__)


class Intake(bootsteps.StartStopStep):
    """Give the consumer's channel this way to read, on Redis."""

    requires = ("harness.worker.hints:Hints",)

    def start(self, parent: Any) -> None:
        """Celery calls this before it consumes, and again after each reconnect, with a new channel."""
        if parent.connection.transport.driver_type != "redis":
            return
        channel = parent.task_consumer.channel
        refill = getattr(parent.controller, "harness_refill", None)
        if refill is not None:
            refill.waits_for_room = lambda: not channel._in_poll or channel.connection.cycle._paused_brpop
        if channel.global_keyprefix or not _knows_lmpop(channel):
            return
        pipe = _Pipe(channel, parent)
        channel._brpop_start = pipe.ask
        channel._brpop_read = channel.handlers["BRPOP"] = pipe.read

    def stop(self, parent: Any) -> None:
        """Nothing to stop: the channel goes with its connection."""


class _Pipe:
    """What kombu's `_brpop_start` and `_brpop_read` do, for several messages."""

    def __init__(self, channel: Any, consumer: Any) -> None:
        self._channel = channel
        self._consumer = consumer
        self._more = False  # whether an LMPOP follows the BRPOP under way

    def ask(self, timeout: float | None = None) -> None:
        channel = self._channel
        queues = channel._queue_cycle.consume(len(channel.active_queues))
        if not queues:
            return
        keys = [channel._q_for_pri(queue, step) for step in channel.priority_steps for queue in queues]
        commands: list[tuple[Any, ...]] = [("BRPOP", *keys, channel.brpop_timeout if timeout is None else timeout)]
        free = self._consumer.pool.num_processes - len(state.reserved_requests)
        self._more = free > 1
        if self._more:
            commands.append(("LMPOP", len(keys), *keys, "RIGHT", "COUNT", free - 1))
        connection = channel._in_poll = channel.client.connection
        channel._brpop_sent_at = monotonic()
        connection.send_packed_command(connection.pack_commands(commands))

    def read(self, **options: Any) -> bool:
        channel = self._channel
        client = channel.client
        try:
            try:
                found = [client.parse_response(client.connection, "BRPOP", **options)]
                if self._more:
                    key, values = client.parse_response(client.connection, "LMPOP") or (None, ())
                    found += [(key, value) for value in values]
            except channel.connection_errors:
                client.connection.disconnect()  # the next turn connects again
                raise
            return self._deliver([one for one in found if one])
        finally:
            channel._in_poll = None
            channel._flush_brpop_reauth()

    def _deliver(self, found: list[tuple[Any, Any]]) -> bool:
        """Raises: ExceptionGroup of what messages made kombu or Celery raise, after the others were delivered."""
        channel = self._channel
        errors: list[Exception] = []
        for key, value in found:
            queue = bytes_to_str(key).rsplit(channel.sep, 1)[0]
            channel._queue_cycle.rotate(queue)
            try:
                # Not kombu's loads: what Python calls for each object, to look for types that are none of JSON's.
                channel.connection._deliver(json.loads(value), queue)
            except (Empty, OSError, RedisError):
                raise
            except Exception as error:  # noqa: BLE001  # whatever a message of anybody's brings about (unreadable.py)
                errors.append(error)
        if errors:
            raise ExceptionGroup("messages that can't be read", errors)
        return bool(found)


def _knows_lmpop(channel: Any) -> bool:
    try:
        with channel.conn_or_acquire() as client:
            version = str(client.info("server").get("redis_version", "0"))
    except ResponseError:  # a login that may not ask
        return False
    return int(version.partition(".")[0]) >= LMPOP_SINCE

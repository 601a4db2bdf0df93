"""Messages to the workers: `harness.run(lease_id, token)`, in one trip a tick.

A message is a hint. It may be lost, doubled or late; the claim decides. Nothing here reads or waits for an answer.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from kombu import Connection, Queue
from kombu.exceptions import KombuError, OperationalError

from harness.policy.errors import Unavailable
from harness.store import envelope
from harness.store.message import Message

ANSWER_S = 2  # a broker that hangs must not cost the leader its lead (TTL 4 s)
REDIS_OPTIONS = {
    "socket_timeout": ANSWER_S,
    "socket_connect_timeout": ANSWER_S,
    "socket_keepalive": True,
    "health_check_interval": 10,
}
# py-amqp takes options of another transport without a word, and then waits for ever.
AMQP_OPTIONS = {"read_timeout": ANSWER_S, "write_timeout": ANSWER_S}


class Broker:
    """One connection and producer, kept open; not shared between threads."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._producer: Any = None
        self._redis: Any = None
        self._amqp = url.startswith("amqp")
        self._declared: set[str] = set()

    def warm(self) -> None:
        """Connect and open the channel before the first message has to wait for it. Raises: Unavailable."""
        if self._producer is not None:
            return
        options = AMQP_OPTIONS if self._amqp else REDIS_OPTIONS
        connection = Connection(self._url, transport_options=options, connect_timeout=ANSWER_S)
        try:
            connection.ensure_connection(max_retries=1, timeout=ANSWER_S)
            self._producer = connection.Producer(serializer="json", auto_declare=False)
            if not self._amqp:
                with self._producer.channel.conn_or_acquire() as client:  # as kombu would connect, and kept
                    self._redis = client
                    client.ping()
            self._connection = connection
        except _errors(connection) as error:
            connection.release()
            raise Unavailable(f"the broker doesn't answer: {error}") from error

    def publish(self, messages: Sequence[Message]) -> None:
        """Send all, in one trip where the transport can. Raises: Unavailable; some may have been sent."""
        self.warm()
        try:
            if self._amqp:
                self._declare({message.queue for message in messages})
                for message in messages:
                    self._send(message)
            else:
                self._push(messages)
        except _errors(self._connection) as error:
            self.close()
            raise Unavailable(f"the broker doesn't answer: {error}") from error

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Return how many messages wait in each of these queues; one that isn't there is empty. Raises: Unavailable."""
        self.warm()
        found = {}
        try:
            for queue in queues:
                try:
                    with self._connection.channel() as channel:  # RabbitMQ closes it when the queue isn't there
                        found[queue] = int(channel.queue_declare(queue, passive=True).message_count)
                except self._connection.channel_errors:
                    found[queue] = 0
        except _errors(self._connection) as error:
            self.close()
            raise Unavailable(f"the broker doesn't answer: {error}") from error
        return found

    def close(self) -> None:
        """Drop the connection; the next publish opens another."""
        if self._connection is not None:
            self._connection.release()
        self._connection = self._producer = self._redis = None
        self._declared.clear()

    def _declare(self, queues: set[str]) -> None:
        """On RabbitMQ a message to a queue that no worker has made yet would be dropped without a word."""
        for name in queues - self._declared:
            Queue(name, exchange="", routing_key=name, channel=self._producer.channel).queue_declare()
            self._declared.add(name)

    def _push(self, messages: Sequence[Message]) -> None:
        """Put each on its queue's list, the first one next to be taken. A queue's own are one command."""
        queues: dict[str, list[str]] = {}
        for message in messages:
            queues.setdefault(message.queue, []).append(envelope.seal(message))
        if len(queues) == 1:
            ((queue, sealed),) = queues.items()
            self._redis.lpush(queue, *sealed)
            return
        with self._redis.pipeline(transaction=False) as pipeline:
            for queue, sealed in queues.items():
                pipeline.lpush(queue, *sealed)
            pipeline.execute()

    def _send(self, message: Message) -> None:
        task_id = str(uuid.uuid4())
        self._producer.publish(
            envelope.body(message.lease, message.token),
            routing_key=message.queue,
            exchange="",
            content_type="application/json",
            content_encoding="utf-8",
            correlation_id=task_id,
            delivery_mode=2,
            headers=envelope.headers(message, task_id=task_id, lease=message.lease),
        )


def _errors(connection: Any) -> tuple[type[Exception], ...]:
    """Return what a broker that is away, or full, raises; redis-py's errors are no OSErrors."""
    own = (*connection.connection_errors, *connection.channel_errors)
    return (OperationalError, KombuError, OSError, *own)

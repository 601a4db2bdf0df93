"""Messages to the workers: `harness.run(lease_id, token)`, Celery's protocol 2 built by hand, sent in one pipeline.

A message is a hint. It may be lost, doubled or late; the claim decides. Nothing here reads or waits for an answer.
"""

import json
import os
import socket
import uuid
from collections.abc import Sequence
from typing import Any

from kombu import Connection, Queue
from kombu.exceptions import KombuError, OperationalError

from harness.policy.errors import Unavailable
from harness.store.message import Message

TASK_NAME = "harness.run"
EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
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
        self._amqp = url.startswith("amqp")
        self._declared: set[str] = set()
        self._origin = f"{os.getpid()}@{socket.gethostname()}"

    def warm(self) -> None:
        """Connect and open the channel before the first message has to wait for it. Raises: Unavailable."""
        if self._producer is not None:
            return
        options = AMQP_OPTIONS if self._amqp else REDIS_OPTIONS
        connection = Connection(self._url, transport_options=options, connect_timeout=ANSWER_S)
        try:
            connection.ensure_connection(max_retries=1, timeout=ANSWER_S)
            self._producer = connection.Producer(serializer="json", auto_declare=False)
            self._connection = connection
        except (OperationalError, KombuError, OSError) as error:
            connection.release()
            raise Unavailable(f"the broker doesn't answer: {error}") from error

    def publish(self, messages: Sequence[Message]) -> None:
        """Send all, in one pipeline where the transport can. Raises: Unavailable; some may have been sent."""
        self.warm()
        errors: tuple[type[Exception], ...] = (OperationalError, KombuError, OSError)
        errors += tuple(self._connection.connection_errors)
        try:
            if self._amqp:
                self._declare({message.queue for message in messages})
            with self._producer.batch(max_size=max(1, len(messages))):
                for message in messages:
                    self._send(message)
        except errors as error:
            self.close()
            raise Unavailable(f"the broker doesn't answer: {error}") from error

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Return how many messages wait in each of these queues; one that isn't there is empty. Raises: Unavailable."""
        self.warm()
        errors: tuple[type[Exception], ...] = (OperationalError, KombuError, OSError)
        errors += tuple(self._connection.connection_errors)
        found = {}
        try:
            for queue in queues:
                try:
                    with self._connection.channel() as channel:  # RabbitMQ closes it when the queue isn't there
                        found[queue] = int(channel.queue_declare(queue, passive=True).message_count)
                except self._connection.channel_errors:
                    found[queue] = 0
        except errors as error:
            self.close()
            raise Unavailable(f"the broker doesn't answer: {error}") from error
        return found

    def close(self) -> None:
        """Drop the connection; the next publish opens another."""
        if self._connection is not None:
            self._connection.release()
        self._connection = self._producer = None
        self._declared.clear()

    def _declare(self, queues: set[str]) -> None:
        """On RabbitMQ a message to a queue that no worker has made yet would be dropped without a word."""
        for name in queues - self._declared:
            Queue(name, exchange="", routing_key=name, channel=self._producer.channel).queue_declare()
            self._declared.add(name)

    def _send(self, message: Message) -> None:
        task_id = str(uuid.uuid4())
        hard, soft = message.time_limits_s or (None, None)
        self._producer.publish(
            json.dumps([[message.lease, message.token], {}, EMBED]),
            routing_key=message.queue,
            exchange="",
            content_type="application/json",
            content_encoding="utf-8",
            correlation_id=task_id,
            delivery_mode=2,
            headers={
                "lang": "py",
                "task": TASK_NAME,
                "id": task_id,
                "root_id": task_id,
                "parent_id": None,
                "group": None,
                "shadow": message.kind,
                "eta": None,
                "expires": None,
                "retries": 0,
                "timelimit": [hard, soft],
                "argsrepr": f"({message.lease}, ...)",
                "kwargsrepr": "{}",
                "origin": self._origin,
                "ignore_result": True,
            },
        )

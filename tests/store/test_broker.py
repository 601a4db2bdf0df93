"""What is sent to the workers is what Celery's own client would have sent."""

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from kombu import Connection

from harness.policy.errors import Unavailable
from harness.store import envelope
from harness.store.broker import Broker
from harness.store.message import Message

ONE = Message(queue="llm.p1", kind='odd "kind" \\ {}', lease=7, token=2**61 + 3)
LIMITED = Message(queue="cpu.p2", kind="cpu.similar", lease=8, token=9, time_limits_s=(65.0, 60.0))


@pytest.fixture
def emptied(broker_url: str) -> "Iterator[redis.Redis]":
    with redis.Redis.from_url(broker_url) as client:
        client.flushdb()
        yield client
        client.flushdb()


@pytest.mark.parametrize("message", [ONE, LIMITED])
def test_a_message_is_what_kombu_would_have_sent(broker_url: str, emptied: redis.Redis, message: Message) -> None:
    with Connection(broker_url) as connection, connection.Producer(serializer="json", auto_declare=False) as producer:
        producer.publish(
            envelope.body(message.lease, message.token),
            routing_key=message.queue,
            exchange="",
            content_type="application/json",
            content_encoding="utf-8",
            correlation_id="an id",
            delivery_mode=2,
            headers=envelope.headers(message, task_id="an id", lease=message.lease),
        )
    theirs = _pop(emptied, message.queue)
    broker = Broker(broker_url)
    broker.publish([message])
    broker.close()
    ours = _pop(emptied, message.queue)
    assert theirs["properties"].pop("body_encoding") == "base64"
    theirs["body"] = b64decode(theirs["body"]).decode()  # ours is plain
    task_id = ours["headers"]["id"]
    assert task_id == ours["headers"]["root_id"] == ours["properties"]["correlation_id"]
    theirs["headers"] |= {"id": task_id, "root_id": task_id}
    theirs["properties"] |= {"correlation_id": task_id, "delivery_tag": ours["properties"]["delivery_tag"]}
    assert ours == theirs
    assert json.loads(ours["body"])[0] == [message.lease, message.token]


def test_kombu_reads_it_and_each_has_an_id_of_its_own(broker_url: str, emptied: redis.Redis) -> None:
    broker = Broker(broker_url)
    broker.publish([ONE, ONE, LIMITED])
    broker.close()
    with Connection(broker_url) as connection:
        with connection.SimpleQueue("llm.p1") as queue:
            first, second = queue.get(timeout=2), queue.get(timeout=2)
            for message in (first, second):
                message.ack()
        with connection.SimpleQueue("cpu.p2") as queue:
            third = queue.get(timeout=2)
            third.ack()
    assert first.payload == second.payload == json.loads(envelope.body(7, 2**61 + 3))
    assert first.headers["shadow"] == ONE.kind
    assert first.headers["id"] != second.headers["id"]
    limits: Any = third.headers["timelimit"]
    assert limits == [65.0, 60.0]


def test_the_messages_of_a_tick_are_taken_in_the_order_in_which_they_were_sent(
    broker_url: str, emptied: redis.Redis
) -> None:
    broker = Broker(broker_url)
    broker.publish([Message(queue=f"db.p{i % 2}", kind="noop", lease=i, token=1) for i in range(8)])
    broker.publish([Message(queue="db.p1", kind="noop", lease=9, token=1)])
    broker.close()
    for queue, leases in (("db.p0", [0, 2, 4, 6]), ("db.p1", [1, 3, 5, 7, 9])):
        assert [json.loads(_pop(emptied, queue)["body"])[0][0] for _ in leases] == leases


def test_a_broker_that_is_full_or_away_is_unavailable_and_is_asked_anew(broker_url: str, emptied: redis.Redis) -> None:
    broker = Broker(broker_url)
    broker.publish([ONE])
    had = str(emptied.config_get("maxmemory")["maxmemory"])
    emptied.config_set("maxmemory", "1")
    try:
        with pytest.raises(Unavailable, match="the broker doesn't answer"):
            broker.publish([ONE])
    finally:
        emptied.config_set("maxmemory", had)
    broker.publish([ONE, LIMITED])
    assert emptied.llen("llm.p1") == 2
    broker.close()
    with pytest.raises(Unavailable):
        Broker("redis://127.0.0.1:1/0").publish([ONE])


def _pop(client: redis.Redis, queue: str) -> dict[str, Any]:
    found: Any = client.rpop(queue)
    parsed: dict[str, Any] = json.loads(found)
    return parsed

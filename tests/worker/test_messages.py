"""How many messages a worker holds, and what is left of them in the broker."""

import json
import signal
from base64 import b64decode
from typing import Any

import pytest
import redis

from tests.worker.conftest import Floor, Worker, eventually

SLOTS = 4  # of pool mcp; its queues have no kinds here, the lease's own pool is tool_read


def flood(floor: Floor, worker: Worker, number: int) -> None:
    for _ in range(number):
        lease, token = floor.prepare("noop.sleep", floor.submit("noop.sleep", {"sleep_s": 60}))
        floor.send("mcp.p2", "noop.sleep", lease, token)
    eventually(lambda: held(floor) == SLOTS)


def held(floor: Floor) -> int:
    row = floor.db.execute("SELECT count(*) FROM lease WHERE claimed_at IS NOT NULL").fetchone()
    assert row is not None
    return int(row[0])


def test_a_worker_holds_its_slots_and_no_more_also_after_a_reconnect(floor: Floor) -> None:
    worker = floor.start("mcp")
    with redis.Redis.from_url(floor.environment["BROKER_URL"]) as client:
        flood(floor, worker, SLOTS + 6)
        assert client.llen("mcp.p2") == 6
        assert client.exists("unacked", "unacked_index") == 0

        client.client_kill_filter(_type="normal", skipme=True)
        floor.db.execute("UPDATE task SET want = 'cancel' WHERE id = (SELECT min(task_id) FROM lease_member)")
        eventually(lambda: client.llen("mcp.p2") == 5)
        eventually(lambda: held(floor) == SLOTS)
        assert client.llen("mcp.p2") == 5
        assert client.exists("unacked", "unacked_index") == 0
    assert worker.stop() == 0
    assert held(floor) == 0


def test_a_killed_worker_leaves_nothing_that_the_broker_would_deliver_again(floor: Floor) -> None:
    worker = floor.start("mcp")
    with redis.Redis.from_url(floor.environment["BROKER_URL"]) as client:
        flood(floor, worker, SLOTS + 2)
        worker.process.kill()
        worker.process.wait()
        assert client.llen("mcp.p2") == 2
        assert client.exists("unacked", "unacked_index") == 0


GARBAGE = (
    b"not json at all",
    b"\xff\xfe\x00",
    b"",
    b"5",
    b"null",
    b"[]",
    b"{}",
    b'{"body": "x", "headers": 5, "properties": 7}',
    b'{"body": "e30=", "properties": {"delivery_info": {}, "delivery_tag": "1"}, "headers": {"task": []}}',
    b'{"body": "e30=", "properties": {"delivery_info": {}, "delivery_tag": "1"}, "headers": {"task": "no.such"}}',
    b'{"body": "%%%", "properties": {"body_encoding": "base64", "delivery_info": {}, "delivery_tag": "1"}}',
    b"[" * 100_000,
)


@pytest.mark.parametrize("pool", ["tool_read", "cpu"])
def test_a_message_that_is_none_is_dropped_and_the_worker_goes_on(floor: Floor, pool: str) -> None:
    worker = floor.start(pool)
    with redis.Redis.from_url(floor.environment["BROKER_URL"]) as client:
        client.lpush(f"{pool}.p1", *GARBAGE)
        eventually(lambda: client.llen(f"{pool}.p1") == 0, within_s=20.0)
        assert client.exists("unacked", "unacked_index") == 0
    if pool == "tool_read":
        task = floor.run_task("noop.sleep", {"sleep_s": 0})
    else:
        task = floor.run_task("cpu.similar", {"texts": [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]})
    floor.wait_for("succeeded", task)
    assert '"dropped": 4' in worker.text and "Restoring" not in worker.text
    assert worker.stop() == 0


def test_the_events_of_many_tasks_travel_together(floor: Floor) -> None:
    worker = floor.start("tool_read")
    with redis.Redis.from_url(floor.environment["BROKER_URL"]) as client, client.pubsub() as heard:
        heard.psubscribe("*celeryev*")
        tasks = [floor.run_task("noop.sleep", {"sleep_s": 0}) for _ in range(40)]
        floor.wait_for("succeeded", *tasks)
        assert worker.stop() == 0  # the last of them are sent at the end
        sent = [message["data"] for message in iter(lambda: heard.get_message(timeout=0.5), None)]
    of_tasks = [text for text in sent if isinstance(text, bytes) and b"task.multi" in text]
    succeeded = sum(b64decode(json.loads(text)["body"]).count(b'"task-succeeded"') for text in of_tasks)
    assert succeeded == 40
    assert len(of_tasks) < 20


def test_a_worker_takes_in_one_trip_what_its_free_slots_can_hold(floor: Floor) -> None:
    worker = floor.start("mcp")
    with redis.Redis.from_url(floor.environment["BROKER_URL"]) as client:
        worker.process.send_signal(signal.SIGSTOP)
        for _ in range(SLOTS + 3):
            lease, token = floor.prepare("noop.sleep", floor.submit("noop.sleep", {"sleep_s": 60}))
            floor.send("mcp.p2", "noop.sleep", lease, token)
        before = trips(client)
        worker.process.send_signal(signal.SIGCONT)
        eventually(lambda: held(floor) == SLOTS)
        assert client.llen("mcp.p2") == 3
        assert trips(client) - before <= 1  # the one under way, and perhaps one that had timed out


def trips(client: "redis.Redis") -> int:
    found: Any = client.info("commandstats")
    return int(found["cmdstat_brpop"]["calls"])

"""From the first beat to the last: what a worker process does with its session, its leases and its messages."""

import base64
import json
import os
import signal
import time
import uuid
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from harness.store import sessions
from harness.worker import tasks
from tests.worker.conftest import Floor, eventually


def events(floor: Floor, task: int) -> list[str]:
    rows = floor.db.execute("SELECT event FROM event WHERE task_id = %s ORDER BY seq", (task,)).fetchall()
    return [row[0] for row in rows]


def counters(floor: Floor, task: int) -> tuple[int, int]:
    row = floor.db.execute("SELECT attempts_used, lost_starts FROM task WHERE id = %s", (task,)).fetchone()
    assert row is not None
    return row[0], row[1]


def test_a_worker_shows_its_session_while_it_lives_and_leaves_nothing_behind(floor: Floor) -> None:
    worker = floor.start("tool_read,mcp")
    session = floor.session(worker)
    assert session is not None
    assert session["pools"] == {"tool_read": 8, "mcp": 4}
    assert "noop.sleep@1" in session["kinds"]
    assert not any(kind.startswith("child.nap") for kind in session["kinds"])
    task = floor.run_task("noop.sleep", {"sleep_s": 0.1})
    floor.wait_for("succeeded", task)
    assert floor.leases() == 0
    assert 0 < floor.connections("tool_read+mcp") <= session["connections"]

    assert worker.stop() == 0
    ended = floor.session(worker)
    assert ended is not None
    assert ended["ended_at"] is not None
    eventually(lambda: floor.connections("tool_read+mcp") == 0)


@pytest.mark.parametrize(("pool", "kind"), [("tool_read", "test.collector"), ("ingest", "child.collector")])
def test_garbage_is_collected_but_what_was_imported_is_left_alone(floor: Floor, pool: str, kind: str) -> None:
    worker = floor.start(pool)
    task = floor.run_task(kind, {})
    floor.wait_for("succeeded", task)
    row = floor.db.execute("SELECT output FROM task_body WHERE task_id = %s", (task,)).fetchone()
    assert row is not None and row[0]["enabled"] and row[0]["frozen"] > 10_000
    assert worker.stop() == 0


def test_a_message_without_its_lease_is_nobodys_work(floor: Floor) -> None:
    worker = floor.start("db")
    task = floor.submit("noop.single", {})
    floor.send("db.p0", "noop.single", 987_654, 1)
    floor.send("db.p0", "noop.single", 2**70, 2**70)
    for malformed in ("[]", '["x", null]', "[1]", "[true, false, 7]"):
        push_raw(floor, "db.p0", malformed)
    lease, token = floor.release("noop.single", task)
    floor.send("db.p1", "noop.single", lease, token + 1)
    floor.send("db.p1", "noop.single", lease, token)
    floor.wait_for("succeeded", task)
    floor.send("db.p1", "noop.single", lease, token)
    after = floor.run_task("noop.single", {})
    floor.wait_for("succeeded", after)
    assert events(floor, task) == ["submit", "claim", "succeed"]
    assert worker.stop() == 0


def test_a_message_that_looks_otherwise_than_a_hint_goes_celerys_way(floor: Floor) -> None:
    worker = floor.start("db")
    late, due, after = (floor.submit("noop.single", {}) for _ in range(3))
    push_raw(floor, "db.p0", "{}, {}".format(*floor.prepare("noop.single", late)), expires="2020-01-01T00:00:00+00:00")
    push_raw(floor, "db.p0", "{}, {}".format(*floor.prepare("noop.single", due)), eta="2020-01-01T00:00:00+00:00")
    floor.release("noop.single", after)
    floor.wait_for("succeeded", due, after)
    assert floor.state(late) == "queued"  # Celery threw it away unread, and the sweep would take the lease back
    assert worker.stop() == 0


def push_raw(floor: Floor, queue: str, arguments: str, **headers: str) -> None:
    """A message that no dispatcher has made: the arguments of `harness.run`, as JSON, and headers."""
    arguments = arguments if arguments.startswith("[") else f"[{arguments}]"
    body = base64.b64encode(f"[{arguments}, {{}}, {{}}]".encode()).decode()
    message = {
        "body": body,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "task": "harness.run", "id": str(uuid.uuid4()), "shadow": "unheard.of", **headers},
        "properties": {
            "body_encoding": "base64",
            "correlation_id": "foreign",
            "delivery_info": {"exchange": "", "routing_key": queue},
            "delivery_tag": "foreign",
        },
    }
    with redis.Redis.from_url(floor.environment["BROKER_URL"]) as client:
        client.lpush(queue, json.dumps(message))


def test_a_worker_told_to_stop_hands_back_what_does_not_end_in_time(floor: Floor) -> None:
    worker = floor.start("tool_read")
    polite = floor.run_task("noop.sleep", {"sleep_s": 60})
    deaf = floor.run_task("noop.fault", {"fail": "hang", "sleep_s": 60})
    floor.wait_for("running", polite, deaf)

    began_s = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began_s < 6
    for task in (polite, deaf):
        assert floor.state(task) == "queued"
        assert events(floor, task) == ["submit", "claim", "interrupt"]
        assert counters(floor, task) == (0, 0)
    assert floor.leases() == 0
    ended = floor.session(worker)
    assert ended is not None
    assert ended["ended_at"] is not None


def test_prefork_children_told_to_stop_hand_back_too(floor: Floor) -> None:
    worker = floor.start("ingest")
    polite = floor.run_task("child.nap", {"nap_s": 60})
    deaf = floor.run_task("child.nap", {"nap_s": 60, "deaf": True})
    floor.wait_for("running", polite, deaf)

    assert worker.stop() == 0
    for task in (polite, deaf):
        assert events(floor, task) == ["submit", "claim", "interrupt"]
        assert counters(floor, task) == (0, 0)
    assert floor.leases() == 0


def test_a_child_that_is_killed_loses_its_task_within_two_seconds(floor: Floor) -> None:
    worker = floor.start("ingest")
    bystander = floor.run_task("child.nap", {"nap_s": 8})
    victim = floor.run_task("child.nap", {"nap_s": 60, "deaf": True})
    floor.wait_for("running", victim, bystander)
    row = floor.db.execute(
        "SELECT pid FROM lease JOIN lease_member m ON m.lease_id = lease.id WHERE m.task_id = %s", (victim,)
    ).fetchone()
    assert row is not None
    assert row[0] in worker.children()
    os.kill(row[0], signal.SIGKILL)

    floor.wait_for("queued", victim, within_s=2)
    assert events(floor, victim) == ["submit", "claim", "lose"]
    assert counters(floor, victim) == (0, 1)
    after = floor.run_task("child.nap", {"nap_s": 0})
    floor.wait_for("succeeded", after, within_s=5)
    floor.wait_for("succeeded", bystander)
    session = floor.session(worker)
    assert session is not None
    assert floor.connections("ingest") <= session["connections"]
    assert worker.stop() == 0


def test_a_task_past_its_time_limit_ends_in_a_prefork_child_and_with_it_when_it_is_stuck(floor: Floor) -> None:
    worker = floor.start("ingest")
    deaf, stuck = (floor.submit("child.nap", {"nap_s": 60, how: True}) for how in ("deaf", "stuck"))
    for task in (deaf, stuck):
        floor.release("child.nap", task, timeout_s=1.0)
    for task in (deaf, stuck):
        floor.wait_for("failed_retryable", task, within_s=6)
        assert events(floor, task) == ["submit", "claim", "fail"]
        assert counters(floor, task) == (1, 0)
    assert floor.leases() == 0
    assert worker.stop() == 0


def test_each_task_in_quarantine_has_a_child_of_its_own(floor: Floor) -> None:
    worker = floor.start("quarantine")
    seen = set()
    for _ in range(2):
        task = floor.submit("child.nap", {"nap_s": 0.3})
        lease, token = floor.prepare("child.nap", task)
        floor.send("quarantine.p1", "child.nap", lease, token)
        floor.wait_for("running", task, within_s=5)
        row = floor.db.execute("SELECT pid FROM lease").fetchone()
        assert row is not None
        seen.add(row[0])
        floor.wait_for("succeeded", task)
    assert len(seen) == 2
    assert worker.stop() == 0


def test_a_worker_whose_session_was_declared_dead_exits(floor: Floor) -> None:
    worker = floor.start("tool_read")
    task = floor.run_task("noop.sleep", {"sleep_s": 60})
    floor.wait_for("running", task)
    floor.db.execute("UPDATE worker_session SET ended_at = clock_timestamp() WHERE pid = %s", (worker.process.pid,))
    assert worker.process.wait(12) == 1
    assert "session_lost" in worker.text


def test_a_paused_queue_is_left_alone_at_the_start_and_later(floor: Floor) -> None:
    pause = (
        "INSERT INTO pause (scope, key, source, author, reason) "
        "VALUES ('pool_priority', 'tool_read.p1', 'operator', 'test', 'test')"
    )
    resume = "DELETE FROM pause WHERE key = 'tool_read.p1'"
    floor.db.execute(pause)
    worker = floor.start("tool_read")
    waiting = floor.run_task("noop.sleep", {"sleep_s": 0})
    with redis.Redis.from_url(floor.environment["BROKER_URL"]) as client:
        # What comes later on another queue is done first.
        marker = floor.submit("noop.sleep", {"sleep_s": 0})
        lease, token = floor.prepare("noop.sleep", marker)
        floor.send("tool_read.p2", "noop.sleep", lease, token)
        floor.wait_for("succeeded", marker)
        assert floor.state(waiting) == "queued"
        assert client.llen("tool_read.p1") == 1

        floor.db.execute(resume)
        floor.wait_for("succeeded", waiting, within_s=6)
        floor.db.execute(pause)
        eventually(lambda: worker.text.count("queues_changed") == 2, within_s=6)
        again = floor.run_task("noop.sleep", {"sleep_s": 0})
        lease, token = floor.prepare("noop.sleep", marker2 := floor.submit("noop.sleep", {"sleep_s": 0}))
        floor.send("tool_read.p3", "noop.sleep", lease, token)
        floor.wait_for("succeeded", marker2)
        assert floor.state(again) == "queued"
    assert worker.stop() == 0


def test_a_system_tasks_result_is_kept_and_an_agent_tasks_is_not(floor: Floor) -> None:
    worker = floor.start("system")
    from config.celery import app

    with app.connection_for_write(floor.environment["BROKER_URL"]) as connection:
        app.send_task("harness.tidy", queue="system", connection=connection)
    eventually(lambda: results() == [("harness.tidy", "SUCCESS")], within_s=15)
    assert floor.connections("system") <= 4
    assert worker.stop() == 0


def test_a_system_worker_keeps_how_resources_stand_when_the_beat_asks(floor: Floor) -> None:
    worker = floor.start("system")
    from config.celery import app

    entry = app.conf.beat_schedule["observe"]
    with app.connection_for_write(floor.environment["BROKER_URL"]) as connection:
        for _ in range(2):
            app.send_task(entry["task"], connection=connection, **entry["options"])
    kept = "SELECT count(*) > 0 AND bool_and(seen_at > clock_timestamp() - interval '1 minute') FROM resource_state"
    eventually(lambda: bool((floor.db.execute(kept).fetchone() or (False,))[0]), within_s=15)
    eventually(lambda: floor.connections("system") <= 3, within_s=5)
    assert results() == [], "so many results would say nothing"
    assert worker.stop() == 0


def test_a_system_worker_tells_hooks_what_waits_when_the_beat_asks(floor: Floor) -> None:
    task = floor.submit("noop.sleep", {"sleep_s": 0})
    floor.db.execute("UPDATE task SET state = 'running', ready = false WHERE id = %s", (task,))
    floor.db.execute("UPDATE task SET state = 'waiting_approval' WHERE id = %s", (task,))
    floor.db.execute(
        "INSERT INTO approval (task_id, tenant_id, ordinal, name, prompt, choices, on_timeout, deny, asked_at, "
        "notify_after) SELECT id, tenant_id, 1, 'ask', 'Go on?', '{approved}', 'pause', 'cancel', now(), now() "
        "FROM task WHERE id = %s",
        (task,),
    )
    floor.db.execute("INSERT INTO approval_hook SELECT tenant_id, 'http://127.0.0.1/', 'me', now() FROM approval")
    worker = floor.start("system")
    from config.celery import app

    entry = app.conf.beat_schedule["notify"]
    with app.connection_for_write(floor.environment["BROKER_URL"]) as connection:
        app.send_task(entry["task"], connection=connection, **entry["options"])
    told = "SELECT notify_tries, notify_error LIKE '%loopback%' FROM approval"
    eventually(lambda: floor.db.execute(told).fetchone() == (1, True), within_s=30)
    assert worker.stop() == 0


def test_a_system_worker_makes_forecasts_when_the_beat_asks(floor: Floor) -> None:
    floor.submit("noop.sleep", {"sleep_s": 0})
    worker = floor.start("system")
    from config.celery import app

    entry = app.conf.beat_schedule["foresee"]
    with app.connection_for_write(floor.environment["BROKER_URL"]) as connection:
        app.send_task(entry["task"], connection=connection, **entry["options"])
    made = "SELECT waiting, looked_at FROM forecast_pass"
    eventually(lambda: floor.db.execute(made).fetchone() == (1, 1), within_s=15)
    assert results() == [], "so many results would say nothing"
    assert worker.stop() == 0


def test_a_turn_that_finds_no_database_is_one_line_and_no_error(settings: Any) -> None:
    settings.DATABASE_URL = "postgresql://nobody@127.0.0.1:1/none"
    with capture_logs() as told:
        tasks.observe()
        tasks.foresee()
    assert [(line["event"], line["turn"], line["log_level"]) for line in told] == [
        ("turn_left_out", "observe", "warning"),
        ("turn_left_out", "foresee", "warning"),
    ]
    assert "refused" in told[0]["reason"]


def results() -> list[tuple[str, str]]:
    from django_celery_results.models import TaskResult

    return list(TaskResult.objects.values_list("task_name", "status"))


def test_a_process_beats_by_one_row_whatever_runs_in_it_and_prefork_for_all_its_children(floor: Floor) -> None:
    threads, prefork = floor.start("tool_read,mcp"), floor.start("ingest")
    for _ in range(6):
        floor.run_task("noop.sleep", {"sleep_s": 60})
    eventually(lambda: floor.leases() == 6)
    claimed = "SELECT array_agg(xmin::text ORDER BY id) FROM lease WHERE claimed_at IS NOT NULL"
    eventually(lambda: len((floor.db.execute(claimed).fetchone() or ([],))[0] or []) == 6)
    leases = floor.db.execute(claimed).fetchone()
    assert floor.db.execute("SELECT count(*) FROM worker_session").fetchone() == (2,)
    beats: dict[int, set[str]] = {threads.process.pid: set(), prefork.process.pid: set()}
    end_s = time.monotonic() + 2 * sessions.BEAT_EVERY_S + 1
    while time.monotonic() < end_s:
        for pid, version in floor.db.execute("SELECT pid, xmin::text FROM worker_session"):
            beats[pid].add(version)  # each write of the row is another
        time.sleep(0.1)  # between two looks; a beat lasts five seconds
    assert all(2 <= len(versions) <= 4 for versions in beats.values()), beats
    assert floor.db.execute(claimed).fetchone() == leases  # no beat touches a lease
    assert threads.stop() == prefork.stop() == 0

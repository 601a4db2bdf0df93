"""Admission on the real database: accepted, deferred or refused by what waits; and how the deferred get in line."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings

from harness.engine import doorkeeper, operate, submit, sweep, why
from harness.engine.doorkeeper import Doorkeeper
from harness.engine.schedules import Firing
from harness.engine.submit import Accepted, Door, RunRequest, TaskRequest
from harness.kinds import registry
from harness.policy.admission import Forbidden, Overload, OverQuota, TenantFacts
from harness.policy.errors import HarnessError, Invalid
from harness.policy.pressure import Level
from harness.policy.reasons import Code
from harness.store import door as doors
from harness.store import pressure, queries, transitions
from harness.store.database import Connection
from tests.engine.plants import House
from tests.engine.test_audit import audited
from tests.engine.test_pressure import set_level
from tests.stage import Stage

KIND = "noop.single"
SLOTS = 4


@pytest.fixture
def web(stage: Stage) -> Iterator[Connection]:
    with stage.open("web") as connection:
        yield connection


@pytest.fixture(autouse=True)
def session(stage: Stage) -> uuid.UUID:
    """A worker process that is alive through the test."""
    found = registry.find(KIND)
    assert found is not None
    session = stage.add_session({found.pool: SLOTS})
    stage.connection.execute(
        "UPDATE worker_session SET beat_at = clock_timestamp() + interval '1 hour' WHERE uuid = %s", (session,)
    )
    return session


def door() -> Door:
    return Door(body_max_bytes=10_000)


def facts(stage: Stage, tenant: int | None = None) -> TenantFacts:
    stage.connection.execute("UPDATE tenant SET top_priority = 0")
    found = queries.tenant_facts(stage.connection, tenant or stage.tenant)
    assert found is not None
    return found


def keep(stage: Stage) -> int:
    """One round of the leader's side. Returns how many of the deferred got in."""
    assert stage.epoch is not None
    return Doorkeeper(settings.HARNESS_TOPOLOGY).round(stage.connection, epoch=stage.epoch)


def took(stage: Stage, seconds: float, *, n: int = 10) -> None:
    """As if the last tasks of the kind had taken so long; they are in nobody's way."""
    tasks = stage.submit(KIND, n)
    stage.connection.execute("UPDATE task SET ready = false, not_before = 'infinity' WHERE id = ANY(%s)", (tasks,))
    stage.connection.execute("UPDATE task SET created_at = created_at - interval '1 hour' WHERE id = ANY(%s)", (tasks,))
    stage.connection.execute(
        "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict, slot_s) "
        "SELECT id, %s, 1, clock_timestamp(), 'succeed', %s FROM unnest(%s::bigint[]) AS x(id)",
        (stage.tenant, seconds, tasks),
    )
    stage.connection.execute(
        "INSERT INTO estimate (kind, mean_s) VALUES (%s, %s) ON CONFLICT (kind) DO UPDATE SET mean_s = excluded.mean_s",
        (KIND, seconds),
    )


def one(**more: Any) -> TaskRequest:
    return TaskRequest(**{"kind": KIND, "input": {}} | more)


def send(
    stage: Stage, web: Connection, at: Door, request: TaskRequest, *, tenant: int | None = None, key: str | None = None
) -> Accepted:
    return submit.submit(at, web, facts(stage, tenant), [request], actor="test", idempotency_key=key)


def refused(stage: Stage, web: Connection, at: Door, request: TaskRequest, *, key: str | None = None) -> HarnessError:
    with pytest.raises(HarnessError) as raised:
        send(stage, web, at, request, key=key)
    return raised.value


def told(stage: Stage) -> list[tuple[str, str, int, int]]:
    """What was refused or deferred: code, reason, tasks, counted once."""
    cursor = stage.connection.execute(
        "SELECT code, reason, sum(tasks)::integer, sum(once)::integer FROM door_answer GROUP BY 1, 2 ORDER BY 1, 2"
    )
    return [(row[0], row[1], row[2], row[3]) for row in cursor]


# -- accepted


def test_what_starts_at_once_is_accepted_and_says_when(stage: Stage, web: Connection) -> None:
    set_level(stage, Level.CRITICAL)
    keep(stage)
    accepted = send(stage, web, door(), one(priority=3))
    assert accepted.deferred == 0 and accepted.expected_start is not None
    assert abs(accepted.expected_start - datetime.now(UTC)) < timedelta(seconds=5)


def test_while_nobody_keeps_the_row_no_wait_is_known_and_nothing_is_refused_for_one(
    stage: Stage, web: Connection
) -> None:
    set_level(stage, Level.CRITICAL)
    stage.submit(KIND, 500, priority=3)
    assert send(stage, web, door(), one(priority=3)).expected_start is None
    keep(stage)
    assert isinstance(refused(stage, web, door(), one(priority=3)), Overload)
    stage.connection.execute("UPDATE door SET at = at - interval '31 seconds'")
    assert send(stage, web, door(), one(priority=3)).expected_start is None


def test_at_normal_a_long_line_is_no_reason_to_refuse(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 5000)
    keep(stage)
    accepted = send(stage, web, door(), one())
    assert accepted.expected_start is not None and accepted.deferred == 0
    assert accepted.expected_start - datetime.now(UTC) > timedelta(minutes=15)  # 5000 tasks, 4 a second


# -- deferred


def deferred(stage: Stage, web: Connection, n: int = 1, *, level: Level = Level.ELEVATED) -> list[int]:
    """Tasks that were deferred, behind 4000 of the same tenant."""
    stage.submit(KIND, 4000)
    set_level(stage, level)
    keep(stage)
    at = door()
    found = []
    for _ in range(n):
        accepted = send(stage, web, at, one())
        assert accepted.deferred == 1, accepted
        found.append(int(stage.one("SELECT id FROM task WHERE public_id = %s", accepted.task_ids[0])))
    return found


def test_deferred_says_why_and_when_and_stands_in_no_line(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 4000)
    set_level(stage, Level.ELEVATED)
    keep(stage)
    accepted = send(stage, web, door(), one())
    assert accepted.deferred == 1 and accepted.reason.startswith("pressure is elevated")
    assert accepted.expected_start is not None
    assert timedelta(seconds=900) < accepted.expected_start - datetime.now(UTC) < timedelta(seconds=1100)
    found = queries.task(stage.connection, accepted.task_ids[0])
    assert found is not None and found.deferred and not found.ready and found.state == "queued"
    assert found.not_before is not None and abs(found.not_before - accepted.expected_start) < timedelta(seconds=1)
    stage.hold_lead()
    reason = why.why(stage.connection, found).bound[0]
    assert reason.reason.code == Code.DEFERRED
    assert reason.told.words.startswith("Deferred by admission: pressure is elevated")
    assert told(stage) == [("deferred", "pressure", 1, 0)]


def test_nothing_deferred_starts_before_its_predicted_wait_is_within_the_target(
    stage: Stage, web: Connection, session: uuid.UUID
) -> None:
    tasks = deferred(stage, web, 20)
    started = "SELECT count(*) FROM task WHERE id = ANY(%s) AND release_no > 0"
    for _ in range(30):
        for message in list(stage.tick()):
            stage.claim(message, session)
        stage.connection.execute("DELETE FROM lease_member")
        stage.connection.execute("DELETE FROM lease")
        keep(stage)
    assert stage.one(started, tasks) == 0, "starts before they were let in"
    assert stage.one("SELECT count(*) FROM task WHERE release_no > 0") > 30
    # The line gets short: now they may wait in it.
    stage.connection.execute("UPDATE task SET ready = false WHERE id <> ALL(%s)", (tasks,))
    stage.connection.execute("UPDATE level SET level = 0")
    assert keep(stage) == 20
    assert stage.events(tasks[0]) == ["submit", "ripen"]
    reason = stage.one("SELECT data ->> 'reason' FROM event WHERE task_id = %s AND event = 'ripen'", tasks[0])
    assert reason == doorkeeper.REASON
    for _ in range(5):
        for message in list(stage.tick()):
            stage.claim(message, session)
        stage.connection.execute("DELETE FROM lease_member")
        stage.connection.execute("DELETE FROM lease")
    assert stage.one(started, tasks) == 20


def test_only_as_many_are_let_in_as_keep_the_target_the_oldest_first(stage: Stage, web: Connection) -> None:
    tasks = deferred(stage, web, 50)
    # 4 a second for 600 s, less what is always before a task: 2398 may be in line.
    stage.connection.execute(
        "UPDATE task SET ready = false WHERE id IN (SELECT id FROM task WHERE ready ORDER BY id LIMIT 4000 - 2378)"
    )
    assert keep(stage) == 20
    assert stage.one("SELECT array_agg(id ORDER BY id) FROM task WHERE deferred") == tasks[20:]


def test_a_deferred_task_is_let_in_at_its_time_however_long_the_line_is(stage: Stage, web: Connection) -> None:
    (task,) = deferred(stage, web)
    assert transitions.wake_due(stage.connection, actor="test") == 0
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (task,))
    assert transitions.wake_due(stage.connection, actor="test") == 1
    row = stage.row(task)
    assert row["ready"] and not row["deferred"] and row["not_before"] is None


def test_a_deferral_does_not_outlive_the_time_to_start(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 6000)
    set_level(stage, Level.ELEVATED)
    keep(stage)
    accepted = send(stage, web, door(), one(ttl_s=1800))
    found = queries.task(stage.connection, accepted.task_ids[0])
    assert found is not None and found.deferred and found.not_before is not None and found.start_by is not None
    assert found.start_by - found.not_before >= timedelta(seconds=590)


def test_people_act_on_deferred_tasks_as_on_planned_ones(stage: Stage, web: Connection) -> None:
    held, gone, urgent = deferred(stage, web, 3)

    def act(verb: str, task: int, **more: Any) -> None:
        public: uuid.UUID = stage.one("SELECT public_id FROM task WHERE id = %s", task)
        with stage.open() as connection:
            operate.VERBS[verb].run(connection, public, tenant=None, actor="me", reason="so", **more)

    act("pause", held)
    act("cancel", gone)
    act("priority", urgent, priority=0)
    stage.connection.execute("UPDATE task SET ready = false WHERE id < %s", (held,))
    assert keep(stage) == 1, "of the three only the one that is queued gets in"
    assert stage.row(urgent)["ready"] and stage.row(urgent)["priority"] == 0
    act("resume", held)
    assert not stage.row(held)["ready"] and keep(stage) == 1
    assert stage.row(held)["ready"] and stage.row(gone)["state"] == "cancelled"


def test_the_time_that_it_was_deferred_is_told_apart(stage: Stage, web: Connection) -> None:
    (task,) = deferred(stage, web)
    stage.connection.execute("UPDATE event SET at = at - interval '90 seconds' WHERE task_id = %s", (task,))
    stage.connection.execute("UPDATE task SET ready = false WHERE id < %s", (task,))
    assert keep(stage) == 1
    view = queries.task(stage.connection, stage.one("SELECT public_id FROM task WHERE id = %s", task))
    assert view is not None
    spent = {one.code: one.seconds for one in why.why(stage.connection, view).spent}
    assert spent[Code.DEFERRED] == pytest.approx(90, abs=5)


# -- refused


def test_overload_is_a_503_in_words_and_leaves_nothing_behind(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 200)
    set_level(stage, Level.CRITICAL)
    keep(stage)
    before = stage.one("SELECT count(*) FROM task")
    error = refused(stage, web, door(), one(), key="k")
    assert isinstance(error, Overload) and error.code == "overload"
    assert error.facts["level"] == "critical" and error.facts["reason"] == "pressure"
    retry_after_s = error.facts["retry_after_s"]
    assert isinstance(retry_after_s, float) and 4.5 <= retry_after_s <= 660
    assert stage.one("SELECT count(*) FROM task") == before
    assert stage.one("SELECT count(*) FROM idempotency") == 0
    assert told(stage) == [("overload", "pressure", 1, 1)]


def test_a_small_tenant_is_taken_while_an_elephant_is_refused(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 3000)
    mouse = stage.add_tenant("mouse")
    set_level(stage, Level.CRITICAL)
    keep(stage)
    at = door()
    assert isinstance(refused(stage, web, at, one()), Overload)
    assert send(stage, web, at, one(), tenant=mouse).deferred == 0


def test_a_run_gets_nothing_in_at_critical_that_its_nodes_one_by_one_would_not(stage: Stage, web: Connection) -> None:
    mouse = stage.add_tenant("mouse")
    stage.submit(KIND, 300, priority=1)
    set_level(stage, Level.CRITICAL)
    keep(stage)
    at, tenant = door(), facts(stage, mouse)
    with pytest.raises(Overload) as raised:
        submit.submit_run(at, web, tenant, RunRequest(nodes=[one()] * 500), actor="test")
    assert raised.value.facts["reason"] == "pressure"
    few = submit.submit_run(at, web, tenant, RunRequest(nodes=[one()] * 2), actor="test")
    assert (len(few.task_ids), few.deferred) == (2, 0)


def test_p0_is_taken_at_every_level_within_its_quota(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 3000, priority=0)
    set_level(stage, Level.CRITICAL)
    keep(stage)
    assert send(stage, web, door(), one(priority=0, ttl_s=5000)).deferred == 0
    stage.connection.execute("UPDATE tenant SET backlog_quota = 3001")
    error = refused(stage, web, door(), one(priority=0, ttl_s=5000))
    assert isinstance(error, OverQuota) and error.facts["retry_after_s"]
    assert told(stage) == [("over_quota", "over_quota", 1, 0)], "own quota is no demand on the system"


def test_what_cannot_make_its_deadline_is_refused_at_any_level(stage: Stage, web: Connection) -> None:
    took(stage, 5.0)
    stage.submit(KIND, 40)
    keep(stage)
    soon, later = datetime.now(UTC) + timedelta(seconds=60), datetime.now(UTC) + timedelta(seconds=600)
    error = refused(stage, web, door(), one(deadline=soon))  # some 51 s of waiting and 5 s of work
    assert isinstance(error, Overload) and (error.field, error.facts["reason"]) == ("deadline", "deadline")
    assert send(stage, web, door(), one(deadline=later)).deferred == 0


def test_a_deadline_shorter_than_the_work_is_named(stage: Stage, web: Connection) -> None:
    took(stage, 50.0)
    keep(stage)
    error = refused(stage, web, door(), one(deadline=datetime.now(UTC) + timedelta(seconds=20)))
    assert isinstance(error, Invalid) and error.field == "deadline"
    assert "give it more time" in error.message


def test_what_would_expire_in_line_is_refused(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 4000)
    keep(stage)
    error = refused(stage, web, door(), one(ttl_s=300))
    assert isinstance(error, Overload) and (error.field, error.facts["reason"]) == ("start_by", "start_by")


def test_a_run_is_refused_as_a_whole_for_one_of_its_nodes(stage: Stage, web: Connection) -> None:
    took(stage, 5.0)
    stage.submit(KIND, 40)
    keep(stage)
    before = stage.one("SELECT count(*) FROM task")
    nodes = [one(), one(deadline=datetime.now(UTC) + timedelta(seconds=60)), one()]
    with pytest.raises(Overload) as raised:
        submit.submit_run(door(), web, facts(stage), RunRequest(nodes=nodes), actor="test")
    assert raised.value.field == "nodes[0].deadline", "alike, they stand in one line: its first node tells the field"
    assert stage.one("SELECT count(*) FROM task") == before and stage.one("SELECT count(*) FROM run") == 0
    assert told(stage) == [("overload", "deadline", 3, 3)]


def test_the_nodes_of_a_run_are_deferred_each_for_itself(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 4000)
    set_level(stage, Level.ELEVATED)
    keep(stage)
    run = RunRequest(nodes=[one(priority=1), one(), one()])
    accepted = submit.submit_run(door(), web, facts(stage), run, actor="test")
    assert accepted.deferred == 2
    rows = stage.connection.execute(
        "SELECT priority, ready, deferred FROM task WHERE run_id <> 0 ORDER BY id"
    ).fetchall()
    assert rows == [(1, True, False), (2, False, True), (2, False, True)]


# -- what a door remembers


def test_a_burst_through_one_door_is_seen_before_the_next_look(stage: Stage, web: Connection) -> None:
    set_level(stage, Level.CRITICAL)
    keep(stage)
    at = door()
    taken = 0
    for _ in range(60):  # 4 slots of a second each: 5 s of waiting are 20 tasks
        try:
            send(stage, web, at, one())
        except Overload:
            break
        taken += 1
    assert 15 <= taken <= 30


def test_a_refusal_is_counted_once_for_each_idempotency_key(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 200)
    set_level(stage, Level.CRITICAL)
    keep(stage)
    at = door()
    for _ in range(3):
        refused(stage, web, at, one(), key="again")
    for _ in range(2):
        refused(stage, web, at, one())
    submit.tell(at, web, at_once=True)
    assert told(stage) == [("overload", "pressure", 5, 3)]


def test_a_key_that_was_refused_and_comes_again_counts_as_the_task_that_it_makes(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 200)
    set_level(stage, Level.CRITICAL)
    keep(stage)
    at = door()
    refused(stage, web, at, one(), key="again")
    stage.connection.execute("UPDATE level SET level = 0")
    time.sleep(1.1)  # the door looks once a second
    send(stage, web, at, one(), key="again")
    submit.tell(at, web, at_once=True)
    assert [row[3] for row in told(stage)] == [-1, 1]


def test_what_was_refused_is_demand(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 200)
    set_level(stage, Level.CRITICAL)
    keep(stage)
    before = _arrived(stage)
    at = door()
    for _ in range(25):
        refused(stage, web, at, one())
    submit.tell(at, web, at_once=True)
    assert _arrived(stage) == before + 25


def _arrived(stage: Stage) -> int:
    resources = settings.HARNESS_TOPOLOGY.resources
    found = pressure.facts(stage.connection, resources, connections=50, tasks=5000)
    return sum(one.number for one in found.arrived)


def test_a_tenant_reads_what_was_refused_of_its_own(stage: Stage, web: Connection) -> None:
    stage.submit(KIND, 200)
    set_level(stage, Level.CRITICAL)
    keep(stage)
    refused(stage, web, door(), one())
    with queries.as_tenant(web, stage.tenant):
        (found,) = doors.told(web, minutes=10, most=10)
    assert (found.priority, found.code, found.reason, found.tasks) == (2, "overload", "pressure", 1)
    with queries.as_tenant(web, stage.add_tenant("other")):
        assert doors.told(web, minutes=10, most=10) == []


def test_a_wrong_priority_is_refused_before_anything_is_predicted(stage: Stage, web: Connection) -> None:
    tenant = replace(facts(stage), top_priority=2)
    with pytest.raises(Forbidden) as raised:
        submit.submit(door(), web, tenant, [one(priority=0)], actor="test")
    assert raised.value.field == "priority"


# -- the leader's side


def test_the_row_is_kept_under_the_leaders_epoch_alone(stage: Stage) -> None:
    assert stage.epoch is not None
    Doorkeeper(settings.HARNESS_TOPOLOGY).round(stage.connection, epoch=stage.epoch - 1)
    assert stage.one("SELECT count(*) FROM door") == 0
    keep(stage)
    assert stage.one("SELECT count(*) FROM door") == 1


def test_the_row_names_no_tenant(stage: Stage, web: Connection) -> None:
    deferred(stage, web, 3)
    found = stage.one("SELECT facts FROM door")
    assert found.keys() == {"places", "service_s"}
    assert all(len(crowd) == 2 for place in found["places"].values() for those in place[4] for crowd in those)
    assert "acme" not in json.dumps(found)


def test_a_round_comes_once_a_second(stage: Stage, web: Connection) -> None:
    assert stage.epoch is not None
    keeper = Doorkeeper(settings.HARNESS_TOPOLOGY)
    keeper.round(stage.connection, epoch=stage.epoch)
    at = stage.one("SELECT at FROM door")
    keeper.round(stage.connection, epoch=stage.epoch)
    assert stage.one("SELECT at FROM door") == at


def test_deferred_tasks_are_no_finding_of_the_auditor(stage: Stage, web: Connection) -> None:
    deferred(stage, web, 3)
    stage.connection.execute("UPDATE task SET created_at = created_at - interval '1 hour'")
    with ExitStack() as stack:
        assert audited(House(stage, stack)) == []


# -- dead work


def test_work_in_line_whose_deadline_is_nearer_than_half_of_what_it_takes_expires(stage: Stage) -> None:
    took(stage, 20.0)
    near = datetime.now(UTC) + timedelta(seconds=8)
    (dead,) = stage.submit(KIND, deadline=near)
    (alive,) = stage.submit(KIND, deadline=near + timedelta(seconds=60))
    assert transitions.expire_due(stage.connection, actor="test") == 1
    assert (stage.state(dead), stage.state(alive)) == ("failed_terminal", "queued")


def test_dead_work_that_was_released_is_not_begun(stage: Stage, session: uuid.UUID) -> None:
    took(stage, 20.0)
    (dead,) = stage.submit(KIND, deadline=datetime.now(UTC) + timedelta(seconds=8))
    (message,) = stage.tick()
    (task,) = stage.claim(message, session)
    assert task.id == dead and task.expired and stage.state(dead) == "failed_terminal"


def test_the_sweep_lets_nothing_expire_that_can_still_be_done(stage: Stage) -> None:
    took(stage, 20.0)
    (task,) = stage.submit(KIND, deadline=datetime.now(UTC) + timedelta(seconds=15))
    assert stage.epoch is not None
    assert sweep.sweep(stage.connection, epoch=stage.epoch, firing=Firing()).expired == 0
    assert stage.state(task) == "queued"

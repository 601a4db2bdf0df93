"""Submission at the engine: whole or refused, within the quota, and the dispatcher is woken after the commit."""

import json
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.engine import payload, submit
from harness.engine.submit import Door, RunRequest, TaskRequest
from harness.policy.admission import OverQuota, TenantFacts
from harness.policy.errors import Conflict, HarnessError, Invalid, TooLarge
from harness.store import idempotency, queries, sql
from harness.store.backlog import COUNT_EVERY_S, Backlog
from harness.store.database import Connection
from harness.store.doorbell import CHANNEL
from tests.stage import Stage


@pytest.fixture
def web(stage: Stage) -> Iterator[Connection]:
    """A connection as the web process has it."""
    with stage.open("web") as connection:
        yield connection


def facts(stage: Stage, *, quota: int = 1000, top: int = 1) -> TenantFacts:
    stage.connection.execute(
        "UPDATE tenant SET backlog_quota = %s, top_priority = %s WHERE id = %s", (quota, top, stage.tenant)
    )
    found = queries.tenant_facts(stage.connection, stage.tenant)
    assert found is not None
    return found


def noops(n: int) -> list[TaskRequest]:
    return [TaskRequest(kind="noop", input={"i": i}) for i in range(n)]


def door() -> Door:
    return Door(body_max_bytes=10_000)


def test_tasks_keep_the_order_asked_for(stage: Stage, web: Connection) -> None:
    accepted = submit.submit(door(), web, facts(stage), noops(50), actor="test")
    rows = stage.connection.execute(
        "SELECT t.public_id, b.input FROM task t JOIN task_body b ON b.task_id = t.id ORDER BY t.id"
    ).fetchall()
    assert rows == [(task, {"i": i}) for i, task in enumerate(accepted.task_ids)]
    assert stage.one("SELECT count(*) FROM event WHERE event = 'submit' AND actor = 'test'") == 50


@pytest.mark.parametrize(
    ("wrong", "field", "error"),
    [
        (TaskRequest(kind="nope", input={}), "nodes[1].kind", Invalid),
        (TaskRequest(kind="noop", input={"i": "x"}), "nodes[1].input.i", Invalid),
        (TaskRequest(kind="noop", input={"tag": "a\x00"}), "nodes[1].input.tag", Invalid),
        (TaskRequest(kind="noop", input={"tag": "\ud800"}), "nodes[1].input.tag", Invalid),
        (TaskRequest(kind="noop", input={"ts": float("nan")}), "nodes[1].input.ts", Invalid),
        (TaskRequest(kind="noop", input={"tag": object()}), "nodes[1].input", Invalid),
        (TaskRequest(kind="noop", input={"tag": "x" * 10_000}), "nodes[1].input", TooLarge),
        (TaskRequest(kind="noop", input={}, priority=9), "nodes[1].priority", Invalid),
        (TaskRequest(kind="noop", input={}, deadline=datetime(2030, 1, 1)), "nodes[1].deadline", Invalid),  # noqa: DTZ001  (that is the fault)
    ],
)
def test_one_wrong_node_refuses_the_run_and_is_named(
    stage: Stage, web: Connection, wrong: TaskRequest, field: str, error: type[HarnessError]
) -> None:
    run = RunRequest(nodes=[*noops(1), wrong, *noops(1)])
    with pytest.raises(error) as raised:
        submit.submit_run(door(), web, facts(stage), run, actor="test", idempotency_key="k")
    assert raised.value.field == field
    for table in ("task", "run", "event", "idempotency"):
        seen = stage.one(f"SELECT count(*) FROM {table} WHERE tenant_id = %s", stage.tenant)
        assert seen == 0, table


def test_of_many_wrong_nodes_twenty_are_told(stage: Stage) -> None:
    run = RunRequest(nodes=[TaskRequest(kind="noop", input={"i": -1})] * 500)
    with pytest.raises(Invalid) as raised:
        submit.check_run(door(), facts(stage), run)
    assert len(raised.value.facts["errors"]) == 20  # type: ignore[arg-type]


def test_a_failing_insert_leaves_no_run_and_no_reservation(stage: Stage, web: Connection) -> None:
    here, tenant = door(), facts(stage, quota=10)
    checked = submit.check_run(here, tenant, RunRequest(nodes=noops(6)))
    twice = replace(checked, tasks=[checked.tasks[0]] * 6)
    with pytest.raises(psycopg.errors.UniqueViolation):
        submit.commit(here, web, tenant, twice, actor="test")
    assert stage.one("SELECT count(*) FROM run") == 0
    assert len(submit.commit(here, web, tenant, checked, actor="test").task_ids) == 6


def test_threads_of_one_process_never_exceed_a_quota(stage: Stage) -> None:
    here, tenant = door(), facts(stage, quota=50)
    outcomes: list[bool] = []
    gate = threading.Barrier(12)

    def client() -> None:
        with stage.open("web") as connection:
            gate.wait()
            for _ in range(5):
                try:
                    submit.submit(here, connection, tenant, noops(3), actor="test")
                    outcomes.append(True)
                except OverQuota:
                    outcomes.append(False)

    threads = [threading.Thread(target=client) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 60
    live = stage.one("SELECT count(*) FROM task WHERE tenant_id = %s", stage.tenant)
    # Who is refused may have been refused for the sake of the eleven others that were at it.
    assert live == 3 * sum(outcomes) and 50 - 12 * 3 < live <= 50


def test_a_backlog_is_counted_at_most_once_a_second_and_then_sees_other_processes(stage: Stage) -> None:
    backlog, other = Backlog(), Backlog()
    now_s = 100.0

    def look(n: int, at_s: float, who: Backlog = backlog) -> int:
        return who.reserve(stage.connection, stage.tenant, n, quota=1000, now_s=at_s)

    assert look(2, now_s) == 0
    stage.submit(n=2)
    backlog.committed(stage.tenant, 2)
    assert look(0, now_s) == 2
    stage.submit(n=5)  # another process's
    assert look(0, now_s + COUNT_EVERY_S * 0.9) == 2
    assert look(0, now_s + COUNT_EVERY_S) == 7
    assert look(0, now_s, other) == 7
    assert look(3, now_s + 1.1) == 7  # reserved, not yet committed ..
    assert look(0, now_s + 3) == 10  # .. and not forgotten by the next count
    backlog.released(stage.tenant, 3)
    assert look(0, now_s + 3) == 7


def test_a_count_stops_at_the_quota(stage: Stage) -> None:
    stage.submit(n=20)
    assert Backlog().reserve(stage.connection, stage.tenant, 1, quota=5, now_s=0.0) == 6


def test_racing_threads_with_one_key_make_one_run(stage: Stage) -> None:
    here, tenant = door(), facts(stage)
    made: list[tuple[uuid.UUID | None, bool]] = []
    gate = threading.Barrier(20)

    def client() -> None:
        with stage.open("web") as connection:
            gate.wait()
            accepted = submit.submit_run(
                here, connection, tenant, RunRequest(nodes=noops(20)), actor="test", idempotency_key="k"
            )
            made.append((accepted.run_id, accepted.existing))

    threads = [threading.Thread(target=client) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({run for run, _ in made}) == 1
    assert sorted(existing for _, existing in made) == [False] + [True] * 19
    assert stage.one("SELECT count(*) FROM task") == 20


def test_a_racer_takes_over_the_key_when_the_first_is_refused(stage: Stage, web: Connection) -> None:
    """The second waits for the first's transaction; when that is rolled back, the key is the second's."""
    here, tenant = door(), facts(stage)
    checked = submit.check(here, tenant, noops(1), idempotency_key="k")
    assert checked.fingerprint is not None
    done: list[bool] = []
    with stage.open("web") as first:
        first.execute("SELECT set_config('harness.tenant', %s, false)", (str(stage.tenant),))
        first.execute("BEGIN")
        claimed = idempotency.claim(
            first, tenant=stage.tenant, route="tasks", key="k", fingerprint=checked.fingerprint, made=uuid.uuid4()
        )
        assert claimed is None
        second = threading.Thread(
            target=lambda: done.append(submit.commit(here, web, tenant, checked, actor="test").existing)
        )
        second.start()
        second.join(0.3)
        assert second.is_alive()
        first.execute("ROLLBACK")
        second.join(10)
    assert done == [False] and stage.one("SELECT count(*) FROM task") == 1


def test_another_body_under_a_key_is_a_conflict(stage: Stage, web: Connection) -> None:
    here, tenant = door(), facts(stage)
    later = datetime.now(UTC) + timedelta(days=1)
    first = submit.submit(
        here, web, tenant, [TaskRequest(kind="noop", input={}, deadline=later)], actor="test", idempotency_key="k"
    )
    with pytest.raises(Conflict) as raised:
        submit.submit(here, web, tenant, noops(1), actor="test", idempotency_key="k")
    assert raised.value.field == "deadline" and raised.value.facts["task_id"] == str(first.task_ids[0])


def test_the_doorbell_rings_after_the_commit_at_most_once_in_10_ms_and_only_for_a_sleeper(
    stage: Stage, web: Connection
) -> None:
    tenant = facts(stage)
    listener = stage.open()
    listener.execute(f"LISTEN {CHANNEL}")

    def heard() -> int:
        return len(list(listener.notifies(timeout=0.2)))

    submit.submit(door(), web, tenant, noops(1), actor="test")
    assert heard() == 0  # the leader is awake
    stage.connection.execute("UPDATE leader SET sleeping = true")
    here = door()
    submit.submit(here, web, tenant, noops(1), actor="test")
    assert heard() == 1
    before_s = here.doorbell._rung_s
    here.doorbell._rung_s = before_s + 3600  # as if it had just rung
    submit.submit(here, web, tenant, noops(1), actor="test")
    assert heard() == 0
    listener.close()


@pytest.mark.parametrize(
    ("name", "parameters", "index"),
    [
        ("submit/count_backlog", {"most": 1001}, "task_live"),
        (
            "queries/task_page",
            {"before": 2**62, "scan": 100, "most": 50, "state": None, "kind": None, "priority": None},
            "task_of_tenant",
        ),
    ],
)
def test_the_statements_of_the_door_use_their_index(
    stage: Stage, web: Connection, name: str, parameters: dict[str, Any], index: str
) -> None:
    stage.submit(n=30)
    stage.submit(n=6000, tenant=stage.add_tenant("other"))
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("ANALYZE task")
    with queries.as_tenant(web, stage.tenant):
        rows = web.execute(
            "EXPLAIN " + sql.load(name),
            parameters | {"tenant": stage.tenant},
        ).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert index in plan and "Seq Scan on task " not in plan, plan


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(-1e15, 1e15)  # beyond, jsonb gives a whole number back that is near
    | st.sampled_from([float("nan"), float("inf")])
    | st.text(st.characters(codec=None, exclude_categories=()), max_size=5)
    | st.sampled_from(["\\u0000", "NaN", "Infinity", "\x00", "\ud800", "\U0001f600"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=_VALUES)
def test_what_is_encoded_can_be_stored_and_comes_back_and_the_rest_is_refused_by_path(
    stage: Stage, value: object
) -> None:
    try:
        text: str | None = payload.encode(value, "input", max_bytes=100_000)
        refused_at = ""
    except Invalid as error:
        text, refused_at = None, error.field or ""
    if text is not None:
        assert stage.one("SELECT %s::jsonb", text) == value
    else:
        assert refused_at.startswith("input")
        assert any(sign in json.dumps(value) for sign in ("\\u0000", "\\ud", "NaN", "Infinity"))

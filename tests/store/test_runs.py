"""What the pages of runs and of a tenant read: right against rows, one tenant's alone, and by key."""

import re
import uuid
from collections import Counter
from typing import Any

import psycopg
import pytest

from harness.policy.lifecycle import State
from harness.store import queries, runs, sql
from harness.store.runs import LETTERS
from tests.runs import make_run
from tests.stage import Stage

OF_STATE = {state: letter for letter, state in LETTERS.items()}


def test_how_a_runs_tasks_stand_is_a_letter_each_in_order_of_birth(stage: Stage) -> None:
    states = [*State, State.RUNNING]
    run = make_run(stage, states)
    make_run(stage, [State.QUEUED])
    letters, last_end = runs.states(stage.connection, run)
    assert letters == "".join(OF_STATE[state] for state in states)
    assert last_end == stage.one("SELECT max(finished_at) FROM task WHERE run_id = %s", run)
    assert runs.states(stage.connection, run + 1000) == ("", None)
    assert runs.states(stage.connection, 0) == ("", None), "tasks of no run are no run"


def test_how_children_stand_counts_all_10_000_of_a_parent_and_no_others(stage: Stage) -> None:
    parent, other = stage.submit(n=2)
    states = [State.SUCCEEDED] * 9_990 + [State.FAILED_TERMINAL] * 4 + [State.RUNNING] * 6
    make_run(stage, states, parent=parent)
    make_run(stage, [State.QUEUED], parent=other)
    assert runs.states_of_children(stage.connection, parent) == "s" * 9_990 + "f" * 4 + "r" * 6
    assert runs.states_of_children(stage.connection, other) == "q"


def test_failures_alike_stand_together_whatever_numbers_their_messages_name(stage: Stage) -> None:
    run = make_run(stage, [State.FAILED_TERMINAL] * 9 + [State.SUCCEEDED] * 5)
    first, second = runs.failures(stage.connection, run, most=5, shown=2)
    assert (first.n, second.n) == (6, 3) and (first.error_class, second.error_class) == ("permanent", "permanent")
    assert re.fullmatch(r"file \d+ is unreadable", first.message) and second.message == "odd one"
    assert len(first.tasks) == len(second.tasks) == 2
    assert len(runs.failures(stage.connection, run, most=1, shown=2)) == 1
    cut_off = make_run(stage, [State.CANCELLED] * 9 + [State.FAILED_TERMINAL], cancelled_by="dependency_failed")
    causes = runs.failures(stage.connection, cut_off, most=5, shown=1)
    assert [(one.state, one.error_class, one.n) for one in causes] == [
        (State.FAILED_TERMINAL, "permanent", 1),
        (State.CANCELLED, "dependency_failed", 9),
    ]
    assert runs.failures(stage.connection, make_run(stage, [State.CANCELLED]), most=5, shown=2) == []
    assert runs.failures(stage.connection, make_run(stage, [State.SUCCEEDED]), most=5, shown=2) == []


def test_the_slowest_come_first_and_what_has_not_begun_took_no_time(stage: Stage) -> None:
    run = make_run(stage, [State.SUCCEEDED, State.QUEUED, State.RUNNING, State.CANCELLED])
    found = runs.slowest(stage.connection, run, most=2)
    assert [(one.state, one.ended_at is None) for one in found] == [(State.CANCELLED, False), (State.RUNNING, True)]
    assert found[0].began_at < found[1].began_at
    assert all(one.title and one.title.startswith("task ") for one in found)


def test_a_graph_names_what_each_node_waits_for_and_stops_at_the_most(stage: Stage) -> None:
    run = make_run(stage, [State.SUCCEEDED, State.RUNNING, State.QUEUED])
    with stage.connection.transaction():
        first, second, third = (
            row[0] for row in stage.connection.execute("SELECT id FROM task WHERE run_id = %s ORDER BY id", (run,))
        )
        stage.connection.execute(
            "INSERT INTO dependency (task_id, on_id, tenant_id) VALUES (%s, %s, %s), (%s, %s, %s)",
            (third, first, stage.tenant, third, second, stage.tenant),
        )
    nodes = runs.graph(stage.connection, run, most=3)
    assert nodes is not None
    assert [(node.id, node.depends_on, node.state) for node in nodes] == [
        (first, [], State.SUCCEEDED),
        (second, [], State.RUNNING),
        (third, [first, second], State.QUEUED),
    ]
    assert nodes[0].ended_at is not None and nodes[1].began_at is not None
    assert (nodes[1].ended_at, nodes[2].began_at) == (None, None)
    assert runs.graph(stage.connection, run, most=2) is None


def test_a_tenant_at_a_glance_is_what_its_rows_say(stage: Stage) -> None:
    states = [State.QUEUED] * 3 + [State.PAUSED] + [State.SUCCEEDED] * 4 + [State.FAILED_TERMINAL]
    make_run(stage, states)
    make_run(stage, [State.QUEUED] * 7, tenant=stage.add_tenant("other"))
    session = stage.add_session()
    stage.submit(n=2)
    for message in stage.tick():
        stage.claim(message, session)
    found = runs.now(stage.connection, stage.tenant)
    assert found.running == 2 and not found.more
    assert Counter(found.live) == {State.QUEUED: 3, State.PAUSED: 1, State.RUNNING: 2}
    assert Counter(found.ended) == {State.SUCCEEDED: 4, State.FAILED_TERMINAL: 1}


def test_the_newest_runs_say_how_far_they_are(stage: Stage) -> None:
    make_run(stage, [State.SUCCEEDED] * 3)
    make_run(stage, [State.QUEUED, State.FAILED_TERMINAL, State.CANCELLED])
    make_run(stage, [State.QUEUED], tenant=stage.add_tenant("other"))
    found = runs.recent(stage.connection, stage.tenant, most=5)
    assert [(one.name, one.size, one.looked, one.ended, one.failed) for one in found] == [
        ("night", 3, 3, 2, 1),
        ("night", 3, 3, 3, 0),
    ]
    assert len(runs.recent(stage.connection, stage.tenant, most=1)) == 1


def test_a_tenant_reads_nothing_of_anothers_run(stage: Stage) -> None:
    run = make_run(stage, [State.FAILED_TERMINAL, State.RUNNING])
    (parent,) = stage.submit()
    make_run(stage, [State.RUNNING], parent=parent)
    other = stage.add_tenant("other")
    with stage.open("web") as web:
        with queries.as_tenant(web, stage.tenant):
            assert runs.states(web, run)[0] == "fr" and runs.states_of_children(web, parent) == "r"
            assert len(runs.failures(web, run, most=5, shown=1)) == 1
            assert len(runs.slowest(web, run, most=5)) == 2 and len(runs.graph(web, run, most=5) or ()) == 2
            assert len(runs.recent(web, stage.tenant, most=5)) == 2 and runs.now(web, stage.tenant).live
        with queries.as_tenant(web, other):
            assert runs.states(web, run)[0] == "" == runs.states_of_children(web, parent)
            assert runs.failures(web, run, most=5, shown=1) == [] == runs.slowest(web, run, most=5)
            assert not runs.graph(web, run, most=5) and runs.recent(web, stage.tenant, most=5) == []
            assert runs.now(web, stage.tenant) == runs.Now(running=0, live={}, ended={}, more=False)


OF_A_TENANT: dict[str, dict[str, Any]] = {
    "runs/tenant_now": {"live": 2001, "newest": 5000},
    "runs/recent": {"most": 8, "counted": 500},
}


@pytest.mark.parametrize("name", OF_A_TENANT)
def test_what_the_start_page_reads_is_found_by_tenant_among_many_of_others(stage: Stage, name: str) -> None:
    other = stage.add_tenant("other")
    stage.submit(n=50)
    make_run(stage, [State.SUCCEEDED] * 20_000, tenant=other)
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("INSERT INTO run (tenant_id, size) SELECT %s, 1 FROM generate_series(1, 5000)", (other,))
        owner.execute("ANALYZE task, run")
    with stage.open("web") as web, queries.as_tenant(web, stage.tenant):
        rows = web.execute("EXPLAIN " + sql.load(name), OF_A_TENANT[name] | {"tenant": stage.tenant}).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert not re.search(r"Seq Scan on (task|run)\b", plan), plan
    for line in re.findall(r"Index.* Scan.* on (?:task|run)\b.*", plan):
        assert re.search(r"using (task_live|task_of_tenant|task_of_run|run_of_tenant)", line), plan


def test_uuids_in_a_message_do_not_make_another_cause(stage: Stage) -> None:
    run = make_run(stage, [State.FAILED_TERMINAL] * 2)
    for row in stage.connection.execute("SELECT id FROM task WHERE run_id = %s", (run,)).fetchall():
        stage.connection.execute(
            "UPDATE task_body SET error = jsonb_build_object('class', 'x', 'message', %s::text) WHERE task_id = %s",
            (f"no artifact {uuid.uuid4()} here", row[0]),
        )
    (cause,) = runs.failures(stage.connection, run, most=5, shown=1)
    assert cause.n == 2


def test_what_holds_a_run_is_told_with_what_binds_first_in_front(stage: Stage) -> None:
    run = make_run(stage, [State.QUEUED])
    for pool, code, over in (("db", "turn", False), ("llm", "tenant_cap", False), ("mcp", "paused", True)):
        stage.connection.execute(
            "INSERT INTO wait_reason "
            "(pool, priority, tenant_id, run_id, signature, code, subject, facts, before, since, until) "
            "VALUES (%s, 2, %s, %s, '', %s, '', '{\"limit\": 5}', '{}', now(), CASE WHEN %s THEN now() END)",
            (pool, stage.tenant, run, code, over),
        )
    assert [reason.code for reason, _ in runs.reasons(stage.connection, stage.tenant, run)] == ["tenant_cap", "turn"]
    assert [reason.code for reason, _ in runs.reasons(stage.connection, stage.tenant)] == ["tenant_cap", "turn"]
    assert runs.reasons(stage.connection, stage.tenant, run + 1) == []
    assert runs.reasons(stage.connection, stage.add_tenant("other")) == []

"""Sending many ended tasks again by the bulk verb: of a run, or the dead letters of a filter."""

import uuid

import pytest

from harness.engine import operate
from harness.engine.operate import Filter
from harness.policy.errors import Invalid
from harness.policy.lifecycle import State
from harness.store import ended, transitions
from tests.dead_letters import bury
from tests.stage import Stage


def test_the_bulk_verb_sends_the_ended_tasks_of_a_run_and_no_others(stage: Stage) -> None:
    public_id = uuid.uuid4()
    run = stage.one(
        "INSERT INTO run (public_id, tenant_id, size) VALUES (%s, %s, 3) RETURNING id", public_id, stage.tenant
    )
    dead, gone, live = stage.submit(n=3, run=run)
    bury(stage, [dead])
    transitions.cancel(stage.connection, gone, actor="test")
    bury(stage, outside := stage.submit())
    where = Filter(run=public_id)
    seen = operate.preview(stage.connection, "redrive", where, tenant=stage.tenant)
    assert seen.by_state == {"failed_terminal": 1, "cancelled": 1}
    with stage.open("web") as web:
        done = operate.bulk(web, "redrive", where, tenant=stage.tenant, actor="test", reason="again")
    assert (done.matched, done.done, done.already, done.refused) == (2, {"redriven": 2}, 0, {})
    assert {stage.state(task) for task in (dead, gone, live)} == {"queued"}
    assert stage.state(outside[0]) == "failed_terminal"


@pytest.mark.parametrize("by", ["tenant", "pool", "priority", "kind"])
def test_the_bulk_verb_sends_the_dead_letters_of_a_tenant_a_pool_a_priority_or_a_kind(stage: Stage, by: str) -> None:
    other = stage.add_tenant("other")
    named = {"tenant": stage.tenant, "pool": "db", "priority": 2, "kind": "noop.single"}[by]
    ours = bury(stage, stage.submit(n=450))
    if by == "tenant":
        outside = bury(stage, stage.submit(n=2, tenant=other))
    else:
        outside = bury(stage, stage.submit("noop.fault", n=2, pool="tool_read", priority=3))
    (gone,) = stage.submit()
    transitions.cancel(stage.connection, gone, actor="test")
    where = Filter(**{by: named})  # type: ignore[arg-type]  # of the parameters above
    seen = operate.preview(stage.connection, "redrive", where, tenant=None)
    assert (seen.matching, seen.by_state) == (450, {"failed_terminal": 450})
    done = operate.bulk(stage.connection, "redrive", where, tenant=None, actor="op", reason="up again")
    assert (done.matched, done.done, done.already, done.refused) == (450, {"redriven": 450}, 0, {})
    assert stage.one("SELECT count(*) FROM task WHERE id = ANY(%s) AND state = 'queued'", ours) == 450
    assert {stage.state(task) for task in outside} == {"failed_terminal"}
    assert stage.state(gone) == "cancelled", "cancelled ones go by run or tag"
    with pytest.raises(Invalid, match="run or tag alone") as refused:
        operate.bulk(stage.connection, "redrive", Filter(tenant=other, state=State.CANCELLED), tenant=None, actor="op")
    assert refused.value.field == "state"


def test_a_bulk_redrive_passes_over_what_somebody_has_locked_and_tells_of_it(stage: Stage) -> None:
    first, *rest = bury(stage, stage.submit(n=450))
    with stage.open() as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM task WHERE id = %s FOR UPDATE", (first,))
        done = operate.bulk(stage.connection, "redrive", Filter(pool="db"), tenant=None, actor="op")
        other.execute("ROLLBACK")
    assert (done.matched, done.done, done.next, done.stopped) == (450, {"redriven": 449}, None, "")
    assert done.refused == {"someone else has it locked; try again": 1} and done.already == 0
    assert stage.state(first) == "failed_terminal" and {stage.state(task) for task in rest} == {"queued"}
    left = operate.bulk(stage.connection, "redrive", Filter(pool="db"), tenant=None, actor="op")
    assert (left.matched, left.done) == (1, {"redriven": 1})


def test_a_bulk_redrive_stops_when_a_lock_stands_before_all_of_a_tenants_tasks(stage: Stage) -> None:
    tasks = bury(stage, stage.submit(n=3))
    with stage.open() as other:
        other.execute("BEGIN")
        ended.lock(other, stage.tenant)
        stage.connection.execute("SET lock_timeout = '20ms'")
        done = operate.bulk(stage.connection, "redrive", Filter(pool="db"), tenant=None, actor="op")
        other.execute("ROLLBACK")
    assert (done.matched, done.done) == (0, {}) and "locked" in done.stopped
    assert {stage.state(task) for task in tasks} == {"failed_terminal"}
    left = operate.bulk(stage.connection, "redrive", Filter(pool="db"), tenant=None, actor="op", after=done.next or 0)
    assert left.done == {"redriven": 3}


def test_ids_and_another_input_are_for_a_redrive_alone(stage: Stage) -> None:
    (task,) = stage.submit()
    with pytest.raises(ValueError, match="filter"):
        operate.bulk(stage.connection, "cancel", [[task]], tenant=stage.tenant, actor="test")
    with pytest.raises(Invalid, match="input"):
        operate.bulk(stage.connection, "cancel", Filter(pool="db"), tenant=stage.tenant, actor="test", input={})
    assert stage.events(task) == ["submit"]


def test_a_tenant_redrives_its_own_dead_letters_alone_by_priority(stage: Stage) -> None:
    theirs = bury(stage, stage.submit(n=2, tenant=stage.add_tenant("other")))
    bury(stage, stage.submit(n=3))
    with stage.open("web") as web:
        done = operate.bulk(web, "redrive", Filter(priority=2), tenant=stage.tenant, actor="test")
    assert done.done == {"redriven": 3}
    assert {stage.state(task) for task in theirs} == {"failed_terminal"}

"""The statement that sends ended tasks again: from two states only, behind the fence, and found by its indexes."""

import re

import psycopg
import pytest

from harness.policy.lifecycle import TABLE, Event, State
from harness.store import transitions
from harness.store.transitions import Again
from tests.stage import Stage
from tests.store.forced import into
from tests.store.plans import plan_of

INDEX_OF = {
    "bulk/dead_of_all": "task_dead_of_all",
    "bulk/dead_of_tenant": "task_dead",
    "letters/looked": "task_dead_of_all",
    "letters/looked_of_tenant": "task_dead",
    "letters/whole": "task_pkey",
    "ended/facts": "task_pkey",
    "transitions/redrive": "task_pkey",
}


def again(task: int, **more: object) -> Again:
    fields = {"task": task, "version": 1, "pool": "db", "signature": "", "start_by": None} | more
    return Again(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", list(State))
def test_only_what_failed_for_good_or_was_cancelled_is_sent_again(stage: Stage, state: State) -> None:
    (task,) = stage.submit()
    into(stage, task, state)
    before = stage.row(task)
    sent = transitions.redrive(stage.connection, [again(task)], actor="test")
    if state in TABLE[Event.REDRIVE].sources:
        assert sent == {task: 0} and stage.state(task) == "queued"
        assert stage.events(task) == ["submit", "redrive"]
    else:
        assert sent == {} and stage.row(task) == before and stage.events(task) == ["submit"]


def test_with_the_old_input_another_version_is_left_as_it_is(stage: Stage) -> None:
    (task,) = stage.submit()
    into(stage, task, State.FAILED_TERMINAL)
    assert transitions.redrive(stage.connection, [again(task, version=2)], actor="test") == {}
    assert transitions.redrive(stage.connection, [again(task, version=2, input="{}")], actor="test") == {task: 1}
    assert (stage.row(task)["version"], stage.row(task)["token_epoch"]) == (2, 1)


def test_the_fence_never_goes_back_so_a_worker_of_before_settles_nothing(stage: Stage) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    (claimed,) = stage.claim(message, session)
    into(stage, task, State.CANCELLED)  # as if taken back while its worker was away
    stage.connection.execute("DELETE FROM lease_member")
    stage.connection.execute("DELETE FROM lease")
    transitions.redrive(stage.connection, [again(task)], actor="test")
    assert stage.row(task)["release_no"] == claimed.release_no == 1
    (second,) = stage.tick()
    assert second.lease != message.lease and stage.row(task)["release_no"] == 2
    outcome = transitions.Outcome(task=task, release_no=1, event=Event.SUCCEED, slot_s=0.1)
    late = transitions.settle(
        stage.connection, [outcome], lease=message.lease, token=message.token, session=session, actor="late"
    )
    assert late == {} and stage.state(task) == "queued"
    with pytest.raises(psycopg.errors.CheckViolation):
        stage.connection.execute("UPDATE task SET release_no = 0 WHERE id = %s", (task,))


def test_role_web_writes_what_a_redrive_writes_and_no_other_part_of_a_body(stage: Stage) -> None:
    (task,) = stage.submit()
    into(stage, task, State.FAILED_TERMINAL)
    with stage.open("web") as web:
        assert transitions.redrive(web, [again(task)], actor="test") == {}, "no tenant set: no rows"
        web.execute("SELECT set_config('harness.tenant', %s, false)", (str(stage.tenant),))
        assert transitions.redrive(web, [again(task, input='{"tag": "b"}')], actor="test") == {task: 1}
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            web.execute("UPDATE task_body SET title = 'x'")
    assert stage.one("SELECT input ->> 'tag' FROM task_body WHERE task_id = %s", task) == "b"


def test_letters_and_redrives_are_found_by_their_indexes(stage: Stage) -> None:
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("ALTER TABLE task DISABLE TRIGGER USER")
        owner.execute(
            "INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready, finished_at) "
            "SELECT %s + i %% 7, 'noop.single', 1, 'db', 2, "
            "CASE WHEN i %% 10 = 0 THEN 'failed_terminal' ELSE 'succeeded' END, "
            "false, now() - i * interval '1 s' FROM generate_series(1, 20000) i",
            (stage.tenant,),
        )
        owner.execute("ALTER TABLE task ENABLE TRIGGER USER")
        owner.execute("ANALYZE task")
    for name, index in INDEX_OF.items():
        plan = plan_of(stage, name)
        assert re.search(rf"(using {index} on task|Bitmap Index Scan on {index})\b", plan), (name, plan)
        assert "Seq Scan on task" not in plan, (name, plan)


def test_claiming_a_task_is_still_an_update_without_index_entries(stage: Stage) -> None:
    session = stage.add_session()
    stage.submit(n=4)

    def hot() -> int:
        stage.connection.execute("SELECT pg_stat_force_next_flush()")
        return int(stage.one("SELECT pg_stat_get_tuples_hot_updated('task'::regclass)"))

    messages = stage.tick()
    before = hot()
    assert sum(len(stage.claim(message, session)) for message in messages) == 4
    assert hot() - before == 4

"""Children: each made once, waited for without a slot, gathered in order; they don't outlive their parent."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from harness.engine import ends, execute, why
from harness.engine.operate import redrive
from harness.engine.process import ProcessState
from harness.kinds import Child, Children, Context, Permanent, Transient, kind
from harness.policy import verbs
from harness.policy.verbs import Asked
from harness.store import children as stored_children
from harness.store import housekeeping, queries, transitions
from harness.store import steps as stored_steps
from harness.store.database import Connection
from harness.store.transitions import By, NewTask
from tests.stage import Stage

script: list[Callable[[Context], Any]] = []  # what the parent does, an attempt each; the last one from then on


class Number(BaseModel):
    """A payload; below 0 it fails, `n` 1000 and more make grandchildren."""

    n: int = 0


@kind("test.parent", pool="db", input=Number)
def parent(ctx: Context, payload: Number) -> Any:
    return (script.pop(0) if len(script) > 1 else script[0])(ctx)


@kind("test.child", pool="db", input=Number, max_attempts=1)
def child(ctx: Context, payload: Number) -> Any:
    if payload.n < 0:
        raise Permanent(f"{payload.n} is below 0")
    if payload.n >= 1000:
        ctx.spawn("test.child", [{"n": at} for at in range(payload.n // 1000)])
        return sum(one.output for one in ctx.gather())
    return payload.n * 10


@pytest.fixture(autouse=True)
def fresh() -> None:
    script.clear()


@pytest.fixture
def process(stage: Stage) -> Iterator[ProcessState]:
    with stage.process(stage.add_session(), connections=4) as process:
        yield process


def once(stage: Stage, process: ProcessState) -> int:
    """Release and run what is ready, once. Returns how much that was."""
    messages = list(stage.tick())
    for message in messages:
        execute.run_lease(process, message.lease, message.token)
    return len(messages)


def through(stage: Stage, process: ProcessState) -> None:
    """Tick and run until two ticks in a row find nothing: the first may have let a parent go on."""
    idle = 0
    while idle < 2:
        idle = 0 if once(stage, process) else idle + 1


def children_of(stage: Stage, task: int) -> list[int]:
    cursor = stage.connection.execute("SELECT id FROM task WHERE parent_id = %s ORDER BY id", (task,))
    return [row[0] for row in cursor]


def output(stage: Stage, task: int) -> Any:
    return stage.one("SELECT output FROM task_body WHERE task_id = %s", task)


def error(stage: Stage, task: int) -> Any:
    return stage.one("SELECT error FROM task_body WHERE task_id = %s", task)


def told(children: list[Child]) -> list[Any]:
    return [one.output if one.succeeded else one.state for one in children]


def spawn_and_gather(ctx: Context) -> Any:
    ctx.spawn("test.child", [{"n": n} for n in (3, 1, 2)])
    return told(ctx.gather())


def test_a_parent_parks_without_a_slot_and_goes_on_with_its_childrens_results_in_order(
    stage: Stage, process: ProcessState
) -> None:
    script[:] = [spawn_and_gather]
    (task,) = stage.submit("test.parent")
    assert once(stage, process) == 1
    row = stage.row(task)
    assert (row["state"], row["holds"], row["ready"]) == ("paused", ["children"], False)
    assert stage.one("SELECT count(*) FROM lease") == 0, "it holds no slot"
    made = children_of(stage, task)
    assert len(made) == 3
    rows = [stage.row(one) for one in made]
    assert {row["tenant_id"] for row in rows} == {stage.tenant}
    (run,) = {row["run_id"] for row in rows}
    assert stage.one("SELECT name FROM run WHERE id = %s", run).startswith("spawned by test.parent")
    through(stage, process)
    assert stage.state(task) == "succeeded"
    assert output(stage, task) == [30, 10, 20]
    began, ended = "step_started", "step_finished"
    assert stage.events(task) == [
        "submit", "claim", began, ended, began, "park", "unpark", "claim", "steps_replayed", began, ended, "succeed",
    ]  # fmt: skip
    assert stage.row(task)["attempts_used"] == 0
    assert children_of(stage, task) == made
    assert stage.one("SELECT count(*) FROM notice") == 0 and stage.one("SELECT count(*) FROM gathering") == 0


def test_children_are_made_once_whatever_ends_the_attempt_after_them(stage: Stage, process: ProcessState) -> None:
    def dies(ctx: Context) -> Any:
        ctx.spawn("test.child", [{"n": 1}, {"n": 2}])
        raise Transient("gone before it gathered")

    script[:] = [dies, spawn_of_two]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    made = children_of(stage, task)
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE not_before IS NOT NULL")
    transitions.wake_due(stage.connection, actor="sweep")
    through(stage, process)
    assert children_of(stage, task) == made and len(made) == 2
    assert output(stage, task) == [10, 20]


def spawn_of_two(ctx: Context) -> Any:
    return told(ctx.gather(ctx.spawn("test.child", [{"n": 1}, {"n": 2}])))


def test_a_spawn_whose_worker_was_replaced_makes_nothing(stage: Stage, process: ProcessState) -> None:
    def taken_over(ctx: Context) -> Any:
        stage.connection.execute("UPDATE worker_session SET ended_at = clock_timestamp()")
        assert transitions.lose(stage.connection, max_attempts={}, retry_delay_s=1, actor="sweep")
        return ctx.spawn("test.child", [{"n": 1}])

    script[:] = [taken_over]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    assert children_of(stage, task) == []
    assert stage.one("SELECT count(*) FROM run WHERE id <> 0") == 0


def test_a_commit_of_a_spawn_whose_answer_was_lost_is_not_made_again(
    stage: Stage, process: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([True])
    real = stored_steps.finish

    def finish(connection: Connection, some: Any, *, actor: str) -> list[bool]:
        if next(answers, False) and some[0].ordinal == 1:
            # As if the connection broke between the commit and its answer: it is committed by another one.
            with stage.open() as other, other.transaction():
                ids = transitions.submit(
                    other, [new_child(5)], tenant=stage.tenant, run=0, parent=some[0].task, actor="lost"
                )
                assert real(other, [replace(some[0], result=f"[[{ids[0]}, 1]]")], actor=actor) == [True]
            raise psycopg.OperationalError("the answer was lost")
        return real(connection, some, actor=actor)

    monkeypatch.setattr(stored_steps, "finish", finish)
    script[:] = [lambda ctx: told(ctx.gather(ctx.spawn("test.child", [{"n": 5}])))]
    (task,) = stage.submit("test.parent")
    through(stage, process)
    assert output(stage, task) == [50] and len(children_of(stage, task)) == 1


def new_child(n: int) -> NewTask:
    return NewTask(
        kind="test.child", version=1, pool="db", priority=2, signature="", input=f'{{"n": {n}}}', public_id=uuid.uuid4()
    )


def test_a_gather_tells_who_failed_and_fails_with_them_when_that_is_wanted(stage: Stage, process: ProcessState) -> None:
    def returns(ctx: Context) -> Any:
        ctx.spawn("test.child", [{"n": -1}, {"n": 4}])
        bad, good = ctx.gather()
        assert bad.ended and not bad.succeeded and bad.error is not None and good.kind == "test.child"
        return [bad.state, bad.error["class"], bad.error["message"], good.output]

    script[:] = [returns]
    (task,) = stage.submit("test.parent")
    through(stage, process)
    assert output(stage, task) == ["failed_terminal", "validation", "-1 is below 0", 40]

    script[:] = [lambda ctx: ctx.gather(ctx.spawn("test.child", [{"n": 4}, {"n": -1}]), on_failure="fail")]
    (task,) = stage.submit("test.parent")
    through(stage, process)
    assert stage.state(task) == "failed_terminal"
    assert "1 of 2 children didn't succeed; the first, number 1, task " in error(stage, task)["message"]
    assert error(stage, task)["message"].endswith(": -1 is below 0")


def test_any_goes_on_with_the_first_that_succeeds_and_the_others_are_cancelled_with_their_parents_end(
    stage: Stage, process: ProcessState
) -> None:
    script[:] = [lambda ctx: told(ctx.gather(ctx.spawn("test.child", [{"n": n} for n in (-1, 7, 8)]), policy="any"))]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    failing, working, other = children_of(stage, task)
    stage.connection.execute("UPDATE task SET ready = false, not_before = 'infinity' WHERE id = %s", (other,))
    through(stage, process)
    assert output(stage, task) == ["failed_terminal", 70, "queued"]
    assert stage.state(failing) == "failed_terminal" and stage.state(working) == "succeeded"
    assert ends.carry(stage.connection, actor="sweep") == 1
    assert stage.state(other) == "cancelled"
    public_id = stage.row(task)["public_id"]
    reason = f"the task that spawned it, {public_id}, has ended (succeeded)"
    assert error(stage, other) == {"class": "parent_ended", "message": reason}
    assert stage.one("SELECT data ->> 'reason' FROM event WHERE task_id = %s AND event = 'cancel'", other) == reason
    assert stage.one("SELECT count(*) FROM notice WHERE down") == 0


def test_a_number_waits_for_so_many_and_what_it_returned_stays_though_the_others_went_on(
    stage: Stage, process: ProcessState
) -> None:
    def twice(ctx: Context) -> Any:
        batch = ctx.spawn("test.child", [{"n": n} for n in (1, 2, 3)])
        two = ctx.gather(batch, policy=2)
        return [told(two), told(ctx.gather(batch))]

    script[:] = [twice]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    late = children_of(stage, task)[2]
    stage.connection.execute("UPDATE task SET ready = false, not_before = 'infinity' WHERE id = %s", (late,))
    through(stage, process)
    assert stage.row(task)["holds"] == ["children"], "the second gather waits"
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (late,))
    transitions.wake_due(stage.connection, actor="sweep")
    through(stage, process)
    assert output(stage, task) == [[10, 20, "queued"], [10, 20, 30]]


def test_a_later_attempt_that_comes_to_its_spawns_in_another_order_gathers_the_same(
    stage: Stage, process: ProcessState
) -> None:
    seen: list[list[Any]] = []

    def gathers(order: str, *, then: Exception | None = None) -> Callable[[Context], Any]:
        def does(ctx: Context) -> Any:
            for key in order:  # as threads of its own might
                ctx.spawn("test.child", [{"n": {"a": 1, "b": -1}[key]}], key=key)
            seen.append([(one.succeeded, one.output) for one in ctx.gather()])
            if then is not None:
                raise then

        return does

    script[:] = [gathers("ab"), gathers("ba", then=Transient("later", retry_after_s=0)), gathers("ab")]
    (task,) = stage.submit("test.parent")
    through(stage, process)
    transitions.wake_due(stage.connection, actor="sweep")
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (task,))
    transitions.wake_due(stage.connection, actor="sweep")
    through(stage, process)
    assert stage.state(task) == "succeeded"
    assert seen == [[(True, 10), (False, None)]] * 2


def test_a_gather_of_nothing_returns_nothing_at_once(stage: Stage, process: ProcessState) -> None:
    script[:] = [lambda ctx: [ctx.gather(), len(ctx.spawn("test.child", [])), ctx.gather(policy="any")]]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    assert output(stage, task) == [[], 0, []]


def test_children_have_children_and_all_of_one_family_count_under_one_run(stage: Stage, process: ProcessState) -> None:
    script[:] = [lambda ctx: told(ctx.gather(ctx.spawn("test.child", [{"n": 3000}, {"n": 2}])))]
    (task,) = stage.submit("test.parent")
    through(stage, process)
    assert output(stage, task) == [30, 20]
    runs = stage.connection.execute("SELECT run_id, count(*) FROM task WHERE run_id <> 0 GROUP BY run_id").fetchall()
    assert [n for _, n in runs] == [5], "two children and three of the first one's"


@pytest.mark.parametrize(
    ("spawn", "message"),
    [
        (lambda ctx: ctx.spawn("test.nobody", [{}]), "spawn: payloads[0].kind: there is no kind 'test.nobody'"),
        (lambda ctx: ctx.spawn("test.child", [{"n": 1}, {"n": "x"}]), "spawn: payloads[1].input.n: "),
        (
            lambda ctx: ctx.spawn("test.child", [{}], priority=1),
            "spawn: priority: must be from 2, this task's own, to 3",
        ),
        (lambda ctx: ctx.spawn("test.child", [{}] * 10_001), "a run may have 10,000: give each more to do"),
        (
            lambda ctx: ctx.gather(ctx.spawn("test.child", [{}]), policy=2),
            "gather: policy: must be 'all', 'any' or a num",
        ),
        (lambda ctx: ctx.gather(on_failure="ignore"), "gather: on_failure: must be 'return' or 'fail', not 'ignore'"),
        (
            lambda ctx: ctx.gather(Children(kind="test.child", ranges=((1, 1),))),
            "gather: batches: 1 of 1 aren't children of this task",
        ),
    ],
)
def test_what_cannot_be_spawned_or_gathered_is_refused_naming_the_field(
    stage: Stage, process: ProcessState, spawn: Callable[[Context], Any], message: str
) -> None:
    script[:] = [spawn]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    assert stage.state(task) == "failed_terminal"
    assert message in error(stage, task)["message"]


def test_a_child_of_another_task_or_tenant_is_not_gathered(stage: Stage, process: ProcessState) -> None:
    script[:] = [lambda ctx: len(ctx.spawn("test.child", [{"n": 1}]))]
    (other,) = stage.submit("test.parent", tenant=stage.add_tenant("rival"))
    once(stage, process)
    (foreign,) = children_of(stage, other)
    assert stage.row(foreign)["tenant_id"] == stage.row(other)["tenant_id"]
    script[:] = [lambda ctx: told(ctx.gather(Children(kind="test.child", ranges=((foreign, 1),))))]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    assert "1 of 1 aren't children of this task" in error(stage, task)["message"]


def test_a_cancelled_parent_takes_its_family_along_and_who_runs_is_asked_to_stop(
    stage: Stage, process: ProcessState
) -> None:
    script[:] = [lambda ctx: told(ctx.gather(ctx.spawn("test.child", [{"n": 3000}, {"n": 2}, {"n": 3}])))]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    nested, waiting, running = children_of(stage, task)
    stage.connection.execute("UPDATE task SET ready = false, not_before = 'infinity' WHERE id = %s", (waiting,))
    stage.connection.execute("UPDATE task SET ready = false, not_before = 'infinity' WHERE id = %s", (running,))
    once(stage, process)  # the first one spawns, and parks
    stage.connection.execute("UPDATE task SET ready = true, not_before = NULL WHERE id = %s", (running,))
    below = children_of(stage, nested)
    stage.connection.execute("UPDATE task SET ready = false, not_before = 'infinity' WHERE id = ANY(%s)", (below,))
    session = stage.add_session()
    (message,) = stage.tick()
    (claimed,) = stage.claim(message, session)
    assert claimed.id == running

    done = transitions.cancel(stage.connection, task, actor="jo", reason="not needed")
    assert done == "cancelled" and stage.row(task)["holds"] == []
    ends.carry(stage.connection, actor="sweep")
    assert [stage.state(one) for one in (nested, waiting, *below)] == ["cancelled"] * 5
    assert stage.row(running)["want"] == "cancel"
    assert stage.one("SELECT count(*) FROM notice WHERE down") == 0
    assert ends.carry(stage.connection, actor="sweep") == 0


def test_a_child_that_somebody_has_locked_is_cancelled_the_next_time(stage: Stage, process: ProcessState) -> None:
    script[:] = [spawn_of_two]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    first, second = children_of(stage, task)
    transitions.cancel(stage.connection, task, actor="jo")
    with stage.open() as other, other.transaction():
        other.execute("SELECT FROM task WHERE id = %s FOR UPDATE", (first,))
        assert ends.carry(stage.connection, actor="sweep") == 1
    assert [stage.state(first), stage.state(second)] == ["queued", "cancelled"]
    assert ends.carry(stage.connection, actor="sweep") == 1
    assert stage.state(first) == "cancelled"


def test_a_paused_parent_keeps_its_hold_when_its_children_end_and_goes_on_when_it_is_resumed(
    stage: Stage, process: ProcessState
) -> None:
    script[:] = [spawn_of_two]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    by = By(actor="jo")

    def verb(decide: verbs.Decide, hold: str) -> str:
        return transitions.act(stage.connection, [task], decide, Asked(hold=hold), by)[task].outcome

    assert verb(verbs.resume, "tenant") == "refused", "nobody lifts what it waits for"
    assert verb(verbs.pause, "tenant") == "paused"
    through(stage, process)
    assert stage.row(task)["holds"] == ["tenant"] and stage.events(task)[-1] == "unpark"
    assert verb(verbs.resume, "tenant") == "resumed"
    through(stage, process)
    assert output(stage, task) == [10, 20]


def test_a_parent_resumed_while_its_children_work_goes_on_waiting(stage: Stage, process: ProcessState) -> None:
    script[:] = [spawn_of_two]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    for decide, left in ((verbs.pause, ["children", "operator"]), (verbs.resume, ["children"])):
        transitions.act(stage.connection, [task], decide, Asked(), By(actor="jo"))
        assert stage.row(task)["holds"] == left
    through(stage, process)
    assert output(stage, task) == [10, 20]


def test_a_kind_that_swallows_its_parking_parks_all_the_same(stage: Stage, process: ProcessState) -> None:
    def stubborn(ctx: Context) -> Any:
        ctx.spawn("test.child", [{"n": 1}])
        try:
            return told(ctx.gather())
        except BaseException:  # noqa: BLE001  # what this is about
            return "went on"

    script[:] = [stubborn]
    (task,) = stage.submit("test.parent")
    through(stage, process)
    assert output(stage, task) == [10]


def test_a_notice_of_a_parent_that_somebody_has_locked_is_kept(stage: Stage, process: ProcessState) -> None:
    script[:] = [spawn_of_two]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    once(stage, process)  # its children
    with stage.open() as other, other.transaction():
        other.execute("SELECT FROM task WHERE id = %s FOR UPDATE", (task,))
        assert transitions.rouse(stage.connection, actor="dispatcher") == (0, 0)
    assert stage.one("SELECT count(*) FROM notice") > 0
    assert transitions.rouse(stage.connection, actor="dispatcher") == (1, 1)


def test_children_that_end_before_their_parent_parks_do_not_leave_it_parked(
    stage: Stage, process: ProcessState
) -> None:
    def slow(ctx: Context) -> Any:
        batch = ctx.spawn("test.child", [{"n": 1}])
        if not stage.one("SELECT count(*) FROM task WHERE kind = 'test.child' AND finished_at IS NOT NULL"):
            # What ends the child comes between this attempt's look and its parking.
            real = stored_children.wait

            def wait(*args: Any, **more: Any) -> bool:
                noted = real(*args, **more)
                for message in list(stage.tick()):
                    execute.run_lease(process, message.lease, message.token)
                stage.tick()  # reads the notice, finds the parent running, and drops it
                return noted

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(stored_children, "wait", wait)
                return told(ctx.gather(batch))
        return told(ctx.gather(batch))

    script[:] = [slow]
    (task,) = stage.submit("test.parent")
    through(stage, process)
    assert output(stage, task) == [10]


def test_why_and_the_door_say_how_many_children_a_parent_waits_for(stage: Stage, process: ProcessState) -> None:
    script[:] = [lambda ctx: told(ctx.gather(ctx.spawn("test.child", [{"n": n} for n in range(12)])))]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    view = queries.task(stage.connection, stage.row(task)["public_id"])
    assert view is not None
    (bound,) = why.why(stage.connection, view).bound
    assert bound.told.words == "It is waiting for 12 children, and holds no slot meanwhile."
    assert "aused" not in bound.told.words + bound.told.frees
    through(stage, process)
    view = queries.task(stage.connection, stage.row(task)["public_id"])
    assert view is not None
    assert "children" in {one.code for one in why.why(stage.connection, view).spent}


def test_a_child_stays_as_long_as_its_parent(stage: Stage, process: ProcessState) -> None:
    script[:] = [spawn_of_two]
    (task,) = stage.submit("test.parent")
    through(stage, process)
    later = datetime.now(UTC) + timedelta(days=1)

    def old() -> list[int]:
        return housekeeping.old_tasks(stage.connection, before=later, dead_before=later, after=0)[0]

    assert old() == [task]
    with psycopg.connect(stage.url, autocommit=True) as owner:
        housekeeping.delete_tasks(owner, old())
        assert old() == children_of(stage, task)


def test_parents_that_wait_hold_no_slot_and_their_tick_reads_nothing_of_their_children(
    stage: Stage, process: ProcessState
) -> None:
    script[:] = [spawn_of_two]
    tasks = stage.submit("test.parent", n=3)
    once(stage, process)
    assert {stage.state(task) for task in tasks} == {"paused"}
    assert stage.one("SELECT count(*) FROM lease") == 0
    stage.connection.execute("UPDATE task SET ready = false, not_before = 'infinity' WHERE parent_id IS NOT NULL")
    stage.tick()  # takes the notices of their own parking
    stage.tick()
    assert stage.one("SELECT count(*) FROM notice") == 0 and not stage.memory.notices


def test_a_parent_sent_again_sends_its_children_again_that_were_cancelled_with_it(
    stage: Stage, process: ProcessState
) -> None:
    script[:] = [spawn_of_two]
    (task,) = stage.submit("test.parent")
    once(stage, process)
    made = children_of(stage, task)
    transitions.cancel(stage.connection, task, actor="jo")
    ends.carry(stage.connection, actor="sweep")
    assert [stage.state(one) for one in made] == ["cancelled", "cancelled"]
    redrive.redrive(stage.connection, stage.row(task)["public_id"], tenant=None, actor="jo")
    through(stage, process)
    assert output(stage, task) == [10, 20] and children_of(stage, task) == made
    assert stage.events(made[0]) == ["submit", "cancel", "redrive", "claim", "succeed"]

"""Children: each made once, waited for without a slot, gathered in order; they don't outlive their parent."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from harness.engine import execute
from harness.engine.process import ProcessState
from harness.kinds import Child, Context, Permanent, kind
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

"""Runs as graphs: a node gets in line when those that it depends on have succeeded; one that fails cancels it."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from harness.engine import ends, execute, submit, why
from harness.engine.operate import redrive
from harness.engine.process import ProcessState
from harness.engine.submit import Accepted, Door, RunRequest, TaskRequest
from harness.kinds import Context, Permanent, kind
from harness.policy import verbs
from harness.policy.errors import Invalid
from harness.policy.verbs import Asked
from harness.store import queries, transitions
from harness.store.database import Connection
from harness.store.transitions import By
from tests.stage import Stage

order: list[str] = []  # in which nodes ran
broken: set[str] = set()  # those that fail


class Named(BaseModel):
    """A payload."""

    name: str


@kind("test.node", pool="db", input=Named)
def node(ctx: Context, payload: Named) -> None:
    order.append(payload.name)
    if payload.name in broken:
        raise Permanent(f"{payload.name} is broken")


@pytest.fixture(autouse=True)
def fresh() -> None:
    order.clear()
    broken.clear()


@pytest.fixture
def process(stage: Stage) -> Iterator[ProcessState]:
    with stage.process(stage.add_session(), connections=4) as process:
        yield process


@pytest.fixture
def web(stage: Stage) -> Iterator[Connection]:
    with stage.open("web") as connection:
        yield connection


def nodes(graph: dict[str, list[str | int]], **more: Any) -> list[TaskRequest]:
    return [
        TaskRequest(kind="test.node", input={"name": name}, name=name, depends_on=ons, **more)
        for name, ons in graph.items()
    ]


def send(stage: Stage, web: Connection, graph: dict[str, list[str | int]], **more: Any) -> dict[str, int]:
    """Submit a graph. Returns its tasks by name."""
    accepted = submit_of(stage, web, RunRequest(nodes=nodes(graph, **more)))
    by_public: dict[uuid.UUID, int] = dict(stage.connection.execute("SELECT public_id, id FROM task").fetchall())
    return {name: by_public[public] for name, public in zip(graph, accepted.task_ids, strict=True)}


def submit_of(stage: Stage, web: Connection, run: RunRequest) -> Accepted:
    tenant = queries.tenant_facts(stage.connection, stage.tenant)
    assert tenant is not None
    return submit.submit_run(Door(body_max_bytes=10_000), web, tenant, run, actor="test")


def through(stage: Stage, process: ProcessState) -> None:
    idle = 0
    while idle < 2:
        messages = list(stage.tick())
        for message in messages:
            execute.run_lease(process, message.lease, message.token)
        idle = 0 if messages else idle + 1


DIAMOND: dict[str, list[str | int]] = {"last": ["left", 2], "left": ["first"], "right": ["first"], "first": []}


def test_nodes_run_in_the_order_of_their_dependencies_whatever_the_order_they_stand_in(
    stage: Stage, web: Connection, process: ProcessState
) -> None:
    tasks = send(stage, web, DIAMOND)
    assert {name for name, task in tasks.items() if stage.row(task)["ready"]} == {"first"}
    through(stage, process)
    assert order[0] == "first" and order[-1] == "last" and sorted(order) == sorted(DIAMOND)
    assert {stage.state(task) for task in tasks.values()} == {"succeeded"}
    assert stage.events(tasks["left"]) == ["submit", "ripen", "claim", "succeed"]
    assert stage.row(tasks["left"])["start_by"] is None and stage.one("SELECT count(*) FROM notice") == 0


def test_a_node_that_fails_cancels_what_depends_on_it_with_the_reason_and_nothing_else(
    stage: Stage, web: Connection, process: ProcessState
) -> None:
    broken.add("left")
    tasks = send(stage, web, DIAMOND | {"after": ["last"]})
    through(stage, process)
    assert ends.carry(stage.connection, actor="sweep") == 2
    assert [stage.state(tasks[name]) for name in ("left", "right", "last", "after")] == [
        "failed_terminal", "succeeded", "cancelled", "cancelled",
    ]  # fmt: skip
    failed, last = (stage.row(tasks[name])["public_id"] for name in ("left", "last"))
    error = "SELECT error FROM task_body WHERE task_id = %s"
    reason = f"it depends on task {failed}, which is failed_terminal: left is broken"
    assert stage.one(error, tasks["last"]) == {"class": "dependency_failed", "message": reason}
    assert stage.one(error, tasks["after"])["message"] == f"it depends on task {last}, which is cancelled: {reason}"
    assert "last" not in order and stage.one("SELECT count(*) FROM notice WHERE down") == 0


def test_at_the_end_of_a_long_chain_the_reason_tells_where_it_broke_and_not_the_whole_way(
    stage: Stage, web: Connection, process: ProcessState
) -> None:
    broken.add("n0")
    tasks = send(stage, web, {"n0": []} | {f"n{at}": [f"n{at - 1}"] for at in range(1, 30)})
    through(stage, process)
    while ends.carry(stage.connection, actor="sweep"):
        pass
    first, before = (stage.row(tasks[name])["public_id"] for name in ("n0", "n28"))
    reason = f"it depends on task {before}, which is cancelled: it depends on task {first}, which is failed_terminal: "
    found = stage.one("SELECT error FROM task_body WHERE task_id = %s", tasks["n29"])
    assert found["message"] == f"{reason}n0 is broken"


def test_a_node_with_a_time_of_its_own_waits_for_both(stage: Stage, web: Connection, process: ProcessState) -> None:
    tasks = send(stage, web, {"first": [], "then": ["first"]})
    then = tasks["then"]
    stage.connection.execute(
        "UPDATE task SET not_before = clock_timestamp() + '1 hour'::interval WHERE id = %s", (then,)
    )
    through(stage, process)
    assert order == ["first"] and not stage.row(then)["ready"] and not stage.row(then)["depends"]
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (then,))
    assert transitions.wake_due(stage.connection, actor="sweep") == 1
    through(stage, process)
    assert order == ["first", "then"]


def test_a_time_that_comes_first_does_not_let_a_node_in_before_what_it_depends_on(
    stage: Stage, web: Connection, process: ProcessState
) -> None:
    tasks = send(stage, web, {"first": [], "then": ["first"]})
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (tasks["then"],))
    transitions.wake_due(stage.connection, actor="sweep")
    row = stage.row(tasks["then"])
    assert (row["ready"], row["not_before"], row["depends"]) == (False, None, True)
    through(stage, process)
    assert order == ["first", "then"]


def test_a_paused_node_stays_paused_when_what_it_depends_on_has_succeeded_and_one_resumed_early_waits_on(
    stage: Stage, web: Connection, process: ProcessState
) -> None:
    tasks = send(stage, web, {"first": [], "held": ["first"], "early": ["first"]})
    by = By(actor="jo")
    pair = [tasks["held"], tasks["early"]]
    transitions.act(stage.connection, pair, verbs.pause, Asked(), by)
    transitions.act(stage.connection, [tasks["early"]], verbs.resume, Asked(), by)
    assert not stage.row(tasks["early"])["ready"]
    through(stage, process)
    assert order == ["first", "early"] and stage.state(tasks["held"]) == "paused"
    transitions.act(stage.connection, [tasks["held"]], verbs.resume, Asked(), by)
    through(stage, process)
    assert order == ["first", "early", "held"]


def test_a_redriven_node_waits_for_what_it_depends_on_to_be_redriven_too(
    stage: Stage, web: Connection, process: ProcessState
) -> None:
    broken.add("first")
    tasks = send(stage, web, {"first": [], "then": ["first"]})
    through(stage, process)
    ends.carry(stage.connection, actor="sweep")
    broken.clear()
    for name in ("then", "first"):
        done = redrive.redrive(stage.connection, stage.row(tasks[name])["public_id"], tenant=None, actor="jo")
        assert done.outcome == "redriven"
        if name == "then":
            assert not stage.row(tasks[name])["ready"]
            view = queries.task(stage.connection, stage.row(tasks[name])["public_id"])
            assert view is not None
            (bound,) = why.why(stage.connection, view).bound
            assert bound.told.words == (
                "It is waiting for what it depends on: 1 task of its run, 1 of which ended without success."
            )
    order.clear()
    through(stage, process)
    assert order == ["first", "then"]


def test_a_waiting_node_says_what_for_and_for_how_long_it_did(
    stage: Stage, web: Connection, process: ProcessState
) -> None:
    tasks = send(stage, web, DIAMOND)
    view = queries.task(stage.connection, stage.row(tasks["last"])["public_id"])
    assert view is not None and view.depends
    (bound,) = why.why(stage.connection, view).bound
    assert bound.told.words == "It is waiting for what it depends on: 2 tasks of its run."
    through(stage, process)
    view = queries.task(stage.connection, stage.row(tasks["last"])["public_id"])
    assert view is not None
    assert {"dependencies"} <= {one.code for one in why.why(stage.connection, view).spent}


def test_a_circle_is_refused_with_its_nodes_and_nothing_is_stored(stage: Stage, web: Connection) -> None:
    with pytest.raises(
        Invalid, match=r"nodes\[0\]\.depends_on: these nodes wait for each other: a -> b -> a"
    ) as refused:
        send(stage, web, {"a": ["b"], "b": ["a"], "c": []})
    assert refused.value.field == "nodes[0].depends_on"
    assert stage.one("SELECT count(*) FROM task") == 0


def test_another_graph_of_the_same_nodes_is_another_request(stage: Stage, web: Connection) -> None:
    one, other = nodes({"a": [], "b": ["a"]}), nodes({"a": [], "b": []})
    assert one[1].fields() != other[1].fields()
    assert replace(other[1], name="").fields().keys() == TaskRequest(kind="noop", input={"name": "b"}).fields().keys()


def test_a_node_whose_deadline_passes_before_its_turn_expires_and_takes_along_what_depends_on_it(
    stage: Stage, web: Connection, process: ProcessState
) -> None:
    tasks = send(stage, web, {"first": [], "then": ["first"], "after": ["then"]})
    stage.connection.execute("UPDATE task SET deadline = clock_timestamp() WHERE id = %s", (tasks["then"],))
    assert transitions.expire_due(stage.connection, actor="sweep") == 1
    assert ends.carry(stage.connection, actor="sweep") == 1
    through(stage, process)
    states = [stage.state(task) for task in tasks.values()]
    assert states == ["succeeded", "failed_terminal", "cancelled"] and order == ["first"]

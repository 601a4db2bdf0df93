"""What a running task does when people want it to stop: on threads, in prefork children, and in a silent call."""

import statistics
from pathlib import Path

import pytest

from harness.policy import verbs
from harness.policy.verbs import Asked
from harness.store import transitions
from tests.worker.conftest import Floor, eventually

BY = transitions.By(actor="tenant", reason="changed my mind")
TENANT = Asked(hold="tenant")
SECONDS = (
    "SELECT extract(epoch FROM b.at - a.at)::float FROM event a JOIN event b USING (task_id) "
    "WHERE a.event = 'wish' AND b.event = ANY(%s) AND task_id = ANY(%s)"
)


def running(floor: Floor, n: int, *, kind: str = "test.blocked", **payload: object) -> list[int]:
    tasks = [floor.run_task(kind, payload) for _ in range(n)]
    floor.wait_for("running", *tasks)
    return tasks


def test_a_silent_call_is_left_within_a_second_and_its_slot_is_held_until_it_returns(floor: Floor) -> None:
    """40 tries, from the wish to the state that it leads to, by the database's clock."""
    worker = floor.start("tool_read")
    session = floor.session(worker)
    assert session is not None
    slots = session["pools"]["tool_read"]
    took_s: list[float] = []
    while len(took_s) < 40:
        tasks = running(floor, min(slots, 10), silent_s=4)
        done = transitions.act(floor.db, tasks, verbs.cancel, TENANT, BY)
        assert {decision.outcome for decision in done.values()} == {"wished"}
        floor.wait_for("cancelled", *tasks, within_s=4)
        took_s += [row[0] for row in floor.db.execute(SECONDS, (["abort"], tasks))]
        row = floor.db.execute("SELECT count(*) FROM lease WHERE zombie_since IS NOT NULL").fetchone()
        assert row == (len(tasks),), "the calls go on, and count"
        eventually(lambda: floor.leases() == 0)
        assert worker.process.poll() is None, worker.text
    p95_s = statistics.quantiles(took_s, n=20)[-1]

    assert p95_s <= 1.0, f"p50 {statistics.median(took_s):.2f} s, p95 {p95_s:.2f} s of {len(took_s)}"


@pytest.mark.parametrize(("kind", "pool"), [("test.polling", "tool_read"), ("child.polling", "ingest")])
def test_a_task_that_asks_whether_it_is_cancelled_is_told_so_within_a_second(
    floor: Floor, kind: str, pool: str
) -> None:
    """20 wishes, to cancel and to pause in turn, from the wish to the state, by the database's clock."""
    worker = floor.start(pool)
    session = floor.session(worker)
    assert session is not None
    took_s: list[float] = []
    for verb, state, event in [(verbs.cancel, "cancelled", "abort"), (verbs.pause, "paused", "halt")] * 10:
        tasks = running(floor, min(session["pools"][pool], 2), kind=kind, polls_s=60)
        done = transitions.act(floor.db, tasks, verb, TENANT, BY)
        assert {decision.outcome for decision in done.values()} == {"wished"}
        floor.wait_for(state, *tasks, within_s=4)
        took_s += [row[0] for row in floor.db.execute(SECONDS, ([event], tasks))]
        assert floor.leases() == 0
        if len(took_s) >= 20:
            break
    p95_s = statistics.quantiles(took_s, n=20)[-1]
    assert len(took_s) >= 20 and p95_s <= 1.0, f"p50 {statistics.median(took_s):.2f} s, p95 {p95_s:.2f} s"


def test_a_call_that_was_left_begins_nothing_more(floor: Floor, tmp_path: Path) -> None:
    floor.start("tool_read")
    told = tmp_path / "told"
    (task,) = running(floor, 1, silent_s=2, told=str(told))
    transitions.act(floor.db, [task], verbs.cancel, TENANT, BY)
    floor.wait_for("cancelled", task, within_s=2)
    eventually(lambda: floor.leases() == 0)
    assert told.read_text() == "landed "


def test_a_paused_call_goes_on_when_it_is_resumed(floor: Floor) -> None:
    floor.start("tool_read")
    (task,) = running(floor, 1, silent_s=2)
    transitions.act(floor.db, [task], verbs.pause, TENANT, BY)
    floor.wait_for("paused", task, within_s=3)
    row = floor.db.execute("SELECT holds, want, attempts_used FROM task WHERE id = %s", (task,)).fetchone()
    assert row == (["tenant"], None, 0)
    transitions.act(floor.db, [task], verbs.resume, TENANT, BY)
    floor.release("test.blocked", task)  # beside the call that was left, which still runs
    floor.wait_for("succeeded", task)
    events = floor.db.execute("SELECT event FROM event WHERE task_id = %s ORDER BY seq", (task,)).fetchall()
    assert [event for (event,) in events] == ["submit", "claim", "wish", "halt", "resume", "claim", "succeed"]
    eventually(lambda: floor.leases() == 0)


def test_a_drain_lets_the_call_under_way_end(floor: Floor) -> None:
    worker = floor.start("tool_read", HARNESS_DRAIN_S="10")
    (task,) = running(floor, 1, silent_s=2)
    assert worker.stop() == 0
    assert floor.state(task) == "queued" and floor.leases() == 0


def test_a_silent_call_in_a_child_is_left_too_and_a_call_past_its_tasks_limit_ends_with_its_child(floor: Floor) -> None:
    worker = floor.start("ingest")
    children = worker.children()
    soon, late = (floor.run_task("child.blocked", {"silent_s": silent_s}) for silent_s in (3, 60))
    floor.wait_for("running", soon, late)
    transitions.act(floor.db, [soon, late], verbs.cancel, TENANT, BY)
    floor.wait_for("cancelled", soon, late, within_s=3)
    assert floor.leases() == 2
    eventually(lambda: floor.leases() == 1)
    assert worker.children() == children, "a call that returns costs no child"
    eventually(lambda: floor.leases() == 0)
    eventually(lambda: len(worker.children()) == len(children) and worker.children() != children)
    timed = floor.submit("child.blocked", {"silent_s": 60})
    floor.release("child.blocked", timed, timeout_s=1.0)  # Celery's soft limit is raised into the wait
    eventually(lambda: floor.state(timed) == "failed_retryable")


def test_a_child_that_does_not_stop_is_ended_and_its_task_ends_as_wished(floor: Floor) -> None:
    worker = floor.start("ingest")
    session = floor.session(worker)
    assert session is not None and session["pools"]["ingest"] >= 2
    bystander = floor.run_task("child.nap", {"nap_s": 10})
    deaf = floor.run_task("child.nap", {"nap_s": 60, "deaf": True})
    floor.wait_for("running", deaf, bystander)
    transitions.act(floor.db, [deaf], verbs.pause, TENANT, BY)
    floor.wait_for("paused", deaf, within_s=9)
    row = floor.db.execute("SELECT holds, lost_starts, attempts_used FROM task WHERE id = %s", (deaf,)).fetchone()
    assert row == (["tenant"], 0, 0), "who obeys a person is charged nothing"
    unkind = floor.run_task("child.nap", {"nap_s": 60, "unkind": True})
    floor.wait_for("running", unkind)
    transitions.act(floor.db, [unkind], verbs.cancel, TENANT, BY)
    floor.wait_for("cancelled", unkind, within_s=12)
    floor.wait_for("succeeded", bystander, within_s=12)
    assert floor.leases() == 0

"""A release finds rows where the look saw them; a row that moved since is left out, never half released."""

import threading
from collections.abc import Callable, Sequence

import psycopg
import pytest

from harness.store import transitions
from harness.store.clocks import Moved
from tests.leases import new_lease
from tests.places import places_of
from tests.stage import Stage, wait_until
from tests.store.plans import plan_of

MOVE = "UPDATE task SET want = 'cancel' WHERE id = %s"  # a HOT update: another place, in the same page


def test_the_rows_of_a_release_are_found_without_an_index(stage: Stage) -> None:
    lines = [line.strip() for line in plan_of(stage, "transitions/release").splitlines()]
    assert sum("Tid Scan on task" in line for line in lines) == 2  # to lock, and to update
    assert not any("Scan using task_" in line or "Seq Scan on task" in line for line in lines)


@pytest.mark.parametrize("statement", [MOVE, "UPDATE task SET priority = 1 WHERE id = %s"])
def test_a_row_that_moved_since_the_look_is_left_out_and_released_by_the_next_tick(
    stage: Stage, statement: str
) -> None:
    stage.add_session()
    stayed, moved = stage.submit(n=2)
    places = places_of(stage.connection, [stayed, moved])
    stage.connection.execute(statement, (moved,))
    assert release(stage, [stayed, moved], places) == [stayed]
    assert stage.one("SELECT n FROM lease") == 1
    if statement != MOVE:  # as the verb does, beside the task
        stage.connection.execute("UPDATE flow SET priority = 1")
    assert len(stage.tick()) == 1
    consistent(stage, [stayed, moved])


def test_a_place_that_now_holds_another_task_releases_neither(stage: Stage) -> None:
    one, other = stage.submit(n=2)
    assert release(stage, [one], places_of(stage.connection, [other])) == []
    assert stage.one("SELECT count(*) FROM task WHERE ready") == 2
    assert stage.one("SELECT count(*) FROM lease") == 0


def test_a_row_that_somebody_is_changing_is_not_waited_for(stage: Stage) -> None:
    free, held = stage.submit(n=2)
    with stage.open() as other, other.transaction():
        other.execute(MOVE, (held,))
        assert release(stage, [free, held], places_of(stage.connection, [free, held])) == [free]
    assert stage.row(held)["ready"] and stage.row(held)["release_no"] == 0


def test_a_row_that_moves_while_the_release_waits_is_released_whole_or_not_at_all(stage: Stage) -> None:
    tasks = stage.submit(n=3)
    places = places_of(stage.connection, tasks)

    def move(other: psycopg.Connection[tuple[object, ...]]) -> None:
        other.execute(MOVE, (tasks[1],))

    assert tasks[0] in while_waiting(stage, tasks, places, move)
    consistent(stage, tasks)


def test_a_task_cancelled_while_the_release_waits_is_left_out(stage: Stage) -> None:
    tasks = stage.submit(n=3)
    places = places_of(stage.connection, tasks)

    def cancel(other: psycopg.Connection[tuple[object, ...]]) -> None:
        other.execute(
            "UPDATE task SET state = 'cancelled', ready = false, finished_at = now() WHERE id = %s", (tasks[1],)
        )

    assert while_waiting(stage, tasks, places, cancel) == [tasks[0], tasks[2]]
    assert stage.row(tasks[1])["release_no"] == 0
    consistent(stage, tasks)


def while_waiting(
    stage: Stage,
    tasks: Sequence[int],
    places: Sequence[str],
    change: Callable[[psycopg.Connection[tuple[object, ...]]], None],
) -> list[int]:
    """Commit a change after the release took its snapshot (it waits for the leader's row), before it locks a task."""
    released: list[int] = []
    thread = threading.Thread(target=lambda: released.extend(release(stage, tasks, places)))
    with stage.open() as renewing, stage.open() as other:
        with renewing.transaction():
            renewing.execute("UPDATE leader SET until = until WHERE id = 1")
            thread.start()
            waiting = "SELECT count(*) > 0 FROM pg_locks WHERE pid = %s AND NOT granted"
            pid = stage.connection.info.backend_pid
            wait_until(lambda: other.execute(waiting, (pid,)).fetchone() == (True,), within_s=4)
            change(other)
        thread.join(5)
    assert not thread.is_alive()
    return released


def release(stage: Stage, tasks: Sequence[int], places: Sequence[str]) -> list[int]:
    """Release these tasks on one lease, as the dispatcher would. Returns the lease's members, in order."""
    assert stage.epoch is not None
    if not stage.one("SELECT count(*) FROM worker_session"):
        stage.add_session()
    lease = new_lease(stage, tasks, places=tuple(places))
    done = transitions.release(stage.connection, [lease], Moved(), capacities={}, epoch=stage.epoch)
    made = [number for number, _ in done.made.values()]
    rows = stage.connection.execute(
        "SELECT task_id FROM lease_member WHERE lease_id = ANY(%s) ORDER BY ordinal", (made,)
    )
    return [row[0] for row in rows]


def consistent(stage: Stage, tasks: Sequence[int]) -> None:
    """A member's row has left the line under the member's fence; every other live row stands in line."""
    for task in tasks:
        row = stage.row(task)
        fence = stage.one("SELECT release_no FROM lease_member WHERE task_id = %s", task)
        if row["state"] == "queued":
            assert (row["ready"], row["release_no"]) == ((True, 0) if fence is None else (False, fence))
    assert (
        stage.one("SELECT count(*) FROM lease WHERE n <> (SELECT count(*) FROM lease_member WHERE lease_id = lease.id)")
        == 0
    )

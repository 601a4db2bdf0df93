"""The SQL of settle and lose leaves `running` exactly as the lifecycle says, for every exit and every wish."""

import pytest

from harness.policy.holds import WISHES, wished_holds
from harness.policy.lifecycle import TABLE, Event, State, exit_event
from harness.store import sessions, transitions
from harness.store.transitions import Outcome
from tests.stage import Stage

EXITS = [
    event
    for event, row in TABLE.items()
    if State.RUNNING in row.sources and event not in (Event.ABORT, Event.HALT, Event.LOSE, Event.EXPIRE)
]
OWN_HOLD = {Event.PARK: "children", Event.MISMATCH: "version"}


def running(stage: Stage, want: str | None, *, pid: int = 1) -> tuple[int, int, int, object]:
    """A claimed task with a wish about it. Returns task, lease, token, session."""
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    stage.claim(message, session, pid=pid)
    stage.connection.execute("UPDATE task SET want = %s WHERE id = %s", (want, task))
    return task, message.lease, message.token, session


def left_as(stage: Stage, task: int, event: Event, want: str | None, own_hold: str | None) -> None:
    really = exit_event(event, want=want)
    row = stage.row(task)
    assert stage.events(task)[-1] == really
    assert row["state"] == TABLE[really].target(State.RUNNING)
    expected = list(wished_holds(want)) if really is Event.HALT else [own_hold] if own_hold and really is event else []
    assert row["holds"] == expected and row["want"] is None


@pytest.mark.parametrize("want", [None, *WISHES])
@pytest.mark.parametrize("event", EXITS)
def test_settle_leaves_by_the_event_that_the_lifecycle_names(stage: Stage, event: Event, want: str | None) -> None:
    task, lease, token, session = running(stage, want)
    outcome = Outcome(task=task, release_no=1, event=event, slot_s=0.1, hold=OWN_HOLD.get(event), spends=1)
    transitions.settle(stage.connection, [outcome], lease=lease, token=token, session=session, actor="test")  # type: ignore[arg-type]
    left_as(stage, task, event, want, OWN_HOLD.get(event))
    if event is not Event.SUCCEED:  # it spends nothing, whatever is said
        assert stage.row(task)["attempts_used"] == int(exit_event(event, want=want) is event)


@pytest.mark.parametrize("want", [None, *WISHES])
@pytest.mark.parametrize(
    ("event", "overdue", "quarantined", "spent"),
    [
        (Event.LOSE, False, False, False),
        (Event.BURY, False, True, False),  # a loss in quarantine; with a wish it counts as any loss
        (Event.FAIL, True, False, False),
        (Event.BURY, True, False, True),
    ],
)
def test_lose_leaves_by_the_event_that_the_lifecycle_names(
    stage: Stage, event: Event, overdue: bool, quarantined: bool, spent: bool, want: str | None
) -> None:
    task, lease, _, session = running(stage, want, pid=7)
    if overdue:
        stage.connection.execute(
            "UPDATE lease SET claimed_at = claimed_at - make_interval(secs => timeout_s) WHERE id = %s", (lease,)
        )
    if quarantined:
        stage.connection.execute("UPDATE lease SET via = 'quarantine' WHERE id = %s", (lease,))
    transitions.lose(
        stage.connection,
        max_attempts={"noop.single": 1 if spent else 4},
        retry_delay_s=0.0,
        actor="test",
        session=session,  # type: ignore[arg-type]
        dead_pids=[7],
    )
    left_as(stage, task, Event.LOSE if quarantined and want else event, want, None)
    charged = want is None and not overdue
    assert stage.row(task)["lost_starts"] == int(charged), "a loss that someone wished for charges nobody"


def test_the_wishes_that_workers_read_are_those_that_stand(stage: Stage) -> None:
    task, _, _, _ = running(stage, "pause:tenant")
    assert sessions.wishes(stage.connection, [task]) == {task: "pause"}

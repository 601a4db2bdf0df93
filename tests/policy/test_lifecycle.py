"""The lifecycle table says what the design says."""

import pytest

from harness.policy.lifecycle import LIVE, TABLE, TERMINAL, Event, State, exit_event, legal_changes

RUNNING_EXITS = {
    Event.ASK: State.WAITING_APPROVAL,
    Event.PARK: State.PAUSED,
    Event.MISMATCH: State.PAUSED,
    Event.SUCCEED: State.SUCCEEDED,
    Event.FAIL: State.FAILED_RETRYABLE,
    Event.LOSE: State.QUEUED,
    Event.POSTPONE: State.QUEUED,
    Event.INTERRUPT: State.QUEUED,
    Event.BURY: State.FAILED_TERMINAL,
    Event.ABORT: State.CANCELLED,
    Event.HALT: State.PAUSED,
}


def test_every_event_has_a_row_and_every_state_is_reached() -> None:
    assert set(TABLE) == set(Event)
    assert {to for row in TABLE.values() for _, to in row.arcs} == set(State)


@pytest.mark.parametrize(("event", "target"), RUNNING_EXITS.items())
def test_a_running_task_leaves_to_one_state_by_each_exit(event: Event, target: State) -> None:
    assert TABLE[event].target(State.RUNNING) is target


def test_only_redrive_leaves_a_terminal_state_and_nothing_leaves_succeeded() -> None:
    leaving = {(row.event, source) for row in TABLE.values() for source in row.sources & TERMINAL}
    assert leaving == {(Event.REDRIVE, State.FAILED_TERMINAL), (Event.REDRIVE, State.CANCELLED)}


def test_every_live_state_has_a_way_to_an_end() -> None:
    reach = dict.fromkeys(TERMINAL, True)
    for _ in State:
        for source, target in legal_changes():
            if reach.get(target) and source in LIVE:
                reach[source] = True
    assert set(reach) == set(State)


def test_only_a_claim_makes_a_task_running() -> None:
    assert {row.event for row in TABLE.values() if any(to is State.RUNNING for _, to in row.arcs)} == {Event.CLAIM}


@pytest.mark.parametrize("event", RUNNING_EXITS)
def test_a_wish_wins_over_every_exit_but_succeed_and_bury(event: Event) -> None:
    obeyed = exit_event(event, want="cancel")
    assert obeyed is (event if event in {Event.SUCCEED, Event.BURY} else Event.ABORT)
    assert exit_event(event, want=None) is event

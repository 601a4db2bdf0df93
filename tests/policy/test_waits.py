"""What a task waited for: each moment of its waits once, none of its running, however many notes there were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy.lifecycle import TABLE, TERMINAL, Event, State
from harness.policy.reasons import Code
from harness.policy.waits import Happened, Note, add_up, between, of_trace

WAITING = (State.QUEUED, State.WAITING_APPROVAL, State.PAUSED, State.FAILED_RETRYABLE)


@st.composite
def traces(draw: st.DrawFn) -> list[Happened]:
    """A legal trace, with times that don't fall."""
    at_s = 1000.0
    found = [Happened(at_s=at_s, event=Event.SUBMIT, to_state=State.QUEUED)]
    state = State.QUEUED
    for _ in range(draw(st.integers(0, 12))):
        arcs = [(row.event, target) for row in TABLE.values() for source, target in row.arcs if source == state]
        if not arcs:
            break
        event, state = draw(st.sampled_from(sorted(arcs)))
        at_s += draw(st.floats(0, 100, allow_nan=False))
        found.append(Happened(at_s=at_s, event=event, to_state=state))
    return found


@given(traces(), st.floats(0, 100, allow_nan=False), st.booleans())
def test_the_waits_of_a_trace_are_its_waiting_states_since_it_was_last_sent(
    trace: list[Happened], later_s: float, planned: bool
) -> None:
    now_s = trace[-1].at_s + later_s
    waits = of_trace(trace, now_s=now_s, priority=2, planned=planned)
    begin = max((at for at, event in enumerate(trace) if event.event == Event.REDRIVE), default=0)
    ends = [event.at_s for event in trace[begin + 1 :]] + [now_s]
    spans = [
        (event.at_s, end) for event, end in zip(trace[begin:], ends, strict=True) if State(event.to_state) in WAITING
    ]
    assert [(wait.from_s, wait.to_s) for wait in waits] == [span for span in spans if span[1] > span[0]]
    assert sum(add_up([(wait, {}) for wait in waits]).values()) == _near(sum(to - begin for begin, to in spans))
    if State(trace[-1].to_state) in {*TERMINAL, State.RUNNING}:
        assert not waits or waits[-1].to_s < now_s or now_s == trace[-1].at_s


def test_a_task_that_ripened_waited_for_its_time_and_one_that_moved_waited_in_both_lines() -> None:
    trace = [
        Happened(at_s=0, event=Event.SUBMIT, to_state=State.QUEUED),
        Happened(at_s=10, event=Event.RIPEN, to_state=State.QUEUED),
        Happened(at_s=12, event=Event.REPRIORITISE, to_state=State.QUEUED, from_priority=3),
        Happened(at_s=15, event=Event.CLAIM, to_state=State.RUNNING),
        Happened(at_s=16, event=Event.POSTPONE, to_state=State.QUEUED),
        Happened(at_s=20, event=Event.REPRIORITISE, to_state=State.QUEUED, from_priority=1),
        Happened(at_s=30, event=Event.RIPEN, to_state=State.QUEUED),
    ]
    waits = of_trace(trace, now_s=31, priority=2, planned=False)
    assert [(wait.code, wait.priority, wait.to_s - wait.from_s) for wait in waits] == [
        (Code.NOT_BEFORE, 3, 10),
        (None, 3, 2),
        (None, 1, 3),
        (Code.POSTPONED, 1, 4),
        (Code.POSTPONED, 2, 10),
        (None, 2, 1),
    ]


KEYS = ("tenant_cap:", "turn:", "resource:gpu")


@given(
    st.lists(st.tuples(st.sampled_from(KEYS), st.floats(0, 50), st.booleans()), min_size=1, max_size=20),
    st.floats(-10, 500),
    st.floats(0, 500),
)
def test_the_difference_of_two_notes_is_the_sum_over_all_between(
    rows: list[tuple[str, float, bool]], from_s: float, lasts_s: float
) -> None:
    """Each row: its reason, how long it lasted, and whether a gap (no flow) of 5 s follows."""
    to_s, at_s = from_s + lasts_s, 0.0
    notes: list[Note] = []
    sums: dict[str, float] = {}
    expected: dict[str, float] = {}
    for key, length_s, gap in rows:
        notes.append(Note(key=key, since_s=at_s, until_s=at_s + length_s, before=dict(sums)))
        shared_s = min(to_s, at_s + length_s) - max(from_s, at_s)
        if shared_s > 0:
            expected[key] = expected.get(key, 0.0) + shared_s
        sums[key] = sums.get(key, 0.0) + length_s
        at_s += length_s + (5.0 if gap else 0.0)

    def note_at(moment_s: float) -> Note:
        return next((note for note in reversed(notes) if note.since_s <= moment_s), notes[0])

    found = between(note_at(from_s), note_at(to_s), from_s, to_s)
    assert {key: _near(seconds) for key, seconds in expected.items() if seconds > 1e-6} == {
        key: seconds for key, seconds in found.items() if seconds > 1e-6
    }


def _near(seconds: float) -> object:
    return pytest.approx(seconds, abs=1e-6)

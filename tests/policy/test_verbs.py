"""What a verb does to a task as it stands: within the lifecycle, idempotent, and never to another's hold."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy import redrive, verbs
from harness.policy.holds import CANCEL, PEOPLE, WISHES, pause_wish, wished, wished_holds
from harness.policy.lifecycle import TABLE, Event, State
from harness.policy.redrive import Already, Go, No
from harness.policy.verbs import Asked, Decide, Decision, Stand, Step

VERBS: dict[str, Decide] = {
    "cancel": verbs.cancel,
    "pause": verbs.pause,
    "resume": verbs.resume,
    "requeue": verbs.requeue,
    "priority": verbs.priority,
    "redrive": verbs.redrive,
}
EVENTS = {
    Step.CANCEL: Event.CANCEL,
    Step.PAUSE: Event.PAUSE,
    Step.RESUME: Event.RESUME,
    Step.REQUEUE: Event.REQUEUE,
    Step.REPRIORITISE: Event.REPRIORITISE,
    Step.REDRIVE: Event.REDRIVE,
}
HOLDS = (*PEOPLE, "version", "children", "approval_timeout")
SOME_HOLDS = [tuple(held) for held in chain.from_iterable(combinations(HOLDS, n) for n in (1, 2, 3))]


@st.composite
def stands(draw: st.DrawFn) -> Stand:
    state = draw(st.sampled_from(State))
    return Stand(
        state=state,
        want=draw(st.sampled_from([None, *WISHES])) if state is State.RUNNING else None,
        holds=draw(st.sampled_from(SOME_HOLDS)) if state is State.PAUSED else (),
        leased=state is State.RUNNING or (state is State.QUEUED and draw(st.booleans())),
        waits=state in (State.QUEUED, State.FAILED_RETRYABLE) and draw(st.booleans()),
        priority=draw(st.integers(0, 3)),
    )


def after(stand: Stand, decision: Decision, asked: Asked) -> Stand:
    """How the task stands when the step was done."""
    holds, state, want, priority = stand.holds, stand.state, stand.want, stand.priority
    match decision.step:
        case None:
            return stand
        case Step.WISH:
            want = decision.want
        case Step.CANCEL:
            state, holds = State.CANCELLED, ()
        case Step.PAUSE:
            state, holds = State.PAUSED, (*holds, asked.hold)
        case Step.RESUME:
            holds = tuple(hold for hold in holds if hold != asked.hold)
            state = State.PAUSED if holds else State.QUEUED
        case Step.REQUEUE | Step.REDRIVE:
            state = State.QUEUED
        case Step.REPRIORITISE:
            assert asked.priority is not None
            priority = asked.priority
    return Stand(state=state, want=want, holds=holds, leased=False, waits=False, priority=priority)


SOME_ASKED = st.builds(Asked, hold=st.sampled_from(PEOPLE), priority=st.integers(0, 3))


@given(stands(), st.sampled_from(sorted(VERBS)), SOME_ASKED)
def test_a_verb_only_takes_arcs_of_the_lifecycle_and_says_why_when_it_takes_none(
    stand: Stand, name: str, asked: Asked
) -> None:
    decision = VERBS[name](stand, asked)
    if decision.step is None:
        assert (decision.outcome == "already") != bool(decision.why)
        assert not decision.why or decision.why.startswith("it ")
    elif decision.step is Step.WISH:
        assert stand.state is State.RUNNING and decision.want in (None, *WISHES) and decision.want != stand.want
    else:
        arc = (stand.state, after(stand, decision, asked).state)
        assert arc in TABLE[EVENTS[decision.step]].arcs


@given(stands(), st.sampled_from(sorted(VERBS)), SOME_ASKED)
def test_a_verb_done_twice_does_nothing_the_second_time(stand: Stand, name: str, asked: Asked) -> None:
    once = after(stand, VERBS[name](stand, asked), asked)
    assert VERBS[name](once, asked).step is None


@given(stands(), st.sampled_from(PEOPLE), st.sampled_from(["pause", "resume"]))
def test_pause_and_resume_touch_only_ones_own_hold(stand: Stand, hold: str, name: str) -> None:
    asked = Asked(hold=hold)
    then = after(stand, VERBS[name](stand, asked), asked)
    assert {*then.holds} - {hold} == {*stand.holds} - {hold}
    assert {*wished_holds(then.want)} - {hold} == {*wished_holds(stand.want)} - {hold}
    if stand.want == CANCEL:
        assert then.want == CANCEL


@given(st.sets(st.sampled_from(PEOPLE)))
def test_a_wish_keeps_the_names_of_all_who_wish_it(holds: set[str]) -> None:
    want = pause_wish(holds)
    assert set(wished_holds(want)) == holds
    assert want is None or (want in WISHES and wished(want) == "pause")


@pytest.mark.parametrize("state", State)
def test_which_states_are_sent_again_is_decided_once(state: State) -> None:
    table = verbs.redrive(Stand(state=state), Asked())
    answer = redrive.decide(state=state, kind="k", version=1, known_version=1, changed=False)
    assert {"redriven": Go, "already": Already, "refused": No}[table.outcome] is type(answer)
    assert not isinstance(answer, No) or answer.message == f"the task {table.why.removeprefix('it ')}"

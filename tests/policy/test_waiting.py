"""R4: who waits in the slot, who goes back in line."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy.waiting import LEAST_S, WAIT_MOST_S, GiveBack, Refusal, Wait, decide

REFUSALS = st.builds(
    Refusal,
    lacks=st.sampled_from(["room", "rate", "leave"]),
    wait_s=st.floats(0, 2_000),
    ahead=st.integers(0, 10_000),
    limit_now=st.integers(0, 800),
    call_s=st.floats(0.001, 600),
)


@given(REFUSALS, st.integers(1, 3), st.floats(0, 100))
def test_nobody_but_p0_waits_in_a_slot_for_more_than_five_seconds(
    refusal: Refusal, priority: int, waited_s: float
) -> None:
    match decide(refusal, priority=priority, waited_s=waited_s):
        case Wait(most_s=most_s):
            assert waited_s < most_s <= WAIT_MOST_S and refusal.wait_s <= WAIT_MOST_S
        case GiveBack(after_s=after_s):
            assert after_s >= refusal.wait_s


@given(REFUSALS, st.floats(0, 10_000))
def test_p0_is_never_put_back_because_others_are_before_it(refusal: Refusal, waited_s: float) -> None:
    decision = decide(refusal, priority=0, waited_s=waited_s)
    if refusal.lacks == "room" and refusal.wait_s <= WAIT_MOST_S:
        assert isinstance(decision, Wait)
    elif refusal.wait_s > WAIT_MOST_S:
        assert isinstance(decision, GiveBack)  # a slot that nobody can use until then


@given(REFUSALS, st.integers(0, 3))
def test_a_task_whose_time_is_over_goes_back_before_it_counts_as_its_own_time_out(
    refusal: Refusal, priority: int
) -> None:
    assert isinstance(decide(refusal, priority=priority, waited_s=0.0, left_s=0.0), GiveBack)


@given(REFUSALS, st.integers(1, 3), st.integers(1, 100))
def test_who_stands_further_back_never_waits_where_who_stands_before_goes_back(
    refusal: Refusal, priority: int, more: int
) -> None:
    behind = Refusal(
        lacks=refusal.lacks,
        wait_s=refusal.wait_s,
        ahead=refusal.ahead + more,
        limit_now=refusal.limit_now,
        call_s=refusal.call_s,
    )
    if isinstance(decide(refusal, priority=priority, waited_s=0.0), GiveBack):
        assert isinstance(decide(behind, priority=priority, waited_s=0.0), GiveBack)


@given(REFUSALS, st.integers(1, 3))
def test_every_wait_ends(refusal: Refusal, priority: int) -> None:
    assert isinstance(decide(refusal, priority=priority, waited_s=WAIT_MOST_S), GiveBack)


@pytest.mark.parametrize(
    ("ahead", "limit", "call_s", "waits"),
    [
        (0, 1, 5.0, True),  # the only one: the next turn
        (1, 1, 2.0, True),  # two turns
        (2, 1, 2.0, False),  # three
        (7, 20, 5.0, True),  # 8 x 0.25 s <= 0.4 x 5 s
        (8, 20, 5.0, False),
        (1, 1, 20.0, False),  # a turn is longer than any slot waits
        (0, 1, 20.0, True),  # but the first may have its turn at any time, and nobody would take its place but the next
        (99, 50, 0.01, False),
    ],
)
def test_a_turn_or_two_and_less_than_half_a_call_is_worth_the_slot(
    ahead: int, limit: int, call_s: float, waits: bool
) -> None:
    refusal = Refusal(lacks="room", wait_s=0.0, ahead=ahead, limit_now=limit, call_s=call_s)
    assert isinstance(decide(refusal, priority=2, waited_s=LEAST_S), Wait) == waits


def test_the_rest_of_a_block_counts_before_the_turns() -> None:
    refusal = Refusal(lacks="room", wait_s=1.9, ahead=1, limit_now=20, call_s=5.0)
    assert decide(refusal, priority=2, waited_s=LEAST_S) == GiveBack(after_s=2.4)


@given(REFUSALS, st.integers(0, 3), st.floats(0, WAIT_MOST_S))
def test_nobody_goes_back_for_want_of_room_before_the_leader_can_have_read_that_there_is_none(
    refusal: Refusal, priority: int, waited_s: float
) -> None:
    full = replace(refusal, lacks="room")
    waits = isinstance(decide(full, priority=priority, waited_s=waited_s), Wait)
    assert waits or full.wait_s > WAIT_MOST_S or waited_s >= LEAST_S


@given(REFUSALS, st.integers(1, 3), st.floats(0, 2 * WAIT_MOST_S))
def test_who_is_first_for_room_goes_back_only_after_five_seconds_or_when_nobody_gets_any_for_longer(
    refusal: Refusal, priority: int, waited_s: float
) -> None:
    first = replace(refusal, lacks="room", ahead=0)
    waits = waited_s < WAIT_MOST_S and first.wait_s <= WAIT_MOST_S
    assert isinstance(decide(first, priority=priority, waited_s=waited_s), Wait) == waits


def test_a_bucket_is_waited_for_and_an_open_breaker_is_not() -> None:
    for lacks, waits in (("rate", True), ("leave", False)):
        refusal = Refusal(lacks=lacks, wait_s=4.0, ahead=0, limit_now=20, call_s=1.0)  # type: ignore[arg-type]  # a word
        assert isinstance(decide(refusal, priority=2, waited_s=0.0), Wait) == waits

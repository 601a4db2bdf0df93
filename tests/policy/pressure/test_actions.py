"""What a level does: the table is monotone, spares P0, and says what a change did."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from harness.policy import pressure
from harness.policy.pressure import ACTIONS, DOORS, RELEASES, Action, Level

LEVELS = st.sampled_from(list(Level))
PRIORITIES = st.integers(0, 3)


def taken(action: Action) -> tuple[float, int, int, bool, bool]:
    """What an action takes, each number the larger the more."""
    return (
        1.0 - action.share,
        DOORS.index(action.door),
        RELEASES.index(action.release),
        action.degrade,
        not action.retries,
    )


@given(level=LEVELS, more=LEVELS, priority=PRIORITIES, less_urgent=PRIORITIES)
def test_a_level_takes_no_less_than_a_lower_one_and_no_more_from_the_more_urgent(
    level: Level, more: Level, priority: int, less_urgent: int
) -> None:
    if more < level or less_urgent < priority:
        return
    here, there = taken(pressure.of(level, priority)), taken(pressure.of(more, less_urgent))
    assert all(one <= other for one, other in zip(here, there, strict=True))


@given(level=LEVELS, cap=st.integers(1, 10_000), slots=st.integers(1, 500))
def test_the_cap_of_a_run_and_the_retry_budget_only_shrink_with_the_level_and_a_run_keeps_one(
    level: Level, cap: int, slots: int
) -> None:
    caps = [pressure.fanout(one, cap) for one in Level]
    assert all(1 <= after <= before for before, after in pairwise(caps))
    ratios = [pressure.retry_ratio(one) for one in Level]
    assert all(0 < after <= before for before, after in pairwise(ratios))
    assert [pressure.most(slots, level, p) for p in range(4)] == sorted(
        [pressure.most(slots, level, p) for p in range(4)], reverse=True
    )


def test_nothing_is_done_to_p0_at_any_level_and_to_anybody_at_normal() -> None:
    untouched = Action()
    assert {actions[0] for actions in ACTIONS.values()} == {untouched}
    assert set(ACTIONS[Level.NORMAL]) == {untouched}


def test_from_high_on_caps_are_half_and_from_elevated_on_the_retry_budget() -> None:
    assert [pressure.fanout(level, 40) for level in Level] == [40, 40, 20, 20]
    assert [pressure.retry_ratio(level) for level in Level] == [1.0, 0.5, 0.5, 0.5]


@given(before=LEVELS, after=LEVELS)
def test_a_change_says_what_it_did_and_nothing_new_only_when_nothing_is(before: Level, after: Level) -> None:
    told = pressure.done(before, after)
    assert (told == "nothing new") == (before is after)


def test_a_change_is_told_in_the_words_of_the_table() -> None:
    assert pressure.done(Level.NORMAL, Level.HIGH) == (
        "P3 by its floor while others wait; cheaper forms: P2, P3; caps of runs halved; retry budget x0.5; "
        "at the door: P1 deferred, P2 deferred, P3 limited"
    )
    assert pressure.done(Level.ELEVATED, Level.NORMAL) == (
        "P3 has its whole weight again; whole retry budget; the door is open"
    )
    assert pressure.done(Level.HIGH, Level.CRITICAL).startswith("P3 paused where others wait")

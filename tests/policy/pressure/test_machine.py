"""The level machine over all histories: legal changes, dwell, no flapping, a way back; and each rule by itself."""

import random
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.policy.pressure import SIGNALS, Change, Level, State, read, step
from harness.policy.pressure.machine import DWELL_S, EVERY_S, MISSING_S, REVERSALS_S

QUIET: dict[str, float | None] = dict.fromkeys(SIGNALS, 0.0)
BACK_S = 480.0  # normal again within this after the load drops
SOFT = [name for name, one in SIGNALS.items() if not one.hard and not one.alone]
HARD = [name for name, one in SIGNALS.items() if one.hard]

few = settings(max_examples=40, deadline=None)  # a history is some hundred evaluations


def at(level: Level, ratio: float = 1.0) -> float:
    """Return a share of the worst thresholds (of p1_wait) that ask for a level."""
    return {Level.NORMAL: 0.0, Level.ELEVATED: 0.5, Level.HIGH: 1.0, Level.CRITICAL: 3.0}[level] * ratio


def loaded(level: Level) -> dict[str, float | None]:
    """Return readings that ask for a level, by two soft signals."""
    return {**QUIET, "p1_wait": at(level), "queue_depth": at(level)}


def hard(level: Level) -> dict[str, float | None]:
    one = SIGNALS["retry_storm"]
    return {**QUIET, "retry_storm": [0.0, one.elevated, one.high, one.critical][level]}


def play(
    state: State, readings: Mapping[str, float | None], for_s: float, every_s: float = EVERY_S
) -> tuple[State, list[Change]]:
    """Evaluate for a while with the same readings."""
    changes = []
    for _ in range(round(for_s / every_s)):
        state, change = step(state, readings, every_s)
        if change:
            changes.append(change)
    return state, changes


def settled(level: Level) -> State:
    state, _ = play(State(), hard(level), 60.0)
    assert state.level is level
    return state


def values_of(name: str) -> st.SearchStrategy[float | None]:
    one = SIGNALS[name]
    finite = [x for x in (one.elevated, one.high, one.critical) if x != float("inf")]
    around = [x * ratio for x in finite for ratio in (0.75, 0.85, 0.99, 1.0, 1.2)]
    return st.one_of(st.none(), st.just(0.0), st.sampled_from(around))


looks = st.fixed_dictionaries({name: values_of(name) for name in SIGNALS})
histories = st.lists(
    st.tuples(looks, st.integers(1, 40), st.sampled_from([0.0, 3.0, 5.0, 5.0, 5.0, 60.0, -5.0])), max_size=12
)


def told(history: list[tuple[Mapping[str, float | None], int, float]]) -> Iterator[tuple[State, Change | None]]:
    state = State()
    for readings, times, passed_s in history:
        for _ in range(times):
            state, change = step(state, readings, passed_s)
            yield state, change


# -- over all histories


@few
@given(histories)
def test_a_level_rises_by_any_and_falls_by_one_step_after_its_dwell(
    history: list[tuple[Mapping[str, float | None], int, float]],
) -> None:
    level, entered_s = Level.NORMAL, 0.0
    for state, change in told(history):
        if change is None:
            assert state.level is level
            continue
        assert change.before is level and change.after is state.level
        if change.after < change.before:
            assert change.after == change.before - 1
            assert state.now_s - entered_s >= DWELL_S[change.before]
        level, entered_s = state.level, state.now_s


@few
@given(histories)
def test_whatever_happened_it_is_normal_again_within_8_minutes_after_the_load_drops(
    history: list[tuple[Mapping[str, float | None], int, float]],
) -> None:
    state = [State(), *(state for state, _ in told(history))][-1]
    state, changes = play(state, QUIET, BACK_S)
    assert state.level is Level.NORMAL
    assert all(change.after == change.before - 1 for change in changes if change.after < change.before)


@few
@given(st.fixed_dictionaries({name: values_of(name) for name in SIGNALS}), st.integers(0, 2**32))
def test_an_hour_of_five_percent_noise_brings_two_changes_at_most(
    steady: Mapping[str, float | None], seed: int
) -> None:
    state, _ = play(State(), steady, 900.0)
    dice = random.Random(seed)
    changes = 0
    for _ in range(720):
        noisy = {name: None if x is None else x * dice.uniform(0.95, 1.05) for name, x in steady.items()}
        state, change = step(state, noisy, EVERY_S)
        changes += change is not None
    assert changes <= 2


@few
@given(histories)
def test_the_same_history_gives_the_same_levels(
    history: list[tuple[Mapping[str, float | None], int, float]],
) -> None:
    assert [state for state, _ in told(history)] == [state for state, _ in told(history)]


@few
@given(looks, looks)
def test_worse_readings_never_ask_for_less(one: Mapping[str, float | None], other: Mapping[str, float | None]) -> None:
    worse = {name: max(one[name] or 0.0, other[name] or 0.0) for name in SIGNALS}
    before = {name: one[name] or 0.0 for name in SIGNALS}
    assert step(State(), worse, 5.0)[0].asked >= step(State(), before, 5.0)[0].asked


# -- each rule


@pytest.mark.parametrize("name", SOFT)
def test_one_soft_signal_alone_never_sets_its_own_level(name: str) -> None:
    state, _ = play(State(), {**QUIET, name: 1e6}, 600.0)
    assert state.level <= Level.HIGH


@pytest.mark.parametrize("name", HARD)
def test_a_hard_signal_sets_its_level_alone(name: str) -> None:
    state, changes = play(State(), {**QUIET, name: SIGNALS[name].high}, 60.0)
    assert state.level is Level.HIGH
    assert list(changes[-1].signals) == [name]


def test_demand_sets_the_level_alone() -> None:
    assert play(State(), {**QUIET, "demand": 1.9}, 60.0)[0].level is Level.HIGH


def test_busy_workers_and_a_limit_in_use_are_normal_while_nobody_waits() -> None:
    busy: dict[str, float | None] = {**QUIET, "worker_busy_ratio": 1.0, "llm_in_use": 1.0}
    assert play(State(), busy, 3600.0)[0].level is Level.NORMAL
    assert play(State(), {**busy, "p1_wait": 0.6}, 60.0)[0].level is Level.ELEVATED


def test_one_reading_raises_nothing_and_a_second_in_a_row_does() -> None:
    state, change = step(State(), loaded(Level.HIGH), EVERY_S)
    assert change is None
    again, change = step(state, loaded(Level.HIGH), EVERY_S)
    assert change is not None and again.level is Level.HIGH
    lower, change = step(state, QUIET, EVERY_S)
    assert change is None and lower.level is Level.NORMAL


def test_a_rise_goes_as_far_as_two_in_a_row_ask_for() -> None:
    state, _ = step(State(), hard(Level.ELEVATED), EVERY_S)
    state, change = step(state, hard(Level.HIGH), EVERY_S)
    assert change is not None and state.level is Level.ELEVATED


def test_critical_of_a_hard_signal_counts_at_once() -> None:
    _, change = step(State(), hard(Level.CRITICAL), EVERY_S)
    assert change is not None and (change.before, change.after) == (Level.NORMAL, Level.CRITICAL)


def test_a_critical_pulse_of_ten_minutes_is_one_jump_and_three_steps_down() -> None:
    state, up = play(State(), hard(Level.CRITICAL), 600.0)
    state, down = play(state, QUIET, BACK_S)
    assert [(one.before, one.after) for one in (*up, *down)] == [(0, 3), (3, 2), (2, 1), (1, 0)]


def test_what_is_just_below_its_threshold_holds_the_level() -> None:
    state = settled(Level.HIGH)
    held: dict[str, float | None] = {**QUIET, "retry_storm": 0.81 * SIGNALS["retry_storm"].high}
    assert play(state, held, 3600.0)[0].level is Level.HIGH
    freed: dict[str, float | None] = {**QUIET, "retry_storm": 0.79 * SIGNALS["retry_storm"].high}
    assert play(state, freed, 3600.0)[0].level is Level.ELEVATED


def test_a_level_that_flaps_dwells_twice_as_long_and_forgets_it() -> None:
    state = State()
    for _ in range(3):
        state, _ = play(state, hard(Level.ELEVATED), 15.0)
        assert state.level is Level.ELEVATED
        entered_s = state.now_s
        while state.level is Level.ELEVATED:
            state, _ = step(state, QUIET, EVERY_S)
    assert state.now_s - entered_s > 2 * DWELL_S[Level.ELEVATED]
    state, _ = play(state, QUIET, REVERSALS_S + 60.0)
    state, _ = play(state, hard(Level.ELEVATED), 15.0)
    state, changes = play(state, QUIET, DWELL_S[Level.ELEVATED] + 15.0)
    assert [one.after for one in changes] == [Level.NORMAL]


def test_a_missing_reading_stands_for_thirty_seconds_then_holds_the_level_and_others_may_raise_it() -> None:
    state = settled(Level.ELEVATED)
    gone: dict[str, float | None] = {**QUIET, "retry_storm": None}
    state, _ = play(state, gone, 3600.0)
    assert state.level is Level.ELEVATED
    assert read(state)["retry_storm"].missing
    state, _ = play(state, {**gone, "tool_error_rate": 0.2}, 30.0)
    assert state.level is Level.HIGH
    state, changes = play(state, QUIET, BACK_S)
    assert state.level is Level.NORMAL and len(changes) == 2
    state, _ = play(settled(Level.ELEVATED), {**QUIET, "retry_storm": None}, MISSING_S - EVERY_S)
    assert not read(state)["retry_storm"].missing


def test_a_signal_that_nobody_ever_read_holds_nothing() -> None:
    never: dict[str, float | None] = {**QUIET, "llm_in_use": None}
    state, _ = play(State(), {**never, "retry_storm": 0.12}, 60.0)
    assert play(state, never, BACK_S)[0].level is Level.NORMAL


def test_a_clock_that_steps_and_a_beat_that_was_away_lower_nothing() -> None:
    state = settled(Level.CRITICAL)
    for passed_s in (86_400.0, -86_400.0, 180.0):
        state, change = step(state, QUIET, passed_s)
        assert change is None and state.level is Level.CRITICAL


def test_a_sampled_state_counts_by_its_mean_and_a_wait_by_its_least() -> None:
    state = settled(Level.NORMAL)
    for value in (1.0, 0.2, 0.2, 0.2, 0.2, 0.2):
        state, _ = step(state, {**QUIET, "db_connection_usage": value, "oldest_age": 400.0 * value}, EVERY_S)
    seen = read(state)
    assert seen["db_connection_usage"].value == pytest.approx(2.0 / 6)
    assert seen["oldest_age"].value == 80.0

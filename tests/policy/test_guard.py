"""The latency guard lowers the limit of who slows down, and leaves alone who doesn't, however latency spreads."""

from math import exp
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.limits.guard import (
    BINS,
    CALLS_LEAST,
    WINDOW_MOST_S,
    WINDOW_S,
    Guard,
    bin_of,
    due,
    noted,
    quantile_s,
    turn,
)
from harness.policy.limits.state import State, Terms

NOW_S = 1000.0
TERMS = Terms(floor=2, ceiling=400)


@given(st.lists(st.floats(1e-4, 500), min_size=1, max_size=200), st.sampled_from([0.2, 0.5, 0.99]))
def test_a_quantile_is_right_to_a_bin(latencies: list[float], share: float) -> None:
    bins = [0.0] * BINS
    for latency_s in latencies:
        bins[bin_of(latency_s)] += 1
    right = sorted(latencies)[max(0, int(share * len(latencies) - 1e-9))]
    assert right / 1.16 <= quantile_s(bins, share) <= right * 1.16 or quantile_s(bins, share) == 1e-4


@given(st.lists(st.tuples(st.integers(0, 120), st.floats(0.01, 10)), max_size=40), st.integers(2, 400))
def test_a_cap_stays_between_floor_and_ceiling(windows: list[tuple[int, float]], limit: int) -> None:
    guard, state, now_s = Guard(window_s=NOW_S), State(float(limit)), NOW_S
    for calls, latency_s in windows:
        for _ in range(calls):
            noted(guard, latency_s)
        now_s += WINDOW_S
        if due(guard, now_s):
            turn(guard, state, TERMS, now_s)
        assert state.trim == 0 or TERMS.floor <= state.trim <= TERMS.ceiling


def _window(guard: Guard, state: State, now_s: float, calls: int, median_s: float, rng: Random, sigma: float) -> str:
    for _ in range(calls):
        noted(guard, median_s * exp(rng.gauss(0, sigma)))
    assert due(guard, now_s)
    return turn(guard, state, TERMS, now_s)


def test_who_slows_down_and_does_as_much_with_less_is_given_less() -> None:
    guard, state, rng, now_s = Guard(window_s=NOW_S), State(100.0), Random(1), NOW_S
    for _ in range(20):
        now_s += WINDOW_S
        assert _window(guard, state, now_s, 300, 0.02, rng, 0.3) == ""
    reasons = []
    for _ in range(60):
        now_s += WINDOW_S
        in_flight = state.trim or 100.0
        reasons.append(_window(guard, state, now_s, 300, 0.02 * max(1.0, in_flight / 50), rng, 0.3))
    assert reasons[:3] == ["", "", "slow"], "after three windows"
    assert reasons[3:12].count("slow") == 2, "and lower still, three windows later"
    assert 50 <= state.trim <= 80
    for _ in range(60):
        now_s += WINDOW_S
        _window(guard, state, now_s, 300, 0.02, rng, 0.3)
    assert state.trim == 0, "and back when latency is"


def test_who_does_less_with_less_is_restored_and_left_alone() -> None:
    guard, state, rng, now_s = Guard(window_s=NOW_S), State(100.0), Random(1), NOW_S
    for _ in range(20):
        now_s += WINDOW_S
        _window(guard, state, now_s, 1000, 0.02, rng, 0.3)
    trims = []
    for _ in range(16):
        now_s += WINDOW_S
        _window(guard, state, now_s, int(10 * (state.trim or 100)), 0.05, rng, 0.3)
        trims.append(state.trim)
    assert trims[2:5] == [90.0, 90.0, 90.0]
    assert trims[5:14] == [0.0] * 9


def test_a_long_tail_is_not_taken_for_slowness() -> None:
    guard, state, rng, now_s = Guard(window_s=NOW_S), State(100.0), Random(1), NOW_S
    for _ in range(200):
        now_s += WINDOW_S
        assert _window(guard, state, now_s, 300, 0.02, rng, 1.2) == ""


def test_few_calls_say_nothing_and_no_cap_stays_for_ever() -> None:
    guard = Guard(window_s=NOW_S)
    for _ in range(CALLS_LEAST - 1):
        noted(guard, 1.0)
    assert not due(guard, NOW_S + WINDOW_S)
    assert due(guard, NOW_S + WINDOW_MOST_S)
    state = State(100.0, trim=10.0)
    guard.cap, now_s = 10.0, NOW_S
    for _ in range(40):
        now_s += WINDOW_MOST_S
        turn(guard, state, TERMS, now_s)
    assert state.trim == 0

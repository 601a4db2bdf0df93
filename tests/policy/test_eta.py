"""Forecasts: the range of the replays, its correction by what came, what is shown of it, and when it is withdrawn."""

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy import eta
from harness.policy.eta import Borne, Range, Shown, Trust

SECONDS = st.floats(0.0, 1e6)
RANGES = st.builds(lambda a, b: Range(min(a, b), max(a, b)), SECONDS, SECONDS)


def borne(actual_s: float | None, *, age_s: float) -> Borne:
    return Borne(priority=2, raw=Range(10.0, 20.0), shown=Range(10.0, 20.0), age_s=age_s, actual_s=actual_s)


def lognormal(n: int, *, mu: float, seed: int = 1) -> list[Borne]:
    """Truths of a law that the forecast (median 10, P90 36 of sigma 1) is right about when `mu` is log 10."""
    dice = Random(seed)
    said = Range(10.0, 10.0 * math.exp(1.2816))
    return [
        Borne(priority=2, raw=said, shown=said, age_s=1000.0 + i, actual_s=dice.lognormvariate(mu, 1.0))
        for i in range(n)
    ]


def test_of_nineteen_values_the_tenth_and_the_eighteenth_are_the_range() -> None:
    values = [float(n) for n in range(19)]
    Random(1).shuffle(values)
    assert eta.of_replays(values) == Range(9.0, 17.0)
    with pytest.raises(ValueError, match="19 replays, not of 18"):
        eta.of_replays(values[1:])


def test_what_more_than_half_of_the_replays_did_not_come_to_is_not_in_sight() -> None:
    assert eta.of_replays([1.0] * 9 + [math.inf] * 10).p50_s == math.inf
    assert eta.of_replays([1.0] * 10 + [math.inf] * 9) == Range(1.0, math.inf)


def test_few_forecasts_correct_nothing_and_judge_nothing() -> None:
    found = eta.calibrate(lognormal(39, mu=5.0))
    assert (found.trust, found.n, eta.factors_of(found, 2)) == (Trust.LEARNING, 39, (1.0, 1.0))


def test_many_forecasts_of_few_passes_judge_nothing_because_they_err_together() -> None:
    found = eta.calibrate([borne(500.0, age_s=1000.0 + i % 7) for i in range(200)])
    assert found.trust is Trust.LEARNING


def test_right_forecasts_are_left_alone() -> None:
    found = eta.calibrate(lognormal(400, mu=math.log(10.0)))
    assert found.trust is Trust.GOOD
    assert found.p50_covers == pytest.approx(0.5, abs=0.08)
    assert found.p90_covers == pytest.approx(0.9, abs=0.05)
    assert eta.factors_of(found, 2) == pytest.approx((1.0, 1.0), abs=0.2)


def test_forecasts_that_are_twice_too_short_are_corrected_and_those_that_are_twice_too_long_as_well() -> None:
    p50, p90 = eta.factors_of(eta.calibrate(lognormal(400, mu=math.log(20.0))), 2)
    assert 1.6 <= p50 <= 2.4 and p90 >= 1.6
    p50, p90 = eta.factors_of(eta.calibrate(lognormal(400, mu=math.log(5.0))), 2)
    assert 0.4 <= p50 <= 0.7 and 0.4 <= p90 <= 0.7


def test_a_range_that_is_not_borne_out_widens_and_then_is_withdrawn() -> None:
    trusts = []
    for share in (0.9, 0.75, 0.4):
        found = eta.calibrate([borne(15.0 if i % 100 < 100 * share else 90.0, age_s=1000.0 + i) for i in range(200)])
        trusts.append(found.trust)
    assert trusts == [Trust.GOOD, Trust.WIDENED, Trust.WITHDRAWN]


def test_a_withdrawn_one_comes_back_when_the_replays_are_right_again() -> None:
    bad = [replace(borne(90.0, age_s=2000.0 + i), shown=None) for i in range(300)]
    assert eta.calibrate(bad).trust is Trust.WITHDRAWN
    good = [replace(borne(15.0, age_s=1000.0 + i), shown=None) for i in range(200)]
    assert eta.calibrate([*good, *bad]).trust is Trust.GOOD


def test_one_that_waits_beyond_its_p90_is_a_miss_at_once_and_one_that_may_still_be_right_says_nothing() -> None:
    late = [borne(None, age_s=25.0 + i) for i in range(100)]
    assert eta.calibrate(late).p90_covers == 0.0
    assert eta.calibrate([borne(None, age_s=15.0 + i / 100) for i in range(100)]).n == 0


def test_only_the_last_five_hundred_count() -> None:
    old = [borne(90.0, age_s=9000.0 + i) for i in range(5000)]
    assert eta.calibrate([*lognormal(500, mu=math.log(10.0)), *old]).trust is Trust.GOOD


def test_a_class_with_forecasts_enough_is_corrected_by_its_own() -> None:
    late = [replace(one, priority=3) for one in lognormal(200, mu=math.log(40.0))]
    found = eta.calibrate([*lognormal(200, mu=math.log(10.0)), *late])
    assert eta.factors_of(found, 3)[0] > 2 * eta.factors_of(found, 2)[0]
    assert eta.factors_of(found, 0) == eta.factors_of(found, 1)


@given(RANGES, st.floats(0.2, 5.0), st.floats(0.2, 5.0))
def test_a_corrected_range_is_in_order_and_none_of_it_is_past(said: Range, p50: float, p90: float) -> None:
    found = eta.corrected(said, (p50, p90))
    assert 0.0 <= found.p50_s <= found.p90_s


@given(RANGES, RANGES, SECONDS)
def test_what_is_shown_is_in_order_never_past_and_moves_by_a_quarter_of_the_wait_at_most(
    before: Range, made: Range, now_s: float
) -> None:
    found, why = eta.smooth(Shown(before), Shown(made), now_s)
    assert why is None
    assert now_s <= found.p50_s <= found.p90_s
    if before.p50_s > now_s and made.p50_s > now_s:
        most_s = max(eta.JUMP_FREE_S, eta.JUMP_MOST * (before.p50_s - now_s))
        assert abs(found.p50_s - before.p50_s) <= most_s + 1e-6
        assert min(before.p50_s, made.p50_s) - 1e-6 <= found.p50_s <= max(before.p50_s, made.p50_s) + 1e-6


def test_it_jumps_when_something_happened_and_says_what() -> None:
    before = Shown(Range(100.0, 200.0), {"slots": 8, "paused": ()})
    made = Shown(Range(1000.0, 2000.0), {"slots": 2, "paused": ()})
    assert eta.smooth(before, made, 50.0) == (Range(1000.0, 2000.0), "slots")
    assert eta.smooth(before, replace(made, under=before.under), 50.0)[0].p50_s == 112.5
    assert eta.smooth(None, made, 50.0) == (Range(1000.0, 2000.0), None)

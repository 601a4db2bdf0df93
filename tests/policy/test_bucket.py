"""Buckets admit no more than the quota in any minute, and nearly all of it, however wrong the estimates are."""

from collections.abc import Sequence
from copy import copy
from heapq import heappop, heappush
from math import exp
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.policy.bucket import (
    BURST_MOST_S,
    RATE_MOST,
    Bucket,
    burst_s,
    charge_of,
    settle,
    stop,
    take,
    tighten,
    unit_s,
    wait_s,
)

NOW_S = 1000.0
QUOTAS = st.floats(1.0, 1e7)
PARTS = st.floats(0.0, 0.3)  # of a minute's quota


@given(QUOTAS, st.lists(st.tuples(PARTS, st.floats(0.0, 30.0)), max_size=60))
def test_no_window_admits_more_than_its_rate_and_a_burst(quota: float, asks: list[tuple[float, float]]) -> None:
    bucket, now_s = Bucket(typical=0.05 * quota), NOW_S
    admitted: list[tuple[float, float, float]] = []
    for part, passed_s in asks:
        now_s += passed_s
        charge = part * quota
        if wait_s(bucket, quota, now_s, charge) == 0:
            admitted.append((now_s, charge, burst_s(quota, bucket.typical)))
            take(bucket, quota, now_s, charge)
    for index, (start_s, _, _) in enumerate(admitted):
        for end_s, last, burst in admitted[index:]:
            within = sum(charge for at_s, charge, _ in admitted[index:] if at_s <= end_s)
            rate = RATE_MOST * quota / 60.0
            # The last one may be larger than the burst: it goes when the bucket is full, and is debt after that.
            assert within <= rate * (end_s - start_s + max(burst, BURST_MOST_S)) + last + 1e-6 * quota


@given(QUOTAS, PARTS, PARTS, st.floats(0.0, 100.0))
def test_a_refusal_changes_nothing_and_the_wait_that_it_names_suffices(
    quota: float, first: float, second: float, passed_s: float
) -> None:
    bucket = Bucket()
    take(bucket, quota, NOW_S, first * quota)
    before, now_s = copy(bucket), NOW_S + passed_s
    named_s = wait_s(bucket, quota, now_s, second * quota)
    assert bucket == before
    assert wait_s(bucket, quota, now_s + named_s + 1e-6, second * quota) == 0


@given(QUOTAS, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_what_was_not_used_comes_back_and_what_was_used_too_much_is_debt(
    quota: float, charged: float, actual: float
) -> None:
    bucket, exact = Bucket(typical=1.0), Bucket(typical=1.0)
    take(bucket, quota, NOW_S, charged * quota)
    take(exact, quota, NOW_S, charged * quota)
    settle(bucket, quota, NOW_S, charged=charged * quota, estimate=0.0, actual=actual * quota)
    later_s = NOW_S + 10
    less = wait_s(bucket, quota, later_s, 0.05 * quota) - wait_s(exact, quota, later_s, 0.05 * quota)
    assert (less <= 1e-9) if actual <= charged else (less >= -1e-9)


@given(QUOTAS, st.lists(st.tuples(st.floats(0, 1e7), st.floats(0, 1e7)), max_size=20))
def test_a_settlement_never_gives_more_than_a_full_bucket(quota: float, calls: list[tuple[float, float]]) -> None:
    bucket = Bucket(typical=1.0)
    for charged, actual in calls:
        settle(bucket, quota, NOW_S, charged=charged, estimate=1.0, actual=actual)
        assert bucket.tat_s >= NOW_S - burst_s(quota, bucket.typical) - 1e-9
        assert 0.1 <= bucket.ratio <= 4.0


@given(QUOTAS, st.floats(0, 1e8), st.floats(-1, 1e8), PARTS)
def test_headers_and_refusals_only_tighten(quota: float, limit: float, remaining: float, part: float) -> None:
    bucket = Bucket(typical=0.01 * quota)
    take(bucket, quota, NOW_S, part * quota)
    before_s = wait_s(bucket, quota, NOW_S, 0.01 * quota)
    tighten(bucket, quota, NOW_S, limit=limit, remaining=remaining)
    tightened_s = wait_s(bucket, quota, NOW_S, 0.01 * quota)
    assume(limit == 0 or limit >= 0.05 * quota)  # below, the call is larger than the burst, and the burst grows with it
    assert tightened_s >= before_s - BURST_MOST_S
    if limit == 0:
        assert tightened_s >= before_s - 1e-9
    stop(bucket, quota, NOW_S, 7.0)
    assert wait_s(bucket, quota, NOW_S, 0.01 * quota) >= 7.0 - 1e-6


@given(QUOTAS, st.floats(0.0, 1e7))
def test_a_minute_of_rate_and_a_burst_are_the_quota(quota: float, typical: float) -> None:
    burst = burst_s(quota, typical)
    assert 60.0 + burst <= quota * unit_s(quota, burst) + 1e-6
    assert 5.0 <= burst <= BURST_MOST_S


@pytest.mark.parametrize("wrong", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("per_minute", "mean"), [(60_000.0, 500.0), (600_000.0, 2_000.0)])
def test_nine_tenths_of_the_quota_are_used_and_no_minute_is_above_it_with_estimates_that_are_twice_off(
    per_minute: float, mean: float, wrong: float
) -> None:
    admitted = _played(Random(3), per_minute, mean, wrong)
    used = sum(tokens for _, tokens in admitted) / per_minute / 20
    assert used >= 0.9
    assert _worst_minute(admitted) <= 1.03 * per_minute


def _played(rng: Random, per_minute: float, mean: float, wrong: float) -> list[tuple[float, float]]:
    """Twenty minutes of calls that ask again every 0.1 s; each ends after about 5 s and says what it used."""
    bucket, now_s, admitted = Bucket(), NOW_S, []
    running: list[tuple[float, float, float, float]] = []
    actual = mean * exp(rng.gauss(-0.18, 0.6))
    while now_s < NOW_S + 1200:
        while running and running[0][0] <= now_s:
            end_s, charged, estimate, used = heappop(running)
            settle(bucket, per_minute, end_s, charged=charged, estimate=estimate, actual=used)
        charge = charge_of(bucket, actual * wrong)
        if wait_s(bucket, per_minute, now_s, charge) > 0:
            now_s += 0.1
            continue
        take(bucket, per_minute, now_s, charge)
        admitted.append((now_s, actual))
        heappush(running, (now_s + 5 * exp(rng.gauss(-0.125, 0.5)), charge, actual * wrong, actual))
        actual = mean * exp(rng.gauss(-0.18, 0.6))
    return admitted


def _worst_minute(admitted: Sequence[tuple[float, float]]) -> float:
    first, within, worst = 0, 0.0, 0.0
    for at_s, tokens in admitted:
        within += tokens
        while admitted[first][0] <= at_s - 60.0:
            within -= admitted[first][1]
            first += 1
        worst = max(worst, within)
    return worst

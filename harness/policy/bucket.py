"""Requests and tokens per minute: a bucket by arrival times (GCRA); reservations are settled by what was used. Pure.

B1  A bucket admits what it has room for, and charges the whole; several are asked first and charged together, so a
    refusal charges nothing. What is larger than the burst goes when the bucket is full, and the rest is debt.
B2  The rate is quota / (60 s + burst) at most RATE_MOST of the quota, so that no window of 60 s admits more than the
    quota, wherever it begins.
B3  Settled once, by what was really used: too much comes back, too little is debt. Nothing settled: it stays charged.
B4  Headers and refusals of rate type only tighten.
B5  Estimates that are wrong again and again are corrected: `ratio` is the mean of actual / estimate.

`tat_s` is the theoretical arrival time: the bucket is full while it is in the past. All steps change the bucket in
place; times are seconds, costs are units (requests or tokens). Invariants: the wait that is returned suffices for a
lone caller; admitted in any window of w seconds <= rate * (w + burst) + what came back.
"""

from dataclasses import dataclass

BURST_LEAST_S = 5.0
BURST_MOST_S = 30.0  # a bucket for calls that are as large as half a minute of quota uses two thirds of it
BURST_CALLS = 3.0  # typical reservations that a burst holds: with fewer, what comes back can't be used
RATE_MOST = 0.95
TYPICAL_WEIGHT = 0.05  # of one call in the mean reservation
RATIO_WEIGHT = 0.10  # of one call in the mean of actual / estimate
RATIO_LEAST, RATIO_MOST = 0.1, 4.0
REMAINING_S = 60.0  # what a header counts, it counts by the minute


@dataclass(slots=True)
class Bucket:
    """What is kept of one bucket. `limit`: what a header named as the quota (0: none did)."""

    tat_s: float = 0.0
    typical: float = 0.0
    ratio: float = 1.0
    limit: float = 0.0


def quota_of(bucket: Bucket, per_minute: float) -> float:
    """Return the quota that holds: the configured one, or less when a header named less."""
    return min(per_minute, bucket.limit) if bucket.limit > 0 else per_minute


def burst_s(per_minute: float, typical: float) -> float:
    """Return the burst in seconds of rate: at least five, and room for three typical reservations.

    >>> burst_s(600, 1.0), round(burst_s(60_000, 4_000), 1)
    (5.0, 15.0)
    """
    share = BURST_CALLS * typical / per_minute  # of a minute
    if share >= BURST_MOST_S / (60.0 + BURST_MOST_S):
        return BURST_MOST_S
    return min(BURST_MOST_S, max(BURST_LEAST_S, 60.0 * share / (1.0 - share)))


def unit_s(per_minute: float, burst: float) -> float:
    """Return the seconds that one unit costs (B2).

    >>> round(1 / unit_s(600, 5.0), 3)
    9.231
    """
    return max((60.0 + burst) / per_minute, 60.0 / (RATE_MOST * per_minute))


def charge_of(bucket: Bucket, estimate: float) -> float:
    """Return what an estimate is charged as, by what estimates turned out to be (B5)."""
    return estimate * bucket.ratio


def wait_s(bucket: Bucket, per_minute: float, now_s: float, charge: float) -> float:
    """Return how long a charge has to wait: 0 when it may go now. Changes nothing."""
    quota = quota_of(bucket, per_minute)
    burst = burst_s(quota, bucket.typical)
    cost_s = min(charge * unit_s(quota, burst), burst)
    return max(0.0, max(bucket.tat_s, now_s) + cost_s - burst - now_s)


def take(bucket: Bucket, per_minute: float, now_s: float, charge: float) -> None:
    """Charge it; only after `wait_s` said 0 for every bucket of the call."""
    quota = quota_of(bucket, per_minute)
    burst = burst_s(quota, bucket.typical)
    bucket.tat_s = max(bucket.tat_s, now_s) + charge * unit_s(quota, burst)
    bucket.typical += (charge - bucket.typical) * (TYPICAL_WEIGHT if bucket.typical else 1.0)


def settle(bucket: Bucket, per_minute: float, now_s: float, *, charged: float, estimate: float, actual: float) -> None:
    """Correct a charge by what was used. Once for a call: who calls this keeps that."""
    quota = quota_of(bucket, per_minute)
    burst = burst_s(quota, bucket.typical)
    bucket.tat_s = max(bucket.tat_s + (actual - charged) * unit_s(quota, burst), now_s - burst)
    if estimate > 0:
        found = min(max(actual / estimate, RATIO_LEAST), RATIO_MOST)
        bucket.ratio += (found - bucket.ratio) * RATIO_WEIGHT


def tighten(bucket: Bucket, per_minute: float, now_s: float, *, limit: float, remaining: float) -> None:
    """Take over what headers say (negative: they don't): a lower limit, and less left than is thought (B4)."""
    if limit > 0:
        bucket.limit = limit
    if remaining < 0:
        return
    quota = quota_of(bucket, per_minute)
    burst = burst_s(quota, bucket.typical)
    left_s = min(remaining * unit_s(quota, burst), burst)
    bucket.tat_s = max(bucket.tat_s, now_s + burst - left_s)


def stop(bucket: Bucket, per_minute: float, now_s: float, retry_after_s: float) -> None:
    """Let nothing through for `retry_after_s` (a refusal of rate type)."""
    quota = quota_of(bucket, per_minute)
    bucket.tat_s = max(bucket.tat_s, now_s + retry_after_s + burst_s(quota, bucket.typical))

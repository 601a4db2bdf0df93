"""How many tasks may be released towards a resource that is held by the call: a target for the planner. Pure.

A permit is taken for one call, a slot for the whole task; so the planner looks at what the permits say (a Reading) and
releases no more than can soon be served. What a reading says is old by up to a quarter of a second, what is released is
exact; so the answer is a number of leases, as a capacity is, and what was released or ended since is in it already.

R2  phi, the share of a task's life in its slot that it spends in calls: EWMA (30 s) of N / (released - waiting).
R3  P1 to P3: N + waiting + (released and not yet asking) < L + 1, and released <= ceil(1.1 L / phi). With those that
    have asked and neither call nor wait, `between`, the first is: released < L + 1 + between.
R5  Who was postponed goes before who is fresh: a flow's tasks go by age, and a task keeps its age.
R6. P0 waits for no call of others: its own waiting + (released and not yet asking) < L + 1.
C1  A breaker that is open, a block, or a rate limit with a long wait: nothing is released, P0 neither.
C2  A breaker that may be tried: as many as may probe. After it, and after a long block: the ramp of policy.ramp.
C3  In DRAIN L is what is in flight: one task more waits, to be the canary.
C4  A rate limit that is felt: only so many wait as it admits in RATE_AHEAD_S.
C5  Nothing is known (Redis can't be read): half of what is proven, and what was shut stays shut until its time.

Invariants: a refusal is never answered by a release; more limit never allows less; P0 is never allowed less than P1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, exp
from typing import Protocol

from harness.policy import ramp
from harness.policy.breaker import PROBES

PHI_OVER_S = 30.0
PHI_LEAST, PHI_MOST = 0.05, 4.0  # a task that calls for a twentieth of its life; one that has four calls at once
SLOTS_AHEAD = 1.1  # slots for one tenth more than the limit, so that the limiter can probe
BLOCK_AHEAD_S = 0.25  # so long before a block ends who is released will find it over: a reading's age
RATE_AHEAD_S = 0.5  # of waiting in slots for a rate limit: two readings
RATE_LONG_S = 5.0  # a wait beyond what a slot is held for
RATE_FORGET_S = 1.0  # between two calls a bucket looks full for a moment
RATE_LEAST_S = 0.01
LONG_SHUT_S = 30.0  # shut for longer, a resource comes back by the ramp
TOLD_RATIO = 0.2  # a limit is told anew when it has moved by more: probes move it every few seconds


class Reading(Protocol):
    """What the permits of one resource say, at `at_s`. Moments are epoch seconds of the clock of `at_s`; 0: none.

    `asked`: tasks that have asked for a permit at least once, and neither ended nor given up since; `waiting_p0`: of
    those that wait now. `rate_wait_s`: until the buckets admit one call more.
    """

    @property
    def at_s(self) -> float: ...
    @property
    def limit(self) -> int: ...
    @property
    def proven(self) -> int | None: ...
    @property
    def ceiling(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def waiting_p0(self) -> int: ...
    @property
    def asked(self) -> int: ...
    @property
    def mode(self) -> str: ...
    @property
    def blocked_until_s(self) -> float: ...
    @property
    def breaker(self) -> str: ...
    @property
    def breaker_until_s(self) -> float: ...
    @property
    def rate_wait_s(self) -> float: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumed:
    """A Reading that nobody read: of a resource that nobody has asked for, or while Redis can't be read."""

    at_s: float
    limit: int
    proven: int | None
    ceiling: int
    in_flight: int = 0
    waiting: int = 0
    waiting_p0: int = 0
    asked: int = 0
    mode: str = "hold"
    blocked_until_s: float = 0.0
    breaker: str = "closed"
    breaker_until_s: float = 0.0
    rate_wait_s: float = 0.0


class Why(StrEnum):
    """Why a resource is shut."""

    BREAKER = "breaker"
    BLOCKED = "blocked"
    RATE = "rate"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Shut:
    """A resource that nothing is released towards, and until when (None: nobody knows)."""

    why: Why
    until_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """What a leader has learned of a resource from its readings so far. `phi`: rule R2.

    `rate_wait_s`: the wait for a rate limit, as felt lately; `shut_since_s`, `back_s`: since when it is shut, and when
    it came back after long (None: it isn't, it didn't). `told`, `told_since_s`: the limit that is told, and since when.
    """

    at_s: float
    phi: float = 1.0
    rate_wait_s: float = 0.0
    shut_since_s: float | None = None
    tried: bool = False  # its breaker has been open since it was shut
    back_s: float | None = None
    told: int = 0
    told_since_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """How many leases may be in use: for P1 to P3, and with P0. `trying`: only probes are let through."""

    most: int
    urgent: int
    shut: Shut | None = None
    trying: bool = False


def learn(before: Trend | None, reading: Reading, *, released: int) -> Trend:
    """Return what is known with one reading more. `released`: leases in use that need the resource."""
    now_s = reading.at_s
    one = before or Trend(at_s=now_s, told=reading.limit, told_since_s=now_s)
    passed_s = max(0.0, now_s - one.at_s)
    active = released - reading.waiting
    phi = one.phi
    if active > 0:
        sample = min(PHI_MOST, max(PHI_LEAST, reading.in_flight / active))
        phi += (sample - phi) * (1.0 - exp(-passed_s / PHI_OVER_S))
    felt_s = max(reading.rate_wait_s, one.rate_wait_s * exp(-passed_s / RATE_FORGET_S))
    one = replace(one, at_s=now_s, phi=phi, rate_wait_s=felt_s if felt_s >= RATE_LEAST_S else 0.0)
    one = _told(one, reading)
    tried = reading.breaker != "closed"
    if tried or shut(reading, now_s) is not None:
        since_s = now_s if one.shut_since_s is None else one.shut_since_s
        return replace(one, shut_since_s=since_s, tried=tried or one.tried)
    if one.shut_since_s is None:
        return one
    long = one.tried or now_s - one.shut_since_s > LONG_SHUT_S
    return replace(one, shut_since_s=None, tried=False, back_s=now_s if long else one.back_s)


def shut(reading: Reading, now_s: float) -> Shut | None:
    """Return why nothing may be released towards a resource now, if so (rule C1)."""
    if reading.breaker == "open" and reading.breaker_until_s > now_s:
        return Shut(Why.BREAKER, reading.breaker_until_s)
    if reading.blocked_until_s > now_s + BLOCK_AHEAD_S:
        return Shut(Why.BLOCKED, reading.blocked_until_s)
    open_s = reading.at_s + reading.rate_wait_s
    if reading.rate_wait_s > RATE_LONG_S and open_s > now_s + BLOCK_AHEAD_S:
        return Shut(Why.RATE, open_s)
    return Shut(Why.LIMIT) if reading.limit <= 0 else None


def allow(reading: Reading, trend: Trend, now_s: float) -> Allowed:
    """Return how many leases may be in use that need a resource. `now_s`: by the clock of the reading.

    >>> read = Assumed(at_s=0.0, limit=50, proven=None, ceiling=50, in_flight=40, waiting=0, asked=60)
    >>> trend = learn(None, read, released=60)
    >>> allow(read, trend, 0.0)
    Allowed(most=55, urgent=111, shut=None, trying=False)
    >>> allow(replace(read, breaker="open", breaker_until_s=5.0), trend, 1.0)
    Allowed(most=0, urgent=0, shut=Shut(why=<Why.BREAKER: 'breaker'>, until_s=5.0), trying=False)
    """
    closed = shut(reading, now_s)
    if closed is not None:
        return Allowed(most=0, urgent=0, shut=closed)
    trying = reading.breaker != "closed"
    limit = _limit(reading, trend, now_s)
    ready, urgent = limit + 1, limit + 1
    if trend.rate_wait_s > 0:
        soon = 1 + int(RATE_AHEAD_S / trend.rate_wait_s)
        ready, urgent = min(ready, reading.in_flight + soon), min(urgent, soon)
    between = max(0, reading.asked - reading.in_flight - reading.waiting)
    most = min(ready + between, ceil(SLOTS_AHEAD * limit / trend.phi - 1e-9)) if limit else ready + between
    return Allowed(
        most=most,
        urgent=max(most, urgent + max(0, reading.asked - reading.waiting_p0)),
        trying=trying,
    )


def blind(last: Reading | None, *, limit: int, proven: int | None, ceiling: int, now_s: float) -> Assumed:
    """Return what is taken for true while Redis can't be read (rule C5). `limit`, `proven`: the last that were kept."""
    half = max(1, (limit if proven is None else min(limit, proven)) // 2)
    one = Assumed(at_s=now_s, limit=half, proven=proven, ceiling=ceiling)
    if last is None:
        return one
    return replace(
        one,
        blocked_until_s=last.blocked_until_s,
        breaker="open" if last.breaker == "open" and last.breaker_until_s > now_s else "closed",
        breaker_until_s=last.breaker_until_s,
    )


def capacities(by_task: Mapping[str, int], allowed: Mapping[str, Allowed]) -> tuple[dict[str, int], dict[str, int]]:
    """Return what a plan takes for the resources' capacities, and of how many more P0 has."""
    all_of_them = dict(by_task)
    urgent: dict[str, int] = {}
    for name, one in allowed.items():
        all_of_them[name] = one.most
        if one.urgent > one.most:
            urgent[name] = one.urgent - one.most
    return all_of_them, urgent


def _limit(reading: Reading, trend: Trend, now_s: float) -> int:
    """The limit that releases go by."""
    if reading.breaker != "closed":
        return min(reading.limit, PROBES - 1)
    limit = reading.limit
    if reading.mode == "drain":
        limit = min(limit, reading.in_flight)
    if trend.back_s is not None:
        share = ramp.share(now_s - trend.back_s)
        if share < 1.0:
            limit = min(limit, ceil(share * max(limit, reading.proven or 0) - 1e-9))
    return limit


def _told(trend: Trend, reading: Reading) -> Trend:
    moved = abs(reading.limit - trend.told)
    whole = reading.limit >= reading.ceiling and trend.told != reading.limit
    if moved > max(1.0, TOLD_RATIO * trend.told) or whole:
        return replace(trend, told=reading.limit, told_since_s=reading.at_s)
    return trend

"""Which resource holds a task, and why there is none of it: the reasons that downstreams give. Pure.

What holds depends on the resource signature, and on whether it is P0; binding.py asks once for each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import assert_never

from harness.policy.calls import Allowed, Shut, Trend, Why
from harness.policy.flow import needs
from harness.policy.outlook import NO_CAP
from harness.policy.reasons import Code, Fact, Reason
from harness.policy.resources import Live, Resource
from harness.policy.room import Room

RATE_TOLD_S = 5.0  # the end of a rate limit moves with every call: it is told in such steps
OPERATOR = "an operator"  # who it was is the operators' business


@dataclass(frozen=True, kw_only=True, slots=True)
class Downstream:
    """How a resource stands. `most`: that one task may need of it; `shut`, `trying`: see policy.calls.Allowed.

    `calls`: how many there may be at once, if it is held by the call.
    `limit`, if it is less than it could be, `since_s`, and `by` whom ("": it follows what the downstream can take).
    `shut_since_s`: since when it is shut. Moments in epoch seconds; None: nobody knows.
    """

    most: int
    shut: Shut | None = None
    trying: bool = False
    shut_since_s: float | None = None
    calls: int | None = None
    limit: int | None = None
    since_s: float | None = None
    by: str = ""


def stands(
    configured: Resource, live: Live, *, trend: Trend | None, allowed: Allowed | None, changed_s: float | None
) -> Downstream:
    """Return how a resource stands. `trend`, `allowed`: if it is held by the call; `changed_s`: of its limit."""
    resource = live.resource
    most = NO_CAP if resource.held == "call" else resource.capacity
    told = trend.told if trend is not None else live.limit
    limit, since_s, by = None, None, ""
    if trend is not None and resource.adaptive and trend.told < resource.capacity:
        limit, since_s = trend.told, trend.told_since_s
    elif live.limit < resource.capacity and resource.held == "task":
        limit, since_s = live.limit, changed_s
    elif resource.capacity < configured.capacity:
        override = live.overrides.get("capacity")  # of a learned limit there is a change only once somebody asks
        since_s = changed_s if changed_s is not None or override is None else override.created_s
        limit, by = resource.capacity, OPERATOR
    return Downstream(
        most=most,
        shut=None if allowed is None else allowed.shut,
        trying=allowed is not None and allowed.trying,
        shut_since_s=None if trend is None else trend.shut_since_s,
        calls=told if resource.held == "call" else None,
        limit=limit,
        since_s=since_s,
        by=by,
    )


class Shortage:
    """What holds tasks by their signature, at one moment. `capacities`: as plans count them."""

    def __init__(self, room: Room, capacities: Mapping[str, int], downstreams: Mapping[str, Downstream]) -> None:
        self._room = room
        self._capacities = capacities
        self._downstreams = downstreams

    def too_large(self, signature: str, priority: int) -> Reason | None:
        """Return whether a task needs more of something than there is."""
        for resource, n in needs(signature):
            one = self._downstreams.get(resource)
            most = self._capacities.get(resource, 0) if one is None else one.most
            if n > most:
                return Reason(Code.TOO_LARGE, resource, {"resource": resource, "needs": n, "most": most})
        return None

    def shut(self, signature: str, priority: int) -> Reason | None:
        """Return whether a resource is shut, or only tried (rules C1 and C2 of policy.calls)."""
        for resource, n in needs(signature):
            one = self._downstreams.get(resource)
            if one is not None and (one.shut or (one.trying and self._left(resource, priority) < n)):
                reason = _shut(resource, one)
                if reason is not None:
                    return reason
        return None

    def used_up(self, signature: str, priority: int) -> Reason | None:
        """Return whether all of a resource is in use."""
        for resource, n in needs(signature):
            if self._left(resource, priority) >= n:
                continue
            one = self._downstreams.get(resource)
            if one is not None and one.limit is not None:
                return _limited(resource, one)
            left, limit = self._room.resources.get(resource, 0), self._capacities.get(resource, 0)
            if one is not None and one.calls is not None:  # as many tasks are on the way as its calls can serve
                left, limit = 0, one.calls
            figures: dict[str, Fact | None] = {"resource": resource, "used": limit - left, "limit": limit}
            return Reason(Code.RESOURCE, resource, figures | ({"needs": n} if n > 1 else {}))
        return None

    def _left(self, resource: str, priority: int) -> int:
        left = self._room.resources.get(resource, 0)
        return left if priority else left + self._room.urgent.get(resource, 0)


def _shut(resource: str, one: Downstream) -> Reason | None:
    why = Why.BREAKER if one.shut is None else one.shut.why
    until_s = None if one.shut is None else one.shut.until_s
    match why:
        case Why.BREAKER:
            facts: dict[str, Fact | None] = {
                "resource": resource,
                "since_s": one.shut_since_s,
                "until_s": until_s,
            }
            return Reason(Code.BREAKER, resource, facts)
        case Why.BLOCKED:
            return Reason(Code.BLOCKED, resource, {"resource": resource, "until_s": until_s})
        case Why.RATE:
            told_s = None if until_s is None else ceil(until_s / RATE_TOLD_S) * RATE_TOLD_S
            return Reason(Code.RATE, resource, {"resource": resource, "until_s": told_s})
        case Why.LIMIT:
            return None  # as any limit that is used up
        case _:
            assert_never(why)


def _limited(resource: str, one: Downstream) -> Reason:
    facts: dict[str, Fact | None] = {
        "resource": resource,
        "limit": one.limit,
        "since_s": one.since_s,
        "author": one.by or None,
    }
    return Reason(Code.LIMITED, resource, facts | ({"source": "operator"} if one.by else {}))

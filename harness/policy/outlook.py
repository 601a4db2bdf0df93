"""All resources as a leader sees them: what it was told last, what it has learned, and what a plan may release. Pure.

An Outlook is a value that somebody else reads (a thread, the simulator) and hands over whole; a Course is what the one
who plans makes of one after the other. What tasks hold is a capacity, exact; what calls hold is a target (calls.py).

Invariants: the same outlooks and leases give the same capacities; a resource that nobody has read yet begins where its
limiter would.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.policy import calls
from harness.policy.calls import Allowed, Assumed, Reading, Trend
from harness.policy.flow import needs
from harness.policy.resources import Live, Resource
from harness.policy.room import InFlight

NO_CAP = 10**9  # what calls hold is checked by their permits, never by the commit of a release
START_LEAST = 4  # the limit that an adaptive limiter begins with, where none is proven


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """All resources at one moment. `by_task`: how many there are of what tasks hold; `readings`: of what calls hold.

    `at_s`: by the clock of the readings, when `taken_s` was by the clock of who took it. `blind`: the readings are
    assumed, because none could be read. `live`: the resources with overrides.
    """

    by_task: Mapping[str, int]
    readings: Mapping[str, Reading]
    at_s: float = 0.0
    taken_s: float = 0.0
    blind: bool = False
    live: Mapping[str, Live] = field(default_factory=dict)

    def now_s(self, clock_s: float) -> float:
        """Return the time by the clock of the readings. `clock_s`: now, by the clock of who took the outlook."""
        return self.at_s + max(0.0, clock_s - self.taken_s)


def configured(resources: Iterable[Resource], *, at_s: float = 0.0, taken_s: float = 0.0) -> Outlook:
    """Return the outlook of who has read nothing yet."""
    return of({one.name: Live(resource=one) for one in resources}, {}, at_s=at_s, taken_s=taken_s)


def of(
    live: Mapping[str, Live],
    readings: Mapping[str, Reading],
    *,
    at_s: float,
    taken_s: float,
    blind: bool = False,
) -> Outlook:
    """Put together what the database says of resources and what their permits say.

    `blind`: the permits can't be read, and `readings` are the last that were (rule C5).
    """
    by_task = {name: one.limit for name, one in live.items() if one.resource.held == "task"}
    found: dict[str, Reading] = {}
    for name, one in live.items():
        if one.resource.held == "task":
            continue
        last = readings.get(name)
        if last is None or blind:
            found[name] = _assumed(one, last, at_s=at_s, blind=blind)
        else:
            found[name] = last
    return Outlook(by_task=by_task, readings=found, at_s=at_s, taken_s=taken_s, blind=blind, live=live)


class Course:
    """What a leader makes of the outlooks that it is given. One thread follows; others may ask what is allowed."""

    __slots__ = ("caps", "outlook", "tenant_caps", "trends")

    def __init__(self) -> None:
        self.outlook: Outlook | None = None
        self.trends: Mapping[str, Trend] = {}
        self.caps: Mapping[str, int] = {}  # what a commit checks
        self.tenant_caps: Mapping[str, int] = {}

    def follow(self, outlook: Outlook, flight: Sequence[InFlight]) -> None:
        """Learn from an outlook, once. `flight`: what is in flight now."""
        if outlook is self.outlook:
            return
        released = _released(flight)
        # Replaced as wholes, the trends first: others read them from their threads.
        self.trends = {
            name: calls.learn(self.trends.get(name), reading, released=released.get(name, 0))
            for name, reading in outlook.readings.items()
        }
        self.tenant_caps = {
            name: one.resource.tenant_cap for name, one in outlook.live.items() if one.resource.tenant_cap is not None
        }
        self.caps = dict(outlook.by_task) | dict.fromkeys(outlook.readings, NO_CAP)
        self.outlook = outlook

    def allowed(self, clock_s: float) -> dict[str, Allowed]:
        """Return how many leases each resource may have that is held by the call. `clock_s`: see Outlook.now_s."""
        outlook, trends = self.outlook, self.trends
        if outlook is None:
            return {}
        now_s = outlook.now_s(clock_s)
        return {
            name: calls.allow(reading, trends.get(name) or calls.learn(None, reading, released=0), now_s)
            for name, reading in outlook.readings.items()
        }

    def capacities(self, clock_s: float) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Return capacities for a plan, and what P0 has beyond them. `clock_s`: see Outlook.now_s."""
        by_task = {} if self.outlook is None else self.outlook.by_task
        return calls.capacities(by_task, self.allowed(clock_s))


def _released(flight: Sequence[InFlight]) -> dict[str, int]:
    """Return how many leases need each resource."""
    by_signature: dict[str, int] = {}
    for use in flight:
        if use.signature:
            by_signature[use.signature] = by_signature.get(use.signature, 0) + use.leases
    found: dict[str, int] = {}
    for signature, leases in by_signature.items():
        for name, _ in needs(signature):
            found[name] = found.get(name, 0) + leases
    return found


def _assumed(live: Live, last: Reading | None, *, at_s: float, blind: bool) -> Assumed:
    resource, proven = live.resource, live.proven or None
    if not resource.adaptive:
        limit = resource.capacity
    elif live.limit_now is not None:
        limit = live.limit
    else:
        start = max(resource.floor, START_LEAST, (proven or 0) // 2) if resource.start is None else resource.start
        limit = min(start, resource.capacity)
    if blind:
        return calls.blind(last, limit=limit, proven=proven, ceiling=resource.capacity, now_s=at_s)
    return Assumed(at_s=at_s, limit=limit, proven=proven, ceiling=resource.capacity)

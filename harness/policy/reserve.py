"""Reservations: a task that needs much at once isn't starved by those that need little (rule 11, with backfill).

Whoever needs more than one of a resource, or several resources, finds them free together only by luck while small
demands keep taking what comes free. A head that has waited longer than A_r = 20 S max(n / capacity) for that, and whose
tenant hasn't started one like it for as long, reserves all that it needs. Others may start beside it if what it needs
stays free, or if they should have ended before the rest of it comes free (the shadow). When all is free it goes first.

A resource is reserved for one head at a time, a head reserves all of its resources or none, and nothing is held while
it waits: what is reserved is room that others don't take. In order of (class, virtual time of the tenant); for P2 and
P3 only while their lane may pick, and that lane pays.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from harness.policy.flow import FlowFacts, Head, is_large, needs
from harness.policy.lanes import NO_LANE
from harness.policy.line import Class, Line
from harness.policy.plan import Reserved
from harness.policy.quota import Gate
from harness.policy.room import Room

First = Callable[[FlowFacts], Head | None]

WAIT_MEANS = 20.0
IDLE_MOST = 0.05  # of a resource, while reservations gather it
LOOKED_THROUGH = 50  # tenants of a class and signature among which one that may reserve is looked for


def leaves(reserved: Reserved, resource: str, n: int, room: Room, end_s: float) -> bool:
    """Return whether somebody else may take `n` of a reserved resource, until `end_s`."""
    wanted = dict(reserved.flow.needs)[resource]
    return room.resources.get(resource, 0) - n >= wanted or end_s <= reserved.shadow_s


def patience_s(signature: str, capacities: Mapping[str, int], mean_s: float) -> float | None:
    """Return A_r; None: it needs more than there is.

    >>> patience_s("browser=2", {"browser": 4}, 1.0), patience_s("browser=5", {"browser": 4}, 1.0)
    (10.0, None)
    """
    shares = [n / cap if (cap := capacities.get(resource, 0)) else 2.0 for resource, n in needs(signature)]
    return WAIT_MEANS * mean_s * max(shares) if max(shares) <= 1.0 else None


def gathering_s(signature: str, capacities: Mapping[str, int], mean_s: float) -> float:
    """Return how far apart reservations must be for their gathering to idle at most IDLE_MOST of a resource.

    While n of cap are gathered, k of them idle until the next of the other cap - k comes free: S / (cap - k), about.

    >>> round(gathering_s("browser=2", {"browser": 8}, 1.0), 2), round(gathering_s("browser=8", {"browser": 8}, 1.0), 1)
    (0.36, 34.4)
    """
    longest = 0.0
    for resource, n in needs(signature):
        cap = capacities[resource]
        longest = max(longest, sum(k / (cap - k) for k in range(1, n)) / cap)
    return longest * mean_s / IDLE_MOST


def shadow_s(flow: FlowFacts, room: Room, now_s: float, mean_s: float) -> float:
    """Return when all that a flow's task needs should be free, by the estimates of what runs."""
    latest = now_s
    overdue = sum(1 for end_s, _ in room.ends if end_s < now_s)
    ends = sorted(room.ends)
    # What should have ended ends one after the other, at the mean pace: nobody knows better.
    ends[:overdue] = [(now_s + mean_s * (i + 1) / overdue, ends[i][1]) for i in range(overdue)]
    ends.sort()
    for resource, n in flow.needs:
        left = room.resources.get(resource, 0)
        for end_s, signature in ends:
            if left >= n:
                break
            got = dict(needs(signature)).get(resource, 0)
            if got:
                left += got
                latest = max(latest, end_s)
    return latest


def reserve(
    line: Line, room: Room, gate: Gate, now_s: float, *, mean_s: float, lanes_open: Iterable[int], first: First
) -> dict[str, Reserved]:
    """Return who reserves each resource now, beside what other pools have reserved.

    `lanes_open`: that may pick. `first`: looks at a flow's next task; a flow that turns out empty reserves nothing.
    """
    found: dict[str, Reserved] = {}
    if not line.large:
        return found
    urgent = False  # a more urgent class has a backlog
    for p in range(4):
        paid = p >= 2 and urgent
        urgent = urgent or bool(line.classes[p].tenants)
        if paid and p not in lanes_open:
            continue
        for flow, patience in _waiting(p, line, gate, now_s, mean_s, room.capacities):
            if any(resource in found or resource in room.reserved for resource, _ in flow.needs):
                continue
            head = first(flow)
            if head is not None and now_s - head.ready_s > patience:
                one = Reserved(flow, p if paid else NO_LANE, _shadow(flow, line, room, now_s, mean_s))
                found |= {resource: one for resource, _ in flow.needs}
    return found


def _shadow(flow: FlowFacts, line: Line, room: Room, now_s: float, mean_s: float) -> float:
    """Return a reservation's shadow. One that was there keeps its own: a shadow that moves on is none."""
    before = next((one for one in line.reserved.values() if one.flow.id == flow.id), None)
    return before.shadow_s if before else shadow_s(flow, room, now_s, mean_s)


def _waiting(
    p: int, line: Line, gate: Gate, now_s: float, mean_s: float, capacities: Mapping[str, int]
) -> Iterator[tuple[FlowFacts, float]]:
    """Yield flows of a class whose next task may have waited long enough for much, in order, with how long that is."""
    of_class = line.classes[p]
    entries: list[tuple[float, int, str]] = []
    for signature, order in of_class.orders.items():
        if is_large(signature) and gate.signature(signature, p) and not gate.priority(p):
            entries += [(v, number, signature) for v, number in order[:LOOKED_THROUGH]]
    for v, number, signature in sorted(entries):
        patience = patience_s(signature, capacities, mean_s)
        begun_s = line.started.get((p, number, signature))
        if patience is None:
            continue
        if _is_due(of_class, v, signature):
            patience = min(patience, gathering_s(signature, capacities, mean_s))
        if begun_s is not None and now_s - begun_s <= patience:
            continue
        if gate.tenant(p, number) or gate.pair(number, signature):
            continue
        tenant = of_class.tenants[number]
        runs = [tenant.runs[run] for _, run in tenant.orders.get(signature, ())[:LOOKED_THROUGH]]
        for run in [*(run for run in (tenant.runs.get(0),) if run and signature in run.flows), *runs]:
            flow = run.flows[signature]
            if now_s - line.since(flow.id) > patience and not (run.id and gate.run(run.id)):
                yield flow, patience


def _is_due(of_class: Class, v: float, signature: str) -> bool:
    """Return whether nobody else of the class who wants one of the same resources has had less."""
    wanted = {resource for resource, _ in needs(signature)}
    return all(
        v <= order[0][0]
        for other, order in of_class.orders.items()
        if other != signature and any(resource in wanted for resource, _ in needs(other))
    )

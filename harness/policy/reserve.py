"""Reservations: a task that needs much at once isn't starved by those that need little (rule 11, with backfill).

Whoever needs more than one of a resource, or several resources, finds them free together only by luck while small
demands keep taking what comes free. A head that has waited longer than A_r = 20 S max(n / capacity) for that, and whose
tenant hasn't started one like it for as long, reserves all that it needs; at once if its tenant has had less than all
who want some of the same (gathered.py). Others may start beside it if what it needs
stays free, or if they should have ended before the rest of it comes free (the shadow). When all is free it goes first.

Whoever runs on beyond its estimate may take long, and what is gathered meanwhile idles as long: so nothing is gathered
while it can't be enough without those that are overdue, but for at most OVERDUE_MOST times A_r in all.

A resource is reserved for one head at a time, a head reserves all of its resources or none, and nothing is held while
it waits: what is reserved is room that others don't take. In order of (class, virtual time of the tenant); for P2 and
P3 only while their lane may pick, and that lane pays.
"""

from collections.abc import Callable, Iterable, Iterator

from harness.policy.flow import FlowFacts, Head, is_large, needs
from harness.policy.gathered import LOOKED_THROUGH, Gathered, ends_together, patience_s, runs_of
from harness.policy.lanes import NO_LANE
from harness.policy.line import Line
from harness.policy.plan import Reserved
from harness.policy.quota import Gate
from harness.policy.room import Room

OVERDUE_MOST = 1.5  # of A_r, for which it is waited until those that are overdue have ended

First = Callable[[FlowFacts], Head | None]


def leaves(reserved: Reserved, resource: str, n: int, room: Room, end_s: float) -> bool:
    """Return whether somebody else may take `n` of a reserved resource, until `end_s`."""
    wanted = dict(reserved.flow.needs)[resource]
    return room.resources.get(resource, 0) - n >= wanted or end_s <= reserved.shadow_s


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
    before = {one.flow.id for one in line.reserved.values()}
    urgent = False  # a more urgent class has a backlog
    for p in range(4):
        paid = p >= 2 and urgent
        urgent = urgent or bool(line.classes[p].tenants)
        if paid and p not in lanes_open:
            continue
        for flow, patience in _waiting(p, line, room, gate, now_s, mean_s):
            if any(resource in found or resource in room.reserved for resource, _ in flow.needs):
                continue
            if ends_together(flow.signature, room):
                continue
            if flow.id not in before and _may_yet_wait(flow, line, room, now_s, mean_s) and lacks(flow, room, now_s):
                continue
            head = first(flow)
            if head is not None and now_s - head.ready_s > patience:
                one = Reserved(flow, p if paid else NO_LANE, _shadow(flow, line, room, now_s, mean_s))
                found |= {resource: one for resource, _ in flow.needs}
    return found


def lacks(flow: FlowFacts, room: Room, now_s: float) -> bool:
    """Return whether those that are overdue hold so much that the rest isn't enough for a task of a flow."""
    overdue = [needs(signature) for end_s, signature in room.ends if end_s < now_s]
    for resource, n in flow.needs:
        held = sum(number for wanted in overdue for name, number in wanted if name == resource)
        if room.capacities.get(resource, 0) - held < n:
            return True
    return False


def _may_yet_wait(flow: FlowFacts, line: Line, room: Room, now_s: float, mean_s: float) -> bool:
    started_s = line.starts.last.get((flow.priority, flow.tenant, flow.signature), line.since(flow.id))
    patience = patience_s(flow.signature, room.capacities, mean_s) or 0.0
    return now_s - max(line.since(flow.id), started_s) <= OVERDUE_MOST * patience


def _shadow(flow: FlowFacts, line: Line, room: Room, now_s: float, mean_s: float) -> float:
    """Return a reservation's shadow. One that was there keeps its own: a shadow that moves on is none."""
    before = next((one for one in line.reserved.values() if one.flow.id == flow.id), None)
    return before.shadow_s if before else shadow_s(flow, room, now_s, mean_s)


def _waiting(
    p: int, line: Line, room: Room, gate: Gate, now_s: float, mean_s: float
) -> Iterator[tuple[FlowFacts, float]]:
    """Yield flows of a class whose next task may have waited long enough for much, in order, with how long that is."""
    of_class = line.classes[p]
    entries: list[tuple[float, int, str]] = []
    for signature, order in of_class.orders.items():
        if is_large(signature) and gate.signature(signature, p) and not gate.priority(p):
            entries += [(v, number, signature) for v, number in order[:LOOKED_THROUGH]]
    if not entries:
        return
    gathered = Gathered(p, line, room, gate, mean_s)
    for v, number, signature in sorted(entries):
        patience = patience_s(signature, room.capacities, mean_s)
        if patience is None:
            continue
        since_s = line.starts.last.get((p, number, signature))
        if gathered.is_due(v, signature) and not gathered.is_in_use(v, signature):
            patience = min(patience, gathered.apart_s(signature))
            since_s = line.starts.gathered.get((p, number, signature))
        if since_s is not None and now_s - since_s <= patience:
            continue
        if gate.tenant(p, number) or gate.pair(number, signature):
            continue
        for run in runs_of(of_class.tenants[number], signature):
            flow = run.flows[signature]
            if now_s - line.since(flow.id) > patience and not (run.id and gate.run(run.id)):
                yield flow, patience

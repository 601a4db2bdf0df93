"""The tasks that one plan has asked for: a look takes the flow that is next and those that are likely to follow.

PostgreSQL answers a look in one statement, so a plan asks for about as many flows as it has slots, and for more at a
time each time that was too few: many flows that turn out empty cost few looks.

D7  A task that lost its worker LOST_STARTS_QUARANTINE times needs a slot of quarantine too. While there is none it is
    passed over: it blocks nobody, not even its own flow.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice

from harness.policy.fairness import Tenants
from harness.policy.flow import NOBODY_LOST_SO_MANY, Asked, FlowFacts, Head, Look
from harness.policy.line import Line, Tenant
from harness.policy.quota import Gate
from harness.policy.room import Room
from harness.policy.settings import QUARANTINE

HEADS_LEAST = 3  # of each flow asked for: one look more costs as much as twenty heads
BUNDLE_MAX = 100  # members; beyond, settling in flushes costs as much as it saves
LOST_STARTS_QUARANTINE = 2  # lost workers before a task is run where it can harm nobody else
FLOWS_A_LOOK = 200  # flows asked for at once
LOOKED_THROUGH = 400  # runs of a tenant that are gone through for flows to ask for
DOUBLES_MOST = 7


class Seen:
    """A flow's heads that are left of those asked for. `used`: tasks picked or passed over; `more`: there may be more;
    `passed`: some wait for quarantine.
    """

    __slots__ = ("heads", "more", "passed", "used")

    def __init__(self) -> None:
        self.heads: deque[Head] = deque()
        self.more = True
        self.passed = False
        self.used: set[int] = set()


class Heads:
    """See the module. `bundled`: there was work that shares slots; `empty`: flows that had no task at all."""

    def __init__(
        self,
        pool: str,
        room: Room,
        line: Line,
        gate: Gate,
        bundling: frozenset[str],
        tenants: Sequence[Tenants | None],
        look: Look,
    ) -> None:
        self.seen: dict[int, Seen] = {}
        self.empty: list[int] = []
        self.looks = 0
        self.bundled = False
        self._pool, self._room, self._line, self._gate = pool, room, line, gate
        self._bundling, self._tenants, self._look = bundling, tenants, look

    def first(self, flow: FlowFacts, also: Iterable[FlowFacts] = ()) -> Head | None:
        """Return a flow's next task; None: it has none that may go. `also`: flows to look at with it."""
        seen = self.seen.get(flow.id)
        if seen is None:
            seen = self._ask(flow, also)
        while True:
            if not seen.heads:
                if not seen.more:
                    return None
                seen = self._ask(flow, ())
                continue
            head = seen.heads[0]
            if head.lost_starts < LOST_STARTS_QUARANTINE or self._room.free.get(QUARANTINE, 0) > 0:
                return head
            seen.used.add(seen.heads.popleft().task)
            seen.passed = True

    def _ask(self, flow: FlowFacts, also: Iterable[FlowFacts]) -> Seen:
        free = self._room.free[self._pool]
        wanted = self._wanted(flow, also, free) if free > 1 or self.looks or also else (flow.id,)
        tasks = free * (BUNDLE_MAX if self._line.bundled or self.bundled else 1)
        # Where there are few flows the same ones are picked again.
        least = HEADS_LEAST if len(self._line) <= 2 * len(wanted) else 1
        each = min(tasks, max(least, -(-2 * tasks // len(wanted))))
        known = self.seen
        heads = tuple([each + len(known[number].used) if number in known else each for number in wanted])
        without = self._room.free.get(QUARANTINE, 0) <= 0
        below = LOST_STARTS_QUARANTINE if without else NOBODY_LOST_SO_MANY
        answer = self._look(Asked(self._pool, wanted, heads, below))
        self.looks += 1
        for number, asked in zip(wanted, heads, strict=True):
            found = answer[number]
            seen = known.get(number)
            if seen is None:
                seen = known[number] = Seen()
                if not found:
                    self.empty.append(number)
            seen.heads = deque([head for head in found if head.task not in seen.used] if seen.used else found)
            seen.more = len(found) >= asked
            if self._bundling and not self.bundled:
                self.bundled = any(head.kind in self._bundling for head in found)
        return known[flow.id]

    def _wanted(self, flow: FlowFacts, also: Iterable[FlowFacts], free: int) -> tuple[int, ...]:
        most = min(FLOWS_A_LOOK, (2 * free + 1) * 2 ** min(self.looks, DOUBLES_MOST))
        wanted = {flow.id: None}
        for one in also:
            wanted[one.id] = None
        self._gather(flow.priority, most, wanted)
        if free > 1:
            for p in range(4):
                if len(wanted) >= FLOWS_A_LOOK:
                    break
                if p != flow.priority:
                    self._gather(p, most, wanted)
        return tuple(wanted)[:FLOWS_A_LOOK]

    def _gather(self, p: int, most: int, wanted: dict[int, None]) -> None:
        """Add flows of a class that nobody has looked at, about in the order in which they would be picked."""
        tenants = self._tenants[p]
        if tenants is None:
            return
        known = tenants.of_class.tenants
        each = max(2, most // len(known))
        left = most
        for number in tenants.coming(most, self.seen):
            for flow in islice(self._unseen(known[number]), min(each, left)):
                wanted[flow.id] = None
                left -= 1
            if not left:
                return

    def _unseen(self, tenant: Tenant) -> Iterator[FlowFacts]:
        runs = tenant.runs
        standing = [runs[0]] if 0 in runs else []
        if tenant.orders:
            first = merge(*(order[:LOOKED_THROUGH] for order in tenant.orders.values()))
            standing += [runs[number] for _, number in islice(first, LOOKED_THROUGH)]
        seen, gate = self.seen, self._gate
        for run in standing:
            for flow in run.flows.values():
                if flow.id not in seen and not (flow.signature and gate.shut(flow.signature, flow.priority)):
                    yield flow

"""What was gathered of a scarce resource goes on being used by those who need much, before small demands take it apart.

While n of a resource are gathered for one task some of them idle. Were they given away when that task ends, they would
be gathered anew for the next one like it: three of four licences stood idle a quarter of the time. So (rule 11)

- whoever needs much and finds it free goes before the others of its class while its tenant is at most Q ahead of the
  least of those that want some of the same; Q is the service in which the resource idles IDLE_MOST for one gathering,
  at most three quarters of A_r, for all that the pool can run of it at once;
- who has had least of them reserves at once, for it goes on for a while then; but not while others who need much go on
  by this rule and leave too little beside them, nor while tasks like its own must end before it fits; and where nothing
  like it runs, no sooner after it was last gathered for than lets the resource idle IDLE_SINGLY.

Nobody gets more than its share by this, it gets it in longer pieces: a small demand may wait Q longer for a resource.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

from harness.policy.flow import FlowFacts, is_large, needs
from harness.policy.line import Line, Run, Tenant
from harness.policy.quota import Gate
from harness.policy.room import Room

WAIT_MEANS = 20.0  # A_r in mean service times, of one that needs all of a resource
IDLE_MOST = 0.02  # of a resource, while it is gathered once in Q
IDLE_SINGLY = 0.05  # of a resource, while it is gathered for one task at a time
KEPT_MOST = 0.75  # of A_r, for which what was gathered is used before it is given away
LOOKED_THROUGH = 50  # tenants of a class and signature among which one that may go is looked for


def patience_s(signature: str, capacities: Mapping[str, int], mean_s: float) -> float | None:
    """Return A_r; None: it needs more than there is.

    >>> patience_s("browser=2", {"browser": 4}, 1.0), patience_s("browser=5", {"browser": 4}, 1.0)
    (10.0, None)
    """
    shares = [n / cap if (cap := capacities.get(resource, 0)) else 2.0 for resource, n in needs(signature)]
    return WAIT_MEANS * mean_s * max(shares) if max(shares) <= 1.0 else None


def idled_s(signature: str, capacities: Mapping[str, int], mean_s: float) -> float:
    """Return for how long a resource stands idle, all of it, while all that a task needs is gathered once.

    The next of cap - k that others hold comes free after S / (cap - k), about; k idle until then, and all of one
    resource until the slowest other is there. A task must not need more than there is.

    >>> round(idled_s("browser=2", {"browser": 8}, 1.0), 3), round(idled_s("browser=8", {"browser": 8}, 1.0), 2)
    (0.018, 1.72)
    >>> round(idled_s("browser=2,licence=1", {"browser": 8, "licence": 4}, 1.0), 3)
    0.08
    """
    wanted = needs(signature)
    takes = [sum(1.0 / (capacities[resource] - k) for k in range(n)) for resource, n in wanted]
    longest = 0.0
    for i, (resource, n) in enumerate(wanted):
        cap = capacities[resource]
        others = max((takes_s for j, takes_s in enumerate(takes) if j != i), default=0.0)
        longest = max(longest, (sum(k / (cap - k) for k in range(1, n)) + n * others) / cap)
    return longest * mean_s


def kept_s(signature: str, capacities: Mapping[str, int], mean_s: float) -> float:
    """Return for how long what was gathered is used before it is given away, in seconds of all that can run of it."""
    patience = patience_s(signature, capacities, mean_s)
    if patience is None:
        return 0.0
    return min(idled_s(signature, capacities, mean_s) / IDLE_MOST, KEPT_MOST * patience)


def ends_together(signature: str, room: Room) -> bool:
    """Return whether tasks like it that run must end before it fits: then all that it needs comes free at once."""
    alike = sum(1 for _, other in room.ends if other == signature)
    if not alike:
        return False
    return any((alike + 1) * n > room.capacities.get(resource, 0) for resource, n in needs(signature))


def runs_of(tenant: Tenant, signature: str) -> list[Run]:
    """Return the first runs of a tenant that need this, its singles before them."""
    singles = tenant.runs.get(0)
    runs = [singles] if singles is not None and signature in singles.flows else []
    return runs + [tenant.runs[run] for _, run in tenant.orders.get(signature, ())[:LOOKED_THROUGH]]


class Gathered:
    """The large demands of one class beside what is in use, at one moment of a plan."""

    def __init__(self, p: int, line: Line, room: Room, gate: Gate, mean_s: float) -> None:
        self._p, self._of_class = p, line.classes[p]
        self._room, self._gate = room, gate
        self._mean_s, self._slots = mean_s, room.slots[line.pool]
        self._going: Counter[str] | None = None

    def goes_on(self) -> Iterator[FlowFacts]:
        """Yield flows that need much, find it free and may go before the others."""
        for signature, order in self._of_class.orders.items():
            if not is_large(signature) or self._gate.signature(signature, self._p):
                continue
            ahead_s = self._ahead_s(signature)
            for v, number in order[:LOOKED_THROUGH]:
                tenant = self._of_class.tenants[number]
                if self.is_due(v - ahead_s / tenant.weight, signature):
                    for run in runs_of(tenant, signature):
                        yield run.flows[signature]

    def is_due(self, v: float, signature: str) -> bool:
        """Return whether nobody of the class who wants some of the same otherwise has had less than v."""
        return all(v <= order[0][0] for other, order in self._of_class.orders.items() if _share(signature, other))

    def is_in_use(self, v: float, signature: str) -> bool:
        """Return whether others go on with some of the same, and leave too little beside them."""
        going = self._all_going()
        for resource, n in needs(signature):
            used = sum(dict(needs(other)).get(resource, 0) * k for other, k in going.items())
            if used + n > self._room.capacities.get(resource, 0) and any(
                self._goes_before(v, other) for other in going if other != signature and resource in dict(needs(other))
            ):
                return True
        return False

    def apart_s(self, signature: str) -> float:
        """Return how far apart two gatherings of those that are due must be; 0 while tasks like it run: it goes on."""
        if self._all_going()[signature]:
            return 0.0
        return idled_s(signature, self._room.capacities, self._mean_s) / IDLE_SINGLY

    def _goes_before(self, v: float, other: str) -> bool:
        order = self._of_class.orders.get(other)
        if not order:
            return False
        first, number = order[0]
        return first - v <= self._ahead_s(other) / self._of_class.tenants[number].weight

    def _all_going(self) -> Counter[str]:
        """Return large demands in flight, and one more of each that fits now."""
        if self._going is None:
            self._going = Counter(signature for _, signature in self._room.ends if is_large(signature))
            self._going.update(
                signature
                for signature in self._of_class.orders
                if is_large(signature) and not self._gate.signature(signature, self._p)
            )
        return self._going

    def _ahead_s(self, signature: str) -> float:
        return kept_s(signature, self._room.capacities, self._mean_s) * self._slots


@lru_cache(maxsize=4096)
def _share(signature: str, other: str) -> bool:
    """Return whether two different signatures need some of the same."""
    return signature != other and not {name for name, _ in needs(signature)}.isdisjoint(
        name for name, _ in needs(other)
    )

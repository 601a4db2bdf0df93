"""Who is next among tenants of a class, and among runs of a tenant: bands and virtual times of one plan.

Rule 2   Rank is (band, v_eff, id). v_eff = v plus what running tasks overran, over the weight. Band 0 while the slots
         that a tenant holds of its class, over all that the class holds with one more, are fewer than its share by
         weight among those with a backlog or work in flight, and it isn't ahead of V by more than AHEAD_TASKS mean
         tasks; else band 1. (Slots held can't tell the share of who needs much at once: one task is more than that.)
Rule 12  Inside a tenant the same by run, all runs equal: band 0 while held * active runs < the tenant's + 1.
Rule 13  Singles go before runs, until they have had B more than runs had; B = max(5 C, 20) * mean cost of the class.

Whoever has nothing in flight stands in the line's order already, and whoever has is nowhere before its place in it. So
a choice costs at most what is in flight, not how many wait.
"""

from collections.abc import Collection, Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from math import inf

from harness.policy.flight import Flight, Held
from harness.policy.line import Line, Orders, Run, Tenant
from harness.policy.quota import Gate

AHEAD_TASKS = 10.0  # mean tasks of its class by which a tenant may be ahead of V in band 0
SINGLES_SLOTS = 5.0
SINGLES_LEAST = 20.0
LOOKED_THROUGH = 400  # tenants that are gone through for those who follow

Rank = tuple[bool, float, int]  # band, v_eff, id
Stand = tuple[float, int, float]  # place in the order, id, v_eff
NOT_HELD = Held()


def singles_first(slots: int, est_s: float) -> float:
    """Return B: by how much cost singles may go ahead of the runs beside them (rule 13)."""
    return max(SINGLES_SLOTS * slots, SINGLES_LEAST) * est_s


class Standing:
    """An order by signature as one, from the first that isn't out: those whose signature has room, by virtual time."""

    __slots__ = ("_at", "_gate", "_orders", "_priority", "_shut")

    def __init__(self, orders: Orders, gate: Gate, priority: int) -> None:
        self._orders = orders
        self._gate = gate
        self._priority = priority
        self._at: dict[str, int] = {}
        self._shut: list[str] = []

    def changed(self) -> bool:
        """Return whether other signatures have room than when it was walked last."""
        return (len(self._orders) > 1 or "" not in self._orders) and self._find_shut() != self._shut

    def walk(self, dead: set[int]) -> Iterable[tuple[float, int]]:
        """Return who stands, in order, without those at the front that are dead."""
        orders = self._orders
        if len(orders) == 1 and not dead and "" in orders:
            return orders[""]
        self._shut = self._find_shut()
        rest: list[Iterable[tuple[float, int]]] = []
        for signature, order in orders.items():
            if signature in self._shut:
                continue
            at = self._at.get(signature, 0)
            if dead:
                end = len(order)
                while at < end and order[at][1] in dead:
                    at += 1
                self._at[signature] = at
            rest.append(islice(order, at, None) if at else order)
        return rest[0] if len(rest) == 1 else merge(*rest)

    def _find_shut(self) -> list[str]:
        return [signature for signature in self._orders if signature and self._gate.shut(signature, self._priority)]


class Tenants:
    """The tenants of one class in one plan."""

    def __init__(self, p: int, line: Line, gate: Gate, flight: Flight, now_s: float) -> None:
        self.of_class = line.classes[p]
        self.dead: set[int] = set()
        self.lowest: float | None = None  # clock of the one that has had least, of those that may be picked
        self._gate = gate
        self._now_s = now_s
        self._standing = Standing(self.of_class.orders, gate, p)
        self._rest = iter(self._standing.walk(self.dead))  # in order, who wasn't looked at
        self._stood: list[Stand] = []  # who was
        self._owners = line.owners
        self._held = flight.classes[p]
        self._costs = flight.costs
        self._priority = p
        self._moved: dict[int, float] = {}  # virtual times of those that were picked
        self._weight = self.of_class.weight(line.owners)
        self._weights: float | None = None
        self._v = line.accounts[p].v
        self._ahead_s = AHEAD_TASKS * line.accounts[p].est_s or inf  # while nothing is known of the class

    def best(self) -> int | None:
        """Return the tenant that is next; None: nobody is left.

        Nobody's v_eff is before its place in the order, so the search ends where somebody in band 0 has been found.
        """
        if not self._find_v():
            return None
        held, dead, tenants, v_least, ahead_s = self._held, self.dead, self.of_class.tenants, self._v, self._ahead_s
        enough: float | None = None
        first: Rank | None = None
        for stands, number, v in self._standing_now():
            if first is not None and not first[0] and (stands, number) > first[1:]:
                break
            if number in dead:
                continue
            weight, one = tenants[number].weight, held.get(number)
            band = (v - v_least) * weight > ahead_s
            if one is not None and not band:
                if enough is None:
                    enough = self._enough()
                band = one.cost >= weight * enough
            if first is None or (band, v, number) < first:
                first = (band, v, number)
        return first[2] if first else None

    def _find_v(self) -> bool:
        """Move V to who has had least of those that may be picked; False: nobody may.

        Before any rank is told: by the V of the last tick all may be far ahead, since what ended in between was long.
        """
        dead = self.dead
        while True:
            least: Stand | None = None
            for one in self._standing_now():
                if least is not None and one[0] >= least[2]:
                    break
                if one[1] not in dead and (least is None or one[2] < least[2]):
                    least = one
            if least is None:
                return False
            if self.lowest is None:
                if self._gate.tenant(self._priority, least[1]) is not None:
                    dead.add(least[1])
                    continue
                self.lowest = least[2]
            self._v = max(self._v, least[2])
            return True

    def _standing_now(self) -> Iterable[Stand]:
        """Return all in order, with v_eff after the picks so far: found once in a plan, as far as it is needed."""
        if self._standing.changed():
            self._stood.clear()
            self._rest = iter(self._standing.walk(self.dead))
        stood, dead = self._stood, self.dead
        if dead:
            gone = 0
            while gone < len(stood) and stood[gone][1] in dead:
                gone += 1
            del stood[:gone]
        return chain(stood, self._more()) if stood else self._more()

    def _more(self) -> Iterator[Stand]:
        held, tenants, now_s, stood, moved = self._held, self.of_class.tenants, self._now_s, self._stood, self._moved
        for stands, number in self._rest:
            one = held.get(number)
            v = stands
            if one is not None:
                v = moved.get(number, stands) if moved else stands
                v += (one.overrun_s + one.over_cost * now_s) / tenants[number].weight
            found = (stands, number, v)
            stood.append(found)
            yield found

    def _enough(self) -> float:
        """Return the slots for each weight of which whoever holds as many has its share (rule 2)."""
        return (self._costs[self._priority] + 1.0) / self._of_all()

    def _of_all(self) -> float:
        """Return the weights of all that have a backlog or work in flight: of this plan, which adds none to them."""
        if self._weights is None:
            self._weights, tenants = self._weight, self.of_class.tenants
            for tenant in self._held:
                if tenant not in tenants:
                    self._weights += self._owners.weight(tenant)
        return self._weights

    def coming(self, most: int, seen: Collection[int]) -> list[int]:
        """Return about who follows, the next first: `most` in band 0, if there are so many. `seen`: flows that aren't.

        A tenant whose flows were all seen is left out, if it is easily told.
        """
        held, dead, tenants, v_least, ahead_s = self._held, self.dead, self.of_class.tenants, self._v, self._ahead_s
        enough, left = self._enough(), most
        any_seen = bool(seen)
        ranks: dict[int, Rank] = {}
        for _, number, v in self._standing_now():
            tenant, one = tenants[number], held.get(number)
            if number in dead or (any_seen and _is_seen(tenant, seen)):
                continue
            band = (v - v_least) * tenant.weight > ahead_s or (one is not None and one.cost >= tenant.weight * enough)
            ranks[number] = (band, v, number)
            left -= not band
            if left <= 0 or len(ranks) >= LOOKED_THROUGH:
                break
        return [rank[2] for rank in sorted(ranks.values())]

    def charge(self, tenant: int, cost_s: float) -> None:
        """Note what a pick of this plan costs."""
        known, one = self.of_class.tenants[tenant], self._held[tenant]
        moved = self._moved[tenant] = self._moved.get(tenant, known.clock.v) + cost_s / known.weight
        v = moved + (one.overrun_s + one.over_cost * self._now_s) / known.weight
        for i, (stands, number, _) in enumerate(self._stood):
            if number == tenant:
                self._stood[i] = (stands, number, v)


def _is_seen(tenant: Tenant, seen: Collection[int]) -> bool:
    if len(tenant.runs) > 1:
        return False
    for run in tenant.runs.values():
        for flow in run.flows.values():
            if flow.id not in seen:
                return False
    return True


class Runs:
    """The runs of one tenant in one class in one plan, singles among them."""

    def __init__(self, p: int, tenant: Tenant, gate: Gate, now_s: float) -> None:
        self.tenant = tenant
        self._now_s = now_s
        self.dead: set[int] = set()
        self._moved: dict[int, float] = {}
        self.g = tenant.clock.g
        self.lowest: float | None = None  # clock of the run that has had least
        self._standing = Standing(tenant.orders, gate, p)

    def best(self, held: Held | None, singles_s: float) -> Run | None:
        """Return the run that is next; None: nobody is left. `singles_s`: B of rule 13."""
        tenant = self.tenant
        singles = tenant.runs.get(0)
        if singles is not None and 0 in self.dead:
            singles = None
        if singles is not None and self.g <= singles_s:
            return singles
        return self._next(held or NOT_HELD) or singles

    def _next(self, held: Held) -> Run | None:
        runs, dead = self.tenant.runs, self.dead
        active = len(runs) - (0 in runs) + sum(1 for run in held.runs if run not in runs)
        enough = held.cost + 1.0
        first: Rank | None = None
        lowest: float | None = None
        for stands, number in self._standing.walk(dead):
            if first is not None and not first[0] and (stands, number) > first[1:]:
                break
            if number in dead:
                continue
            one = held.runs.get(number)
            v = stands
            if one is not None:
                v = self._moved.get(number, stands) + one.overrun_s + one.over_cost * self._now_s
            rank = (one is not None and one.cost * active >= enough, v, number)
            if first is None or rank < first:
                first = rank
            lowest = v if lowest is None else min(lowest, v)
        if self.lowest is None:
            self.lowest = lowest
        return runs[first[2]] if first else None

    def charge(self, run: Run, cost_s: float) -> None:
        """Note what a pick of this plan costs."""
        if run.id:
            self._moved[run.id] = self._moved.get(run.id, run.clock.v) + cost_s
            self.g = max(0.0, self.g - cost_s)
        elif len(self.tenant.runs) > 1:
            self.g += cost_s

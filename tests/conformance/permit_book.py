"""The permit scripts in plain Python: the sets that Redis keeps, around policy.desk.

What a script does, the verb of its name does here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.policy import desk
from harness.policy.breaker import MODES, OPEN
from harness.policy.desk import Changed, Desk, Sent
from harness.policy.permits import ASKED_S, JOINT_S, P0_SCORE, SWEEP_S, WAITER_S, Ask, Limit, Reading, Report, score
from harness.policy.resources import Live


@dataclass
class Place:
    """One resource: the desk, and who holds, waits and asks."""

    desk: Desk
    sweep_s: float
    held: dict[str, float] = field(default_factory=dict)
    tenants: dict[tuple[int, str], float] = field(default_factory=dict)
    line: dict[str, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)

    def in_flight(self, now_s: float) -> int:
        return sum(1 for until_s in self.held.values() if until_s >= now_s)

    def sweep(self, now_s: float) -> None:
        self.sweep_s = now_s + SWEEP_S
        self.held = {member: until_s for member, until_s in self.held.items() if until_s > now_s}
        self.asked = {task: until_s for task, until_s in self.asked.items() if until_s > now_s}
        for entry in [entry for entry, until_s in self.seen.items() if until_s <= now_s]:
            del self.seen[entry]
            self.line.pop(entry, None)


@dataclass
class Fact:
    resource: str
    sent: Sent
    tenant: int | None


class Book:
    """All resources. Each verb answers what its script answers."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.tasks: dict[str, dict[str, list[Fact]]] = {}
        self.changes: list[tuple[str, float, int, int, str]] = []

    def acquire(self, ask: Ask, process: str, lives: Mapping[str, Live], now_s: float) -> Sequence[object]:
        entry, mine = f"{process} {ask.member}", score(ask.priority, ask.calls_done, ask.since_s)
        worst: tuple[str, Limit, float, int] | None = None
        counts: dict[str, int] = {}
        for want in ask.wants:
            live, place = lives[want.resource], self._place(lives[want.resource], now_s)
            if now_s >= place.sweep_s:
                place.sweep(now_s)
            n = counts[want.resource] = place.in_flight(now_s)
            self._note(live, now_s, self._step(place, live, now_s, n, ask.priority))
            ahead = sum(1 for other in place.line.values() if other < mine)
            cap = live.tenant_cap(ask.tenant)
            found = desk.binding(
                place.desk,
                live,
                now_s,
                in_flight=n,
                ahead=ahead,
                priority=ask.priority,
                tenant_used=sum(
                    1 for (who, _), until_s in place.tenants.items() if who == ask.tenant and until_s >= now_s
                ),
                tenant_cap=cap,
                tokens=want.tokens,
            )
            if found is not None:
                limit, wait_s = found
                if worst is None or wait_s > worst[2]:
                    worst = want.resource, limit, wait_s, ahead
                if limit in ("requests", "tokens"):
                    desk.wait_of_first(place.desk, now_s, ahead=ahead, limit=limit, wait=wait_s)
            place.asked[ask.task] = now_s + ASKED_S
        if worst is not None:
            for want in ask.wants:
                place = self.places[want.resource]
                everywhere = now_s - ask.since_s >= JOINT_S
                if ask.waits and worst[1] != "tenant" and (want.resource == worst[0] or everywhere):
                    place.line[entry], place.seen[entry] = mine, now_s + WAITER_S
                elif len(ask.wants) > 1:
                    place.line.pop(entry, None)
            name, limit, wait_s, ahead = worst
            until_s = now_s + wait_s if wait_s > 0 else 0.0
            return "refused", name, limit, wait_s, until_s, ahead, desk.limit_now(self.places[name].desk, lives[name])
        facts = []
        for want in ask.wants:
            live, place = lives[want.resource], self.places[want.resource]
            place.held[ask.member] = now_s + live.resource.permit_ttl_s
            sent = desk.let_in(
                place.desk, live, now_s, in_flight=counts[want.resource], tokens=want.tokens, first=ask.first
            )
            capped = live.tenant_cap(ask.tenant) is not None
            if capped:
                place.tenants[ask.tenant, ask.member] = now_s + live.resource.permit_ttl_s
            if ask.waits:
                place.line.pop(entry, None)
            facts.append(Fact(want.resource, sent, ask.tenant if capped else None))
        self.tasks.setdefault(ask.task, {})[ask.member] = facts
        return "granted", counts

    def finish(self, member: str, report: Report, lives: Mapping[str, Live], now_s: float, jitter: float) -> int:
        facts = self.tasks.get(_task(member), {}).pop(member, None)
        if facts is None:
            return 0
        about = report.resource or facts[0].resource
        for fact in facts:
            live, place = lives[fact.resource], self._place(lives[fact.resource], now_s)
            self._off(place, fact, member)
            n = place.in_flight(now_s)
            tokens = (report.tokens or {}).get(fact.resource, -1)
            if tokens >= 0:
                desk.used(place.desk, live, now_s, fact.sent, tokens)
            if fact.resource == about:
                told = desk.told(place.desk, live, now_s, fact.sent, report, in_flight=n, jitter=jitter)
            else:
                told = desk.told_aside(place.desk, live, now_s, fact.sent, succeeded=report.outcome == "success")
            self._note(live, now_s, told)
        return 1

    def give_up(self, ask: Ask, process: str, lives: Mapping[str, Live], now_s: float) -> int:
        facts = self.tasks.get(ask.task, {}).pop(ask.member, None)
        idle = not self.tasks.get(ask.task)
        for want in ask.wants:
            place = self._place(lives[want.resource], now_s)
            place.line.pop(f"{process} {ask.member}", None)
            place.seen.pop(f"{process} {ask.member}", None)
            if idle:
                place.asked.pop(ask.task, None)
        for fact in facts or ():
            self._free(fact, ask.member, lives[fact.resource], now_s, unsent=True)
        return int(facts is not None)

    def ended(self, task: str, lives: Mapping[str, Live], now_s: float) -> int:
        for place in self.places.values():
            place.asked.pop(task, None)
        calls = self.tasks.pop(task, {})
        for member, facts in calls.items():
            for fact in facts:
                self._free(fact, member, lives[fact.resource], now_s, unsent=False)
        return len(calls)

    def read(self, live: Live, now_s: float) -> Reading:
        place = self.places.get(live.resource.name)
        if place is None:  # nobody has asked; that somebody looks begins nothing
            place = Place(desk.opened(live, now_s, reborn=False), now_s)
            n = 0
        else:
            if now_s >= place.sweep_s:
                place.sweep(now_s)
            n = place.in_flight(now_s)
            self._note(live, now_s, self._step(place, live, now_s, n, -1))
        it, state = place.desk, place.desk.limiter
        shut = live.resource.breaker and it.breaker.mode == OPEN
        return Reading(
            at_s=now_s,
            limit=desk.limit_now(it, live),
            proven=desk.proven(it, live),
            ceiling=live.resource.capacity,
            in_flight=n,
            waiting=len(place.line),
            waiting_p0=sum(1 for other in place.line.values() if other < P0_SCORE),
            asked=sum(1 for until_s in place.asked.values() if until_s >= now_s),
            mode=desk.mode(live, state),
            blocked_until_s=desk.blocked_until_s(it, live, now_s),
            breaker=MODES[it.breaker.mode] if live.resource.breaker else "closed",  # type: ignore[arg-type]
            breaker_until_s=it.breaker.until_s if shut else 0.0,
            rate_wait_s=desk.rate_wait_s(it, live, now_s),
        )

    def retry(self, live: Live, now_s: float) -> float:
        return desk.retry(self._place(live, now_s).desk, live, now_s)

    def _place(self, live: Live, now_s: float) -> Place:
        name = live.resource.name
        if name not in self.places:
            self.places[name] = Place(desk.opened(live, now_s, reborn=False), now_s)
        return self.places[name]

    def _step(self, place: Place, live: Live, now_s: float, n: int, priority: int) -> Iterator[Changed]:
        return desk.step(place.desk, live, now_s, in_flight=n, waiting=len(place.line), priority=priority)

    def _free(self, fact: Fact, member: str, live: Live, now_s: float, *, unsent: bool) -> None:
        place = self._place(live, now_s)
        self._off(place, fact, member)
        if unsent:
            desk.used(place.desk, live, now_s, fact.sent, 0, learn=False)
        self._note(live, now_s, desk.told_aside(place.desk, live, now_s, fact.sent, succeeded=False))

    def _off(self, place: Place, fact: Fact, member: str) -> None:
        place.held.pop(member, None)
        if fact.tenant is not None:
            place.tenants.pop((fact.tenant, member), None)

    def _note(self, live: Live, now_s: float, changed: Iterator[Changed]) -> None:
        self.changes += [(live.resource.name, now_s, *change) for change in changed]


def _task(member: str) -> str:
    return member.rpartition(":")[0]

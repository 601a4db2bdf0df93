"""The plan of one tick for one pool: which ready tasks take which slots, and why the others don't.

Rule 7, the order in which a free slot is offered: P0 while its credit lasts or nobody else waits; the lanes that may
pick, the most overdue first; P1, P2, P3; P0 again. The last slots may be P0's alone (quota.headroom). Inside a class
the tenant, inside a tenant the run (fairness.py), inside a run the oldest task whose needs have room. Under pressure
a class is passed over in that order while a more urgent one waits and it holds its share of the slots beyond its lane
(pressure.ACTIONS); its lane stays.

D4  All or none: a pick takes slot, caps, quotas and resources in one step (quota.py), a refusal takes nothing.
D5  One head for each (run, signature): a head that doesn't fit holds back its own flow only, and the reason is kept.
D6  A bundle is one slot: successive heads of one flow and one bundling kind, never P0, never a task marked single or
    one that lost a worker; the sum of estimates is at most BUNDLE_S, and no slot takes more than its even share of
    what is waiting.
D7  A task that lost its worker LOST_STARTS_QUARANTINE times takes a slot of its pool and one of quarantine. While
    quarantine has none, such a head is passed over: it blocks nobody, not even its own flow.

Tasks are asked for when their flow is nearly next, so that a tick costs the slots it fills and not what waits; a flow
that turns out empty is told, and the next ones are asked for, more at a time. The line isn't changed; the room is.
"""

from itertools import islice
from math import ceil
from operator import sub

from harness.policy import lanes
from harness.policy.aging import AGED_S, aged, by_age
from harness.policy.fairness import Runs, Tenants, singles_first
from harness.policy.flow import FlowFacts, Head, Look, is_large, needs
from harness.policy.forms import WHOLE, Form
from harness.policy.gathered import Gathered
from harness.policy.heads import BUNDLE_MAX, LOST_STARTS_QUARANTINE, Heads, Seen
from harness.policy.known import Kinds
from harness.policy.lanes import AGED, LANES, NO_LANE, P0
from harness.policy.line import Line, Run, Tenant
from harness.policy.plan import Pick, Plan, Reserved
from harness.policy.quota import Gate, headroom
from harness.policy.reserve import leaves, reserve
from harness.policy.room import Room
from harness.policy.settings import QUARANTINE
from harness.policy.urgency import Urgency, is_calm

BUNDLE_S = 0.1  # seconds that a bundle may be expected to take: what a P0 task may wait behind it
EST_S = 1.0  # seconds, of a kind that nobody knows
P0_EXPECTED_S = 3600.0  # so long after it was seen last, P0 is expected again
AGED_A_LOOK = 8  # flows asked for at once by age

Candidate = tuple[FlowFacts, Run, Head]


def plan(pool: str, now_s: float, *, room: Room, line: Line, gate: Gate, kinds: Kinds, look: Look) -> Plan:
    """Decide one tick of one pool. Deterministic; takes from `room` what it gives, leaves `line` as it is."""
    return _Planner(pool, now_s, room, line, gate, kinds, look).run()


class _Planner:
    def __init__(self, pool: str, now_s: float, room: Room, line: Line, gate: Gate, kinds: Kinds, look: Look) -> None:
        self.pool, self.now_s, self.room, self.line = pool, now_s, room, line
        self.gate, self.kinds, self.look, self.forms = gate, kinds, look, gate.forms
        self.slots = room.slots[pool]
        self.flight = room.flight[pool]
        self.picks: list[Pick] = []
        self.mean_s = line.accounts[AGED].mean_s
        self.tenants = [
            Tenants(p, line, gate, self.flight, now_s) if of_class.tenants and not gate.priority(p) else None
            for p, of_class in enumerate(line.classes)
        ]
        self.classes = [p for p in (1, 2, 3) if self.tenants[p] is not None]
        self.heads = Heads(pool, room, line, gate, kinds.bundling, self.tenants, look)
        calm = is_calm(room.level)
        self.urgency = None if calm else Urgency(pool, line, room, gate, self.heads, self._why_not)
        self.runs: dict[tuple[int, int], Runs] = {}
        self.floors: dict[tuple[int, int], float] = {}
        self.candidates: dict[int, Candidate | None] = {}
        self.checked = [-1] * len(line.classes)  # how many were picked when a class's candidate was found to fit
        self.aged = aged(line, now_s)
        self.overruns_s = self.flight.overruns_s(now_s)
        self.credits_s = self._grown()
        expected = bool(line.classes[P0].tenants) or now_s - line.urgent_s <= P0_EXPECTED_S
        self.headroom = headroom(self.slots, self.mean_s, p0_expected=expected) if expected else 0
        for resource in line.reserved:
            room.reserved.pop(resource, None)
        self.due = self._reserved_before() if line.reserved else []
        self.reserved: dict[str, Reserved] = {}
        if line.large:
            mean_s, open_lanes = self.mean_s or EST_S, self._open()
            self.reserved = reserve(
                line, room, gate, now_s, mean_s=mean_s, lanes_open=open_lanes, first=self.heads.first
            )

    def run(self) -> Plan:
        begun_s = tuple(self.credits_s)
        free = self.room.free
        while free[self.pool] > 0:
            found = self._next()
            if found is None:
                break
            self._take(*found)
        held, since = self._left()
        return Plan(
            self.pool,
            self.now_s,
            self.slots,
            held,
            begun_s,
            self._waiting(),
            tuple(self.picks),
            tuple(self.heads.empty),
            {p: of.lowest for p, of in enumerate(self.tenants) if of is not None and of.lowest is not None},
            self.floors,
            since,
            self.heads.bundled if self.heads.looks else self.line.bundled,
            self.reserved,
        )

    # -- rule 7: who is offered a slot

    def _next(self) -> tuple[Candidate, int] | None:
        while self.due:
            due = self._due(self.due.pop(0))
            if due is not None:
                return due
        urgent = self._candidate(0) if self.tenants[0] is not None else None
        if urgent is not None:
            if not any(self._candidate(p) for p in self.classes):
                return urgent, NO_LANE
            if self._credit(P0) >= 0:
                return urgent, P0
        if self.room.free[self.pool] > self.headroom:
            found = self._by_lane()
            if found is not None:
                return found
            for p in self.classes:
                candidate = None if self._pressed(p) else self._candidate(p)
                if candidate is not None:
                    return candidate, NO_LANE
        return (urgent, P0) if urgent is not None else None

    def _by_lane(self) -> tuple[Candidate, int] | None:
        if self.tenants[2] is None and self.tenants[3] is None:
            return None
        for lane in lanes.in_turn([*map(sub, self.credits_s, self.overruns_s)]):
            candidate = self._oldest() if lane == AGED else self._candidate(lane)
            if candidate is None:
                continue
            taken = self.flight.lanes[lanes.P2] + self.flight.lanes[lanes.P3] + self.flight.lanes[AGED]
            if taken >= max(1, self.slots // 2) and self._candidate(1) is not None:
                return None
            return candidate, lane
        return None

    def _pressed(self, p: int) -> bool:
        return self.urgency is not None and self.urgency.pressed(p)

    def _open(self) -> list[int]:
        return [lane for lane in (lanes.P2, lanes.P3) if self._credit(lane) >= 0]

    def _reserved_before(self) -> list[Reserved]:
        """Return who reserved before, once each, in order: when all is free that it needs, it goes first (rule 11)."""
        before = {one.flow.id: one for one in self.line.reserved.values()}
        return [one for one in before.values() if one.lane == NO_LANE or one.lane in self._open()]

    def _due(self, reserved: Reserved) -> tuple[Candidate, int] | None:
        """Return the task that something was reserved for, if it fits now."""
        flow = self.line.flows.get(reserved.flow.id)
        if flow is None or self.gate.priority(flow.priority) or self.gate.flow(flow):
            return None
        if self.room.free[self.pool] <= self.headroom or self.gate.tenant(flow.priority, flow.tenant):
            return None
        head = self.heads.first(flow)
        if head is None or self._why_not(flow, head):
            return None
        run = self.line.classes[flow.priority].tenants[flow.tenant].runs[flow.run]
        return (flow, run, head), reserved.lane

    def _credit(self, lane: int) -> float:
        return self.credits_s[lane] - self.overruns_s[lane]

    def _grown(self) -> list[float]:
        line = self.line
        if line.at_s is None:
            return [lanes.start(lane, self.slots) for lane in range(LANES)]
        passed_s = max(0.0, self.now_s - line.at_s)
        return lanes.grown(line.accounts, passed_s, self.slots, waited=line.waited, overruns_s=self.overruns_s)

    # -- who is next in a class

    def _candidate(self, p: int) -> Candidate | None:
        tenants = self.tenants[p]
        if tenants is None or (self.room.ramps and self.gate.priority(p)):
            return None
        if p in self.candidates:
            known = self.candidates[p]
            if known is None or self.checked[p] == len(self.picks):
                return known
            if (self.gate.tenant(p, known[0].tenant) or self._why_not(known[0], known[2])) is None:
                self.checked[p] = len(self.picks)
                return known
        found = self._gathered(p) if self.line.large else None
        while found is None and (number := tenants.best()) is not None:
            if self.gate.tenant(p, number) is None:
                found = self._of_tenant(p, tenants.of_class.tenants[number])
            if found is None:
                tenants.dead.add(number)
        self.candidates[p], self.checked[p] = found, len(self.picks)
        return found

    def _gathered(self, p: int) -> Candidate | None:
        """Return a task that needs much and finds it free, before others take it apart (rule 11)."""
        for flow in Gathered(p, self.line, self.room, self.gate, self.mean_s or EST_S).goes_on():
            if self.gate.tenant(p, flow.tenant) or self.gate.flow(flow):
                continue
            head = self.heads.first(flow)
            if head is not None and self._why_not(flow, head) is None:
                return flow, self.line.classes[p].tenants[flow.tenant].runs[flow.run], head
        return None

    def _of_tenant(self, p: int, tenant: Tenant) -> Candidate | None:
        if len(tenant.runs) == 1:
            (run,) = tenant.runs.values()
            return self._of_run(run)
        runs = self.runs.get((p, tenant.id))
        if runs is None:
            runs = self.runs[p, tenant.id] = Runs(p, tenant, self.gate, self.now_s)
        held = self.flight.classes[p].get(tenant.id)
        singles_s = singles_first(self.slots, self.line.accounts[p].est_s)
        while (one := runs.best(held, singles_s)) is not None:
            found = self._of_run(one)
            if found is not None:
                return found
            runs.dead.add(one.id)
        return None

    def _of_run(self, run: Run) -> Candidate | None:
        found: Candidate | None = None
        if run.id and self.gate.run(run.id):
            return None
        for flow in run.flows.values():
            if self.gate.flow(flow):
                continue
            head = self.heads.first(flow)
            if head is not None and (found is None or head.task < found[2].task) and self._why_not(flow, head) is None:
                found = (flow, run, head)
        return found

    def _why_not(self, flow: FlowFacts, head: Head) -> str | None:
        """Return what holds a task, beside what holds its tenant's whole class."""
        if flow.run and (reason := self.gate.run(flow.run)):
            return reason
        if head.lost_starts >= LOST_STARTS_QUARANTINE and self.room.free.get(QUARANTINE, 0) <= 0:
            return "quarantine"
        if flow.run and (reason := self.gate.fan_out(flow, self.kinds.estimates.get(head.kind, EST_S), self.mean_s)):
            return reason
        return self._form(flow, head)[1]

    def _form(self, flow: FlowFacts, head: Head) -> tuple[Form, str | None]:
        """Return the form that a task may go in now; with a reason: what holds it, whole and in any other (F2)."""
        if self.forms is None:
            return WHOLE, self.gate.flow(flow) or self._kept(flow, head, flow.signature)
        why = self.gate.full
        return self.forms.choose(flow, head, lambda needed: why(flow, needed) or self._kept(flow, head, needed))

    def _kept(self, flow: FlowFacts, head: Head, signature: str) -> str | None:
        """Return what is reserved for somebody else of what a task needs (rule 11)."""
        if not signature or not (self.reserved or self.room.reserved):
            return None
        end_s = self.now_s + self.kinds.estimates.get(head.kind, EST_S)
        for resource, n in needs(signature):
            one = self.reserved.get(resource) or self.room.reserved.get(resource)
            if one is not None and one.flow.id != flow.id and not leaves(one, resource, n, self.room, end_s):
                return f"reserved:{resource}"
        return None

    def _oldest(self) -> Candidate | None:
        """Return the head that has waited longest by its class's measure, if one is aged (rule 5)."""
        found: Candidate | None = None
        longest = 1.0
        for p in self.aged:
            if self.tenants[p] is None or self.gate.priority(p) or (self.urgency and self.urgency.on_floor(p)):
                continue
            aged_s = AGED_S[p]
            for flow in by_age(self.line, self.gate, p, self.now_s):
                known = self.line.classes[p].tenants[flow.tenant]
                if self.gate.tenant(p, flow.tenant) or self.gate.flow(flow):
                    continue
                others = by_age(self.line, self.gate, p, self.now_s) if flow.id not in self.heads.seen else ()
                head = self.heads.first(flow, islice(others, AGED_A_LOOK))
                if head is None or self._why_not(flow, head):
                    continue
                ratio = (self.now_s - head.ready_s) / aged_s
                if ratio > longest:
                    found, longest = (flow, known.runs[flow.run], head), ratio
                    break
        return found

    # -- a pick

    def _take(self, candidate: Candidate, lane: int) -> None:
        flow, run, head = candidate
        seen = self.heads.seen[flow.id]
        quarantine = head.lost_starts >= LOST_STARTS_QUARANTINE
        size = 1 if quarantine else self._bundle_size(flow, head, seen)
        tasks = tuple([seen.heads.popleft().task for _ in range(size)])
        seen.used.update(tasks)
        form = WHOLE if self.forms is None else self._form(flow, head)[0]
        signature = form.of(flow)
        pick = Pick(
            flow,
            head.kind,
            tasks,
            lane,
            self.kinds.estimates.get(head.kind, EST_S) * size,
            quarantine,
            self.gate.cost(signature) if signature else 1.0,
            bool(flow.signature) and is_large(flow.signature),
            form,
        )
        self.picks.append(pick)
        self.gate.take(pick)
        p, cost_s = flow.priority, pick.est_s * pick.cost
        tenants = self.tenants[p]
        assert tenants is not None  # it was picked among them
        tenants.charge(flow.tenant, cost_s)
        runs = self.runs.get((p, flow.tenant))
        if runs is not None:
            if runs.lowest is not None:
                self.floors.setdefault((p, flow.tenant), runs.lowest)
            runs.charge(run, cost_s)
        elif run.id:
            self.floors.setdefault((p, flow.tenant), run.clock.v)
        if lane != NO_LANE:
            self.credits_s[lane] -= cost_s
        if pick.large and self.reserved:
            self.reserved = {name: one for name, one in self.reserved.items() if one.flow.id != flow.id}
        self.candidates.pop(p, None)

    def _bundle_size(self, flow: FlowFacts, head: Head, seen: Seen) -> int:
        if flow.priority == 0 or head.single or head.lost_starts or head.kind not in self.kinds.bundling:
            return 1
        waiting = sum(len(one.heads) for one in self.heads.seen.values())
        share = ceil(waiting / self.room.free[self.pool])
        est_s = max(self.kinds.estimates.get(head.kind, BUNDLE_S), BUNDLE_S / BUNDLE_MAX)
        limit = min(self.gate.members(flow), share, int(BUNDLE_S / est_s + 1e-9), BUNDLE_MAX, len(seen.heads))
        size = 0
        for following in islice(seen.heads, max(1, limit)):
            alike = following.kind == head.kind and following.degrade == head.degrade
            if size and (not alike or following.single or following.lost_starts):
                break
            size += 1
        return size

    # -- what it found out

    def _left(self) -> tuple[dict[int, str], tuple[tuple[int, float], ...]]:
        """Return why each flow that has a task left got no slot for it, and since when that waits."""
        held: dict[int, str] = {}
        since: list[tuple[int, float]] = []
        full = self.room.free[self.pool] <= 0
        pressed = set() if full else {p for p in self.classes if self._pressed(p)}
        for number, seen in self.heads.seen.items():
            if seen.heads:
                since.append((number, seen.heads[0].ready_s))
                if full:
                    held[number] = "slots"
                    continue
                flow = self.line.flows[number]
                reason = self._reason(flow, seen.heads[0])
                held[number] = reason or ("pressure" if flow.priority in pressed else "headroom")
            elif seen.used and not seen.more and seen.passed:
                held[number] = "quarantine"
        return held, tuple(since)

    def _reason(self, flow: FlowFacts, head: Head) -> str | None:
        return (
            self.gate.priority(flow.priority)
            or self.gate.tenant(flow.priority, flow.tenant)
            or self._why_not(flow, head)
        )

    def _waiting(self) -> tuple[bool, ...]:
        """Return which lanes have a backlog."""
        classes = self.line.classes
        return True, bool(classes[1].tenants), bool(classes[2].tenants), bool(classes[3].tenants), bool(self.aged)

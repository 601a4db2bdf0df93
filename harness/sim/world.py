"""The world of a simulation: tenants, runs, tasks, flows, leases and slots, and what may be done with them.

It holds what the tables hold and changes as the statements change them; what is decided is decided by policy. It knows
no time but `now_s`, which whoever drives it sets, and rolls no dice: outcomes are handed in.

Invariants: a task is on at most one lease; a lease leaves with its last member, or as a zombie when it is told to go;
the room that plans begin with is what leases leave, always.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from harness.policy import room as policy_room
from harness.policy.accounts import Charge, ClockKey
from harness.policy.flow import Head, Look
from harness.policy.known import ESTIMATE_WEIGHT, KindFacts, Standing, know
from harness.policy.lifecycle import TABLE, TERMINAL, Event, State, exit_event
from harness.policy.line import Line
from harness.policy.look import decide
from harness.policy.outlook import Course, Outlook
from harness.policy.owners import Owners
from harness.policy.plan import Pick, Plan
from harness.policy.pressure import Level
from harness.policy.ramp import WHOLE_AFTER_S
from harness.policy.room import Pause, Room
from harness.policy.settings import QUARANTINE, SYSTEM
from harness.sim.flows import Flow, FlowKey, Flows
from harness.sim.rows import Lease, Run, Task, Tenant, count_members, use_of
from harness.sim.trace import TracedAttempt

FOLD_MOST = 100  # tasks of one fold that count
LEAD_MOST_S = 10.0  # from release to claim, of which more is charged to nobody (store/sql/transitions/settle.sql)


@dataclass(frozen=True, slots=True)
class Tick:
    """What a tick decided for one pool, and the leases made of it, in the order of the picks."""

    pool: str
    plan: Plan
    leases: tuple[Lease, ...]


class Decide(Protocol):
    """Decides a tick of one pool (policy.look.decide)."""

    def __call__(self, pool: str, now_s: float, *, room: Room, standing: Standing, line: Line, look: Look) -> Plan: ...


PLANS: dict[str, Decide] = {"fair": decide}
NO_CAP = 10**9
FIRST_COME = "first_come"  # no plan: one line for all, without limits


class Watch(Protocol):
    """Who measures: told of each change, after it."""

    def ready(self, task: Task) -> None:
        """A task waits for a slot."""
        ...

    def withdrawn(self, task: Task) -> None:
        """It doesn't any more: it was cancelled."""
        ...

    def taken(self, lease: Lease) -> None:
        """A slot was given to its members."""
        ...

    def left(self, lease: Lease) -> None:
        """The slot is free again."""
        ...


class World:
    """See the module. `slots`: as the planner counts them, in the order in which a tick plans the pools.

    `plan`: decides a tick of a pool (policy.look.decide). `first_come`: one line for all, without limits.
    """

    def __init__(
        self,
        slots: Mapping[str, int],
        capacities: Mapping[str, int],
        kinds: Iterable[KindFacts],
        *,
        plan: Decide = decide,
        first_come: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self.now_s = 0.0
        self.pools = [pool for pool in slots if pool != SYSTEM]
        self.slots = dict(slots)
        self.capacities = dict(capacities)
        self.tenants: dict[int, Tenant] = {}
        self.runs: dict[int, Run] = {}
        self.tasks: dict[int, Task] = {}
        self.leases: dict[int, Lease] = {}
        self.flows: dict[str, Flows] = {pool: Flows() for pool in self.pools}
        self.owners = Owners()
        self.lines = {pool: Line(pool, self.owners) for pool in self.pools}
        self.charges: list[Charge] = []  # to be folded into the estimates
        self._unread: list[tuple[str, Charge]] = []  # until the next tick, as are new flows
        self._unknown: list[tuple[str, Flow]] = []
        self.estimates: dict[str, float] = {}
        self.course = Course()  # of resources that are held by the call, if there are any
        self.ramps: list[tuple[str, str, float]] = []  # scope, key of pauses that ended, and when
        self._level = Level.NORMAL
        self._plan = plan
        self._first_come = first_come
        self._watch = watch
        self._kinds = list(kinds)
        self._quotas: list[tuple[int, str, str, int]] = []
        self._pauses: tuple[Pause, ...] = ()
        self._ids = dict.fromkeys(("task", "run", "lease", "flow"), 0)
        self._due: list[tuple[float, int]] = []  # (when its estimate is over, lease), a heap
        if first_come:
            self.owners.set_tenant(0, cap=NO_CAP)
        self.room: Room
        self.standing: Standing
        self.stand()

    # -- what there is

    def add_tenant(self, tenant: Tenant, quotas: Sequence[tuple[str, str, int]] = ()) -> None:
        """Add a tenant with its quotas (scope, name, cap). The caller ends with `stand`."""
        self.tenants[tenant.id] = tenant
        self.owners.set_tenant(tenant.id, cap=tenant.cap, weight=tenant.weight)
        self._quotas += [(tenant.id, scope, name, cap) for scope, name, cap in quotas]

    def add_run(self, tenant: Tenant, fanout_cap: int | None, number: int | None = None) -> Run:
        """Add a run."""
        run = Run(id=number or self._next("run"), tenant=tenant, fanout_cap=fanout_cap)
        self.runs[run.id] = run
        self.owners.set_run(run.id, fanout_cap)
        return run

    def change_tenant(self, tenant: Tenant, *, cap: int | None = None, weight: float | None = None) -> None:
        """Give a tenant another cap or weight. What it has in flight beyond a lower cap runs on."""
        tenant.cap, tenant.weight = cap if cap is not None else tenant.cap, weight or tenant.weight
        self.owners.set_tenant(tenant.id, cap=tenant.cap, weight=tenant.weight)
        self.stand(self.standing.beyond)

    def pause(self, pauses: Iterable[Pause]) -> None:
        """Set the pauses in force; those that are over come back by their ramp."""
        before, self._pauses = self._pauses, tuple(pauses)
        self.ramps += [(one[0], one[1], self.now_s) for one in before if one not in self._pauses]
        self.stand()

    def stand(self, beyond: Iterable[int] = ()) -> None:
        """Take note of changed slots, capacities, quotas, pauses or estimates; measure the room anew."""
        self.standing = Standing(
            kinds=know(self._kinds, self.estimates), pauses=self._pauses, beyond=frozenset(beyond) or ()
        )
        capacities, urgent = self._capacities()
        self.room = policy_room.measure(
            self.slots,
            pauses=self._pauses,
            capacities=capacities,
            quotas=self._quotas,
            flight=[use_of(lease) for lease in self.leases.values()],
            urgent=urgent,
            tenant_caps=self.course.tenant_caps,
            level=self._level,
        )

    def press(self, level: Level) -> None:
        """Take note of the level of pressure; the next tick goes by it."""
        self._level = self.room.level = level

    def see(self, outlook: Outlook) -> None:
        """Take note of what permits say, as the leader does at its next tick (policy.outlook)."""
        self.course.follow(outlook, [use_of(lease) for lease in self.leases.values()])
        if self.course.tenant_caps == self.room.tenant_caps:
            self._look()
        else:  # what each tenant holds has to be counted
            self.stand(self.standing.beyond)

    def clocks(self, pool: str) -> dict[ClockKey, float]:
        """Return the virtual times of a pool by (priority, tenant, run)."""
        self._learn()
        return self.lines[pool].clocks()

    # -- what comes

    def submit(
        self,
        tenant: Tenant,
        run: Run | None,
        kind: str,
        pool: str,
        priority: int,
        signature: str,
        *,
        ready: bool = True,
        replay: tuple[TracedAttempt, ...] | None = None,
    ) -> Task:
        """Put a task in line; one that isn't ready waits for `ripen`."""
        task = Task(
            self._next("task"), tenant, run, kind, pool, priority, signature, self.now_s, self.now_s, replay=replay
        )
        self.tasks[task.id] = task
        tenant.live += 1
        if ready:
            self._make_ready(task)
        return task

    def ripen(self, task: Task) -> None:
        """Its time has come: a queued task is ready, one that failed is queued again."""
        if task.state is State.FAILED_RETRYABLE:
            task.state = TABLE[Event.REQUEUE].target(task.state)
        elif task.state is State.PAUSED:
            task.state = TABLE[Event.UNPARK].target(task.state)
        self._make_ready(task)

    def withdraw(self, task: Task) -> bool:
        """Cancel a task in line. Returns whether it was ready there."""
        flow = self.flows[task.pool].find(self._key(task))
        if task.state is not State.QUEUED or flow is None or all(head.task != task.id for head in flow.ready):
            return False
        flow.take((task.id,))
        if self._watch:
            self._watch.withdrawn(task)
        self._end(task, TABLE[Event.CANCEL].target(task.state))
        return True

    # -- one tick

    def tick(self) -> list[Tick]:
        """Plan pool after pool and make the leases."""
        self._learn()
        self._overrun()
        if self.course.outlook is not None:
            self._look()
        if self.ramps:
            self._slow_down()
        made = []
        self.room.reserved = {}
        for line in self.lines.values():
            if line.reserved:
                self.room.reserved |= line.reserved
        for pool in self.pools:
            if not len(self.flows[pool]) or self.room.free.get(pool, 0) <= 0:
                continue
            flows, line = self.flows[pool], self.lines[pool]
            plan = self._plan(pool, self.now_s, room=self.room, standing=self.standing, line=line, look=flows.look)
            leases = tuple([self._release(pool, pick) for pick in plan.picks])
            line.apply(plan)
            if leases:  # the store's commit writes what moved in all lines, and deletes empty flows after it
                for one in self.lines.values():
                    one.tidy()
            if plan.empty:
                line.forget(flows.delete_empty(plan.empty))
            made.append(Tick(pool, plan, leases))
        return made

    def _capacities(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        if self.course.outlook is None:
            return self.capacities, policy_room.NOTHING
        capacities, urgent = self.course.capacities(self.now_s)
        return {**self.capacities, **capacities}, urgent

    def _look(self) -> None:
        """Give the room what resources have now, beside what is in use."""
        capacities, self.room.urgent = self._capacities()
        before, self.room.capacities = self.room.capacities, capacities
        for name, n in capacities.items():
            self.room.resources[name] = self.room.resources.get(name, 0) + n - before.get(name, 0)

    def _learn(self) -> None:
        """Take what is new since the last tick: charges of what ended, then new flows, as the store's leader does."""
        for pool, charge in self._unread:
            self.lines[pool].charge(charge)
        for pool, flow in self._unknown:
            self.lines[pool].add(flow.facts, self.now_s)
        self._unread.clear()
        self._unknown.clear()

    def _overrun(self) -> None:
        """Note the leases whose estimates are over by now."""
        while self._due and self._due[0][0] < self.now_s:
            lease = self.leases.get(heappop(self._due)[1])
            if lease is not None and not lease.over:
                lease.over = True
                flow = lease.flow
                self.room.flight[lease.pool].overrun(
                    flow.priority, flow.tenant, flow.run, lease.lane, -lease.due_s * lease.cost, lease.cost
                )

    def _slow_down(self) -> None:
        self.ramps = [one for one in self.ramps if self.now_s - one[2] <= WHOLE_AFTER_S]
        self.stand(self.standing.beyond)
        if self.ramps:
            ramps = [(scope, key, self.now_s - ended_s) for scope, key, ended_s in self.ramps]
            held = [
                (lease.pool, lease.priority, lease.flow.tenant, lease.flow.run, 1) for lease in self.leases.values()
            ]
            policy_room.slow_down(self.room, ramps, held, aged_s=0.0)

    def _release(self, pool: str, pick: Pick) -> Lease:
        flow = pick.flow
        members = [self.tasks[task] for task in pick.tasks]
        first = members[0]
        lease = Lease(
            self._next("lease"),
            pool,
            QUARANTINE if pick.quarantine else None,
            first.tenant,
            first.run,
            first.priority,
            flow.signature,
            members,
            len(members),
            flow,
            self.now_s,
            pick.lane,
            pick.est_s,
            pick.cost,
        )
        self.leases[lease.id] = lease
        self.flows[pool].of(flow.id).take(pick.tasks)
        count_members(lease, len(members))
        if self._watch:
            self._watch.taken(lease)
        return lease

    # -- what becomes of a lease

    def claim(self, lease: Lease) -> None:
        """A worker takes it: its tasks run."""
        lease.claimed_s = self.now_s
        lease.due_s = self.now_s + lease.est_s
        heappush(self._due, (lease.due_s, lease.id))
        for task in lease.members:
            task.state = TABLE[Event.CLAIM].target(task.state)
            task.starts += 1

    def hand_back(self, lease: Lease) -> None:
        """Nobody claimed it: its tasks are ready again, at no cost."""
        members, lease.members = lease.members, []
        self._charge(lease, len(members), used_s=0.0)
        self._drop(lease, len(members))
        for task in members:
            self._make_ready(task)

    def settle(
        self,
        lease: Lease,
        task: Task,
        event: Event,
        slot_s: float,
        *,
        waits: bool = False,
        spends: int = 0,
        want: str | None = None,
        keep: bool = False,
    ) -> State:
        """End an attempt; `waits`: it isn't ready until `ripen`; `keep`: the thread runs on. Returns the new state."""
        really = exit_event(event, want=want)
        lease.members.remove(task)
        task.state = TABLE[really].target(task.state)
        if really is event:
            task.attempts_used += spends
        if really is Event.POSTPONE:
            task.postponements += 1
        assert lease.claimed_s is not None
        lead_s = min(lease.claimed_s - lease.released_s, LEAD_MOST_S) / lease.n
        self._charge(lease, 1, used_s=slot_s, lead_s=lead_s, kind=task.kind)
        self._leave(lease, keep=keep)
        if task.state in TERMINAL:
            self._end(task, task.state)
        elif task.state is State.QUEUED and not waits:
            self._make_ready(task)
        return task.state

    def lose(self, lease: Lease) -> list[tuple[Task, Event]]:
        """Its worker is gone: singly released, lost_starts + 1; a bundle charges nobody; in quarantine it is buried."""
        members, lease.members = lease.members, []
        used_s = self.now_s - lease.claimed_s if lease.claimed_s is not None else 0.0
        self._charge(lease, len(members), used_s=used_s)
        self._drop(lease, max(1, len(members)))
        lost = []
        for task in members:
            event = Event.BURY if lease.via else Event.LOSE
            task.state = TABLE[event].target(task.state)
            task.single = True
            task.lost_starts += int(lease.n == 1)
            if task.state in TERMINAL:
                self._end(task, task.state)
            else:
                self._make_ready(task)
            lost.append((task, event))
        return lost

    def end_zombie(self, lease: Lease) -> None:
        """The thread returned at last, or its worker is gone: it held the slot since its task was settled."""
        assert lease.zombie_since_s is not None
        self._charge(lease, 0, used_s=self.now_s - lease.zombie_since_s)
        self._drop(lease, 1)

    def fold_charges(self) -> None:
        """Fold what was used into the estimates, each charge once (store/sql/snapshot/fold.sql)."""
        if not self.charges:
            return
        used: dict[str, list[float]] = {}
        for charge in self.charges:
            used.setdefault(charge.kind, []).append(charge.slot_s)
        self.charges.clear()
        for kind, seconds in used.items():
            mean_s = sum(seconds) / len(seconds)
            known_s = self.estimates.get(kind)
            weight = 1.0 - (1.0 - ESTIMATE_WEIGHT) ** min(FOLD_MOST, len(seconds))
            self.estimates[kind] = mean_s if known_s is None else known_s + (mean_s - known_s) * weight
        kinds = know(self._kinds, self.estimates)
        self.standing = Standing(kinds=kinds, pauses=self.standing.pauses, beyond=self.standing.beyond)

    # -- inside

    def hold(self, lease: Lease) -> None:
        """Put a lease there as it stands, past any plan: to begin with a world that is already at work."""
        lease.id = lease.id or self._next("lease")
        self.leases[lease.id] = lease
        n = max(1, len(lease.members))
        count_members(lease, n)
        policy_room.count(self.room, use_of(lease))

    def _charge(self, lease: Lease, members: int, *, used_s: float, lead_s: float = 0.0, kind: str = "") -> None:
        """Charge what members that leave used beyond their estimates. `kind`: whose estimate learns from it.

        `lead_s`: for how long the slot was theirs before they were claimed.
        """
        flow = lease.flow
        charge = Charge(
            priority=flow.priority,
            tenant=flow.tenant,
            run=flow.run,
            lane=lease.lane,
            owed_s=(used_s + lead_s - members * lease.est_s / lease.n) * lease.cost,
            kind=kind,
            n=members if kind else 0,
            slot_s=used_s,
            cost_s=used_s * lease.cost,
        )
        self._unread.append((lease.pool, charge))
        if kind:
            self.charges.append(charge)

    def _leave(self, lease: Lease, *, keep: bool) -> None:
        if lease.members:
            self._give_back(lease, leases=0, members=1)
        elif keep:
            self._linger(lease)
        else:
            self._drop(lease, 1)

    def _linger(self, lease: Lease) -> None:
        """Its thread runs on. What its tasks used is charged; what it overruns begins now."""
        flow, lease.zombie_since_s = lease.flow, self.now_s
        before_s, lease.due_s = lease.due_s, self.now_s
        if lease.over:
            flight = self.room.flight[lease.pool]
            flight.overrun(flow.priority, flow.tenant, flow.run, lease.lane, (before_s - lease.due_s) * lease.cost, 0.0)
        else:
            heappush(self._due, (lease.due_s, lease.id))

    def _drop(self, lease: Lease, members: int) -> None:
        del self.leases[lease.id]
        self._give_back(lease, leases=1, members=members)
        if self._watch:
            self._watch.left(lease)

    def _give_back(self, lease: Lease, *, leases: int, members: int) -> None:
        flow = lease.flow
        over_cost = leases * lease.cost if lease.over else 0.0
        policy_room.hold(
            self.room,
            lease.pool,
            lease.via,
            (flow.priority, flow.tenant, flow.run, lease.lane),
            lease.signature,
            -leases,
            -members,
            -leases * lease.cost,
            over_cost * lease.due_s,
            -over_cost,
        )
        if leases and lease.signature:
            self.room.ends.remove((lease.released_s + lease.est_s, lease.signature))
        count_members(lease, -members)

    def _make_ready(self, task: Task) -> None:
        task.ready_s = self.now_s
        self.put(task)
        if self._watch:
            self._watch.ready(task)

    def put(self, task: Task) -> Flow:
        """Put a ready task into its flow, which is made if it isn't there."""
        flows = self.flows[task.pool]
        key = self._key(task)
        flow = flows.find(key)
        if flow is None:
            flow = Flow(self._next("flow"), key)
            flows.insert(flow)
            self._unknown.append((task.pool, flow))
        flow.add(Head(task.id, task.kind, task.single, task.lost_starts, task.ready_s))
        return flow

    def _key(self, task: Task) -> FlowKey:
        if self._first_come:  # one line for all: what a plain queue does
            return (0, 0, 0, "")
        return (task.priority, task.tenant.id, task.run.id if task.run else 0, task.signature)

    def _end(self, task: Task, state: State) -> None:
        task.state = state
        task.tenant.live -= 1
        del self.tasks[task.id]

    def _next(self, what: str) -> int:
        self._ids[what] += 1
        return self._ids[what]

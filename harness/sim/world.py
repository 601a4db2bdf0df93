"""The world of a simulation: tenants, runs, tasks, flows, leases and slots, and what may be done with them.

It holds what the tables hold and changes as the statements change them; what is decided is decided by policy. It knows
no time but `now_s`, which whoever drives it sets, and rolls no dice: outcomes are handed in.

Invariants: a task is on at most one lease; a lease leaves with its last member, or as a zombie when it is told to go;
the room that plans begin with is what leases leave, always.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from harness.policy.accounts import ClockKey
from harness.policy.flow import Head
from harness.policy.known import KindFacts, Standing
from harness.policy.lifecycle import TABLE, TERMINAL, Event, State, exit_event
from harness.policy.line import Line
from harness.policy.look import decide
from harness.policy.outlook import Outlook
from harness.policy.owners import Owners
from harness.policy.plan import Pick
from harness.policy.pressure import Level
from harness.policy.room import Pause, Room
from harness.policy.settings import QUARANTINE, SYSTEM
from harness.sim.bounds import Bounds
from harness.sim.charges import Charges
from harness.sim.flows import Flow, FlowKey, Flows
from harness.sim.plans import NO_CAP, Decide, Tick, Watch
from harness.sim.rows import Lease, Run, Task, Tenant
from harness.sim.trace import TracedAttempt

LEAD_MOST_S = 10.0  # from release to claim, of which more is charged to nobody (store/sql/transitions/settle.sql)


class World:
    """See the module. `slots`: as the planner counts them, in the order in which a tick plans the pools.

    `plan`: decides a tick of a pool (policy.look.decide). `first_come`: one line for all, without limits. `planned`:
    pools with their flows and lines.
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
        self.tenants: dict[int, Tenant] = {}
        self.runs: dict[int, Run] = {}
        self.tasks: dict[int, Task] = {}
        self.flows: dict[str, Flows] = {pool: Flows() for pool in self.pools}
        self.owners = Owners()
        self.lines = {pool: Line(pool, self.owners) for pool in self.pools}
        self.charges = Charges(kinds)
        self.bounds = Bounds(slots, capacities, self.charges.kinds)
        self.planned = [(pool, self.flows[pool], self.lines[pool]) for pool in self.pools]
        self.slots = self.bounds.slots
        self.capacities = self.bounds.capacities
        self.leases = self.bounds.leases
        self.estimates = self.charges.estimates
        self._unknown: list[tuple[str, Flow]] = []  # new flows, until the next tick
        self._plan = plan
        self._first_come = first_come
        self._watch = watch
        self._ids = dict.fromkeys(("task", "run", "lease", "flow"), 0)
        if first_come:
            self.owners.set_tenant(0, cap=NO_CAP)

    @property
    def room(self) -> Room:
        """The room that is left."""
        return self.bounds.room

    @property
    def standing(self) -> Standing:
        """What a plan must know of pauses, kinds and budgets."""
        return self.bounds.standing

    # -- what there is

    def add_tenant(self, tenant: Tenant, quotas: Sequence[tuple[str, str, int]] = ()) -> None:
        """Add a tenant with its quotas (scope, name, cap). The caller ends with `stand`."""
        self.tenants[tenant.id] = tenant
        self.owners.set_tenant(tenant.id, cap=tenant.cap, weight=tenant.weight, degrade=tenant.degrade)
        self.bounds.quotas += [(tenant.id, scope, name, cap) for scope, name, cap in quotas]

    def add_run(self, tenant: Tenant, fanout_cap: int | None, number: int | None = None) -> Run:
        """Add a run."""
        run = Run(id=number or self._next("run"), tenant=tenant, fanout_cap=fanout_cap)
        self.runs[run.id] = run
        self.owners.set_run(run.id, fanout_cap)
        return run

    def change_tenant(self, tenant: Tenant, *, cap: int | None = None, weight: float | None = None) -> None:
        """Give a tenant another cap or weight. What it has in flight beyond a lower cap runs on."""
        tenant.cap, tenant.weight = cap if cap is not None else tenant.cap, weight or tenant.weight
        self.owners.set_tenant(tenant.id, cap=tenant.cap, weight=tenant.weight, degrade=tenant.degrade)
        self.bounds.stand_again(now_s=self.now_s)

    def pause(self, pauses: Iterable[Pause]) -> None:
        """Set the pauses in force; those that are over come back by their ramp."""
        self.bounds.pause(pauses, now_s=self.now_s)

    def stand(self, beyond: Iterable[int] = ()) -> None:
        """Take note of changed slots, capacities, quotas, pauses or estimates; measure the room anew."""
        self.bounds.stand(beyond, now_s=self.now_s)

    def press(self, level: Level) -> None:
        """Take note of the level of pressure; the next tick goes by it."""
        self.bounds.press(level)

    def see(self, outlook: Outlook) -> None:
        """Take note of what permits say, as the leader does at its next tick (policy.outlook)."""
        self.bounds.see(outlook, now_s=self.now_s)

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

    def withdraw(self, task: Task, event: Event = Event.CANCEL) -> bool:
        """Cancel a task in line, or let it expire. Returns whether it was ready there."""
        flow = self.flows[task.pool].find(self._key(task))
        if task.state is not State.QUEUED or flow is None or not flow.has(task.id):
            return False
        flow.take((task.id,))
        if self._watch:
            self._watch.withdrawn(task)
        self._end(task, TABLE[event].target(task.state))
        return True

    def withdraw_unready(self, task: Task, event: Event) -> None:
        """End a task that waits outside of its line."""
        self._end(task, TABLE[event].target(task.state))

    # -- one tick

    def tick(self) -> list[Tick]:
        """Plan pool after pool and make the leases."""
        self._learn()
        now_s = self.now_s
        self.bounds.pass_time(now_s)
        room, standing = self.bounds.room, self.bounds.standing
        made = []
        room.reserved = {}
        for _, _, line in self.planned:
            if line.reserved:
                room.reserved |= line.reserved
        for pool, flows, line in self.planned:
            if not flows.by_id or room.free.get(pool, 0) <= 0:
                continue
            plan = self._plan(pool, now_s, room=room, standing=standing, line=line, look=flows.look)
            leases = tuple([self._release(pool, pick) for pick in plan.picks])
            line.apply(plan)
            if leases:  # the store's commit writes what moved in all lines, and deletes empty flows after it
                for _, _, one in self.planned:
                    one.tidy()
            if plan.empty:
                line.forget(flows.delete_empty(plan.empty))
            made.append(Tick(pool, plan, leases))
        return made

    def _learn(self) -> None:
        """Take what is new since the last tick: charges of what ended, then new flows, as the store's leader does."""
        for pool, charge in self.charges.read():
            self.lines[pool].charge(charge)
        if self._unknown:
            for pool, flow in self._unknown:
                self.lines[pool].add(flow.facts, self.now_s)
            self._unknown.clear()

    def _release(self, pool: str, pick: Pick) -> Lease:
        flow = pick.flow
        members = [self.tasks[task] for task in pick.tasks]
        first, signature = members[0], pick.signature
        lease = Lease(
            self._next("lease"),
            pool,
            QUARANTINE if pick.quarantine else None,
            first.tenant,
            first.run,
            first.priority,
            signature,
            members,
            len(members),
            flow,
            self.now_s,
            pick.lane,
            pick.est_s,
            pick.cost,
        )
        self.flows[pool].of(flow.id).take(pick.tasks)
        self.bounds.take(lease)
        if self._watch:
            self._watch.taken(lease)
        return lease

    # -- what becomes of a lease

    def claim(self, lease: Lease) -> None:
        """A worker takes it: its tasks run."""
        lease.claimed_s = self.now_s
        self.bounds.begin(lease, self.now_s)
        for task in lease.members:
            task.state = _after(Event.CLAIM, task.state)
            task.starts += 1

    def hand_back(self, lease: Lease) -> None:
        """Nobody claimed it: its tasks are ready again, at no cost."""
        members, lease.members = lease.members, []
        self.charges.make(lease, len(members), used_s=0.0)
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
        task.state = _after(really, task.state)
        if really is event:
            task.attempts_used += spends
        if really is Event.POSTPONE:
            task.postponements += 1
        assert lease.claimed_s is not None
        lead_s = min(lease.claimed_s - lease.released_s, LEAD_MOST_S) / lease.n
        self.charges.make(lease, 1, used_s=slot_s, lead_s=lead_s, kind=task.kind)
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
        self.charges.make(lease, len(members), used_s=used_s)
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
        self.charges.make(lease, 0, used_s=self.now_s - lease.zombie_since_s)
        self._drop(lease, 1)

    def fold_charges(self) -> None:
        """Fold what was used into the estimates, each charge once."""
        if self.charges.fold():
            self.bounds.relearn()

    def hold(self, lease: Lease) -> None:
        """Put a lease there as it stands, past any plan: to begin with a world that is already at work."""
        lease.id = lease.id or self._next("lease")
        self.bounds.hold(lease)

    # -- inside

    def _leave(self, lease: Lease, *, keep: bool) -> None:
        if lease.members:
            self.bounds.leave(lease)
        elif keep:
            self.bounds.linger(lease, self.now_s)
        else:
            self._drop(lease, 1)

    def _drop(self, lease: Lease, members: int) -> None:
        self.bounds.drop(lease, members)
        if self._watch:
            self._watch.left(lease)

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


@cache
def _after(event: Event, state: State) -> State:
    return TABLE[event].target(state)

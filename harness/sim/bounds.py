"""What bounds a simulated world: slots, capacities, quotas, pauses, permits, the level; and the room that they leave.

The room is measured anew when a bound changes, and kept up lease by lease in between. It knows no time but what it is
handed, and decides nothing.

Invariant: the room that is kept is the one that would be measured.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush

from harness.policy import room as policy_room
from harness.policy.known import Kinds, Standing
from harness.policy.outlook import Course, Outlook
from harness.policy.pressure import Level
from harness.policy.ramp import WHOLE_AFTER_S
from harness.policy.room import Pause, Room
from harness.sim.rows import Lease, count_members, use_of


class Bounds:
    """See the module. `slots`: as the planner counts them; `kinds`: asked for what is known of kinds now."""

    def __init__(self, slots: Mapping[str, int], capacities: Mapping[str, int], kinds: Callable[[], Kinds]) -> None:
        self.slots = dict(slots)
        self.capacities = dict(capacities)
        self.quotas: list[tuple[int, str, str, int]] = []  # tenant, scope, name, cap
        self.leases: dict[int, Lease] = {}
        self.course = Course()  # of resources that are held by the call, if there are any
        self.ramps: list[tuple[str, str, float]] = []  # scope, key of pauses that ended, and when
        self.level = Level.NORMAL
        self.room: Room
        self.standing: Standing
        self._kinds = kinds
        self._pauses: tuple[Pause, ...] = ()
        self._due: list[tuple[float, int]] = []  # (when its estimate is over, lease), a heap
        self.stand(now_s=0.0)

    # -- what bounds

    def pause(self, pauses: Iterable[Pause], *, now_s: float) -> None:
        """Set the pauses in force; those that are over come back by their ramp."""
        before, self._pauses = self._pauses, tuple(pauses)
        self.ramps += [(one[0], one[1], now_s) for one in before if one not in self._pauses]
        self.stand(now_s=now_s)

    def stand(self, beyond: Iterable[int] = (), *, now_s: float) -> None:
        """Take note of changed slots, capacities, quotas, pauses or estimates; measure the room anew."""
        self.standing = Standing(kinds=self._kinds(), pauses=self._pauses, beyond=frozenset(beyond) or ())
        capacities, urgent = self._capacities(now_s)
        self.room = policy_room.measure(
            self.slots,
            pauses=self._pauses,
            capacities=capacities,
            quotas=self.quotas,
            flight=[use_of(lease) for lease in self.leases.values()],
            urgent=urgent,
            tenant_caps=self.course.tenant_caps,
            level=self.level,
        )

    def stand_again(self, *, now_s: float) -> None:
        """Measure the room anew; those beyond their budgets still are."""
        self.stand(self.standing.beyond, now_s=now_s)

    def relearn(self) -> None:
        """Take note of changed estimates alone: they leave the room as it is."""
        before = self.standing
        self.standing = Standing(kinds=self._kinds(), pauses=before.pauses, beyond=before.beyond)

    def press(self, level: Level) -> None:
        """Take note of the level of pressure; the next tick goes by it."""
        self.level = self.room.level = level

    def see(self, outlook: Outlook, *, now_s: float) -> None:
        """Take note of what permits say, as the leader does at its next tick (policy.outlook)."""
        self.course.follow(outlook, [use_of(lease) for lease in self.leases.values()])
        if self.course.tenant_caps == self.room.tenant_caps:
            self._look(now_s)
        else:  # what each tenant holds has to be counted
            self.stand_again(now_s=now_s)

    # -- what time changes

    def pass_time(self, now_s: float) -> None:
        """Bring the room to now, as a tick begins with it."""
        self._overrun(now_s)
        if self.course.outlook is not None:
            self._look(now_s)
        if self.ramps:
            self._slow_down(now_s)

    def _capacities(self, now_s: float) -> tuple[Mapping[str, int], Mapping[str, int]]:
        if self.course.outlook is None:
            return self.capacities, policy_room.NOTHING
        capacities, urgent = self.course.capacities(now_s)
        return {**self.capacities, **capacities}, urgent

    def _look(self, now_s: float) -> None:
        """Give the room what resources have now, beside what is in use."""
        capacities, self.room.urgent = self._capacities(now_s)
        before, self.room.capacities = self.room.capacities, capacities
        for name, n in capacities.items():
            self.room.resources[name] = self.room.resources.get(name, 0) + n - before.get(name, 0)

    def _overrun(self, now_s: float) -> None:
        """Note the leases whose estimates are over by now."""
        while self._due and self._due[0][0] < now_s:
            lease = self.leases.get(heappop(self._due)[1])
            if lease is not None and not lease.over:
                lease.over = True
                flow = lease.flow
                self.room.flight[lease.pool].overrun(
                    flow.priority, flow.tenant, flow.run, lease.lane, -lease.due_s * lease.cost, lease.cost
                )

    def _slow_down(self, now_s: float) -> None:
        self.ramps = [one for one in self.ramps if now_s - one[2] <= WHOLE_AFTER_S]
        self.stand_again(now_s=now_s)
        if self.ramps:
            ramps = [(scope, key, now_s - ended_s) for scope, key, ended_s in self.ramps]
            held = [
                (lease.pool, lease.priority, lease.flow.tenant, lease.flow.run, 1) for lease in self.leases.values()
            ]
            policy_room.slow_down(self.room, ramps, held, aged_s=0.0)

    # -- what leases take and leave

    def take(self, lease: Lease) -> None:
        """A plan released it: its picks are counted in the room already."""
        self.leases[lease.id] = lease
        count_members(lease, lease.n)

    def hold(self, lease: Lease) -> None:
        """Put a lease there as it stands, past any plan."""
        self.leases[lease.id] = lease
        count_members(lease, max(1, len(lease.members)))
        policy_room.count(self.room, use_of(lease))

    def begin(self, lease: Lease, now_s: float) -> None:
        """It was claimed: its estimate runs."""
        lease.due_s = now_s + lease.est_s
        heappush(self._due, (lease.due_s, lease.id))

    def linger(self, lease: Lease, now_s: float) -> None:
        """Its thread runs on. What its tasks used is charged; what it overruns begins now."""
        flow, lease.zombie_since_s = lease.flow, now_s
        before_s, lease.due_s = lease.due_s, now_s
        if lease.over:
            flight = self.room.flight[lease.pool]
            flight.overrun(flow.priority, flow.tenant, flow.run, lease.lane, (before_s - now_s) * lease.cost, 0.0)
        else:
            heappush(self._due, (now_s, lease.id))

    def drop(self, lease: Lease, members: int) -> None:
        """It leaves with the last of its members."""
        del self.leases[lease.id]
        self._give_back(lease, leases=1, members=members)

    def leave(self, lease: Lease) -> None:
        """One of its members leaves; others stay."""
        self._give_back(lease, leases=0, members=1)

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

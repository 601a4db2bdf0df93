"""The workers of a simulation: they claim leases, take as long as the dice or the trace say, settle, time out, die.

A dead worker's slots are counted by the planner until nobody has heard of it for DEAD_AFTER_S, and its leases are lost
then; what was released to it meanwhile waits for another, or goes back after UNCLAIMED_S. All as the real ones do.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType

from harness.policy import retry
from harness.policy.errors import ErrorClass
from harness.policy.lifecycle import TERMINAL, Event, State
from harness.sim import replay
from harness.sim.clock import Clock
from harness.sim.downstream import Downstreams
from harness.sim.meter import Meter
from harness.sim.rows import Lease, Task
from harness.sim.scenario import Kind, Loss, Provider
from harness.sim.world import World

DEAD_AFTER_S = 20.0  # a worker that has not beaten for so long is gone (store.sessions)
NO_PROVIDERS: Mapping[str, Provider] = MappingProxyType({})
UNCLAIMED_S = 10.0  # a released lease that no worker claimed in this time goes back in line (engine.sweep)

Drawn = tuple[float, ErrorClass | None]  # what an attempt takes of its slot, and how it ends
# Slot-seconds, how the attempt ends, and after how many seconds it makes sense again (None: nobody says).
Ending = tuple[Lease, Task, float, ErrorClass | None, float | None]


class Workers:
    """All pools' workers. `wake`: called when a slot is free or a task ready. `sweep_s`: how often the sweep looks.

    `began`: told of each attempt's begin; `ended`: of each attempt that ended by itself.
    """

    def __init__(
        self,
        world: World,
        clock: Clock,
        meter: Meter,
        dice: Random,
        counts: Counter[str],
        *,
        kinds: Mapping[str, Kind],
        wake: Callable[[], None],
        sweep_s: float,
        began: Callable[[Task], None] | None = None,
        ended: Callable[[Task, float, Event, ErrorClass | None], None] | None = None,
        providers: Mapping[str, Provider] = NO_PROVIDERS,
    ) -> None:
        self.last_s = 0.0  # when the last task ended
        self._world, self._clock, self._meter, self._dice, self._counts = world, clock, meter, dice, counts
        self._kinds, self._wake, self._sweep_s = kinds, wake, sweep_s
        self._began, self._ended = began, ended
        self.downstreams = Downstreams(providers, clock, dice, self._over) if providers else None
        self._live = dict(world.slots)
        self._busy = dict.fromkeys(world.slots, 0)
        self._unclaimed: dict[str, deque[Lease]] = {pool: deque() for pool in world.slots}

    # -- an attempt

    def claim(self, lease: Lease) -> None:
        """A message arrives: a free slot takes it, or it waits for one."""
        where = lease.where
        if self._busy[where] >= self._live[where]:
            self._unclaimed[where].append(lease)
            return
        self._busy[where] += 1
        self._world.claim(lease)
        self._counts["starts"] += len(lease.members)
        self._begin(lease)

    def hand_back(self) -> None:
        """Give back what nobody claimed in time (the sweep)."""
        for waiting in self._unclaimed.values():
            while waiting and self._clock.now_s - waiting[0].released_s >= UNCLAIMED_S:
                self._world.hand_back(waiting.popleft())
                self._counts["handed_back"] += 1
                self._wake()

    def _begin(self, lease: Lease) -> None:
        task = lease.members[0]
        self._meter.started(task)
        if self._began:
            self._began(task)
        recorded = replay.attempt(task)
        if recorded is not None:
            slot_s, error = recorded.slot_s, None
        elif task.drawn is not None and task.starts == 1:
            slot_s, error = task.drawn
        else:
            slot_s, error = draw(self._kinds[task.kind], self._dice)
        kind = self._kinds.get(task.kind)
        if recorded is None and kind is not None and kind.calls and self.downstreams is not None:
            self.downstreams.begin(lease, task, kind.calls, slot_s, slot_s * kind.call_ratio, error)
        else:
            self._clock.at(self._clock.now_s + slot_s, self._end, (lease, task, slot_s, error, None))

    def measure(self, until_s: float) -> None:
        """What providers do is measured from now on, until then."""
        if self.downstreams is not None:
            self.downstreams.measure(until_s)

    def _over(self, lease: Lease, task: Task, slot_s: float, error: ErrorClass | None, after_s: float | None) -> None:
        self._end((lease, task, slot_s, error, after_s))

    def _end(self, ending: Ending) -> None:
        lease, task, slot_s, error, after_s = ending
        if lease.dead:
            return
        recorded = replay.attempt(task)
        zombie_s = 0.0
        delay_s: float | None
        if recorded is not None:
            event, delay_s = Event(recorded.event), recorded.gap_s
            if event is Event.LOSE:
                self._free(lease)
                self._lose(lease)
                self._wake()
                return
        elif error is ErrorClass.LOST:
            self._die(lease)
            return
        else:
            event, delay_s = self._verdict(task, error, after_s)
            if error is ErrorClass.TIMEOUT and len(lease.members) == 1:
                zombie_s = self._kinds[task.kind].zombie_s
        spends = int(event in (Event.FAIL, Event.BURY))
        state = self._world.settle(
            lease,
            task,
            event,
            slot_s,
            waits=delay_s is None or delay_s > 0,
            spends=spends,
            keep=bool(zombie_s),
        )
        self._counts[str(event)] += 1
        if event is Event.SUCCEED and task.deadline_s is not None:
            self._counts["late" if self._clock.now_s > task.deadline_s else "in_time"] += 1
        if self._ended:
            self._ended(task, slot_s, event, error)
        if state in TERMINAL:
            self.last_s = self._clock.now_s
        elif delay_s is not None and (delay_s or state is not State.QUEUED):
            due_s = self._clock.now_s + delay_s
            # The sweep finds what is due; a recorded gap has that in it.
            self._clock.at(due_s if recorded is not None else self._swept(due_s), self.ripen, task)
        if zombie_s:
            self._counts["zombies"] += 1
            self._clock.at(self._clock.now_s + zombie_s, self._end_zombie, lease)
        elif lease.members:
            self._begin(lease)
        else:
            self._free(lease)
        self._wake()

    def _verdict(self, task: Task, error: ErrorClass | None, after_s: float | None) -> tuple[Event, float | None]:
        if error is None:
            return Event.SUCCEED, None
        kind = self._kinds[task.kind]
        decision = retry.decide(
            error,
            attempts_used=task.attempts_used,
            max_attempts=kind.max_attempts,
            postponements=task.postponements,
            retry_after_s=kind.retry_after_s if error is ErrorClass.RATE_LIMIT and after_s is None else after_s,
            jitter=self._dice.random(),
            outage=bool(kind.calls) and self.downstreams is not None and self.downstreams.in_outage(kind.calls),
        )
        event = {"retry": Event.FAIL, "postpone": Event.POSTPONE, "fail": Event.BURY}[decision.verdict]
        if event is Event.FAIL and kind.calls and self.downstreams is not None and error in retry.OF_A_DOWNSTREAM:
            return event, max(decision.delay_s or 0.0, self.downstreams.retry_wait_s(kind.calls))
        return event, decision.delay_s

    def ripen(self, task: Task) -> None:
        """A task's time has come."""
        if task.id in self._world.tasks:
            self._world.ripen(task)
            self._wake()

    def _end_zombie(self, lease: Lease) -> None:
        if not lease.dead:
            self._world.end_zombie(lease)
            self._free(lease)
            self._wake()

    def _free(self, lease: Lease) -> None:
        self._busy[lease.where] -= 1
        self._take_waiting(lease.where)

    def _take_waiting(self, pool: str) -> None:
        waiting = self._unclaimed[pool]
        while waiting and self._busy[pool] < self._live[pool]:
            self.claim(waiting.popleft())

    # -- slots come and go

    def set_slots(self, pool: str, n: int) -> None:
        """A pool has so many slots from now on; what runs beyond that ends first."""
        self._come((pool, n - self._world.slots[pool]))

    def kill(self, loss: Loss) -> None:
        """A process dies with what it runs; another comes."""
        pool = loss.pool
        running = [lease for lease in self._world.leases.values() if lease.where == pool and not lease.dead]
        running = [lease for lease in running if lease.claimed_s is not None]
        slots = min(loss.slots, self._live[pool])
        for lease in self._dice.sample(running, min(slots, len(running))):
            self._mark_dead(lease)
        self._live[pool] -= slots
        self._counts["workers_lost"] += 1
        self._clock.at(self._noticed_s(), self._count, (pool, -slots))
        self._clock.at(self._clock.now_s + loss.back_s, self._come, (pool, slots))

    def _die(self, lease: Lease) -> None:
        """The process of one slot dies under its task; the slot is back when the death is noticed."""
        self._mark_dead(lease)
        self._counts["starts_lost"] += 1
        where = lease.where
        self._live[where] -= 1
        self._clock.at(self._noticed_s(), self._count, (where, -1))
        self._clock.at(self._noticed_s(), self._come, (where, 1))

    def _mark_dead(self, lease: Lease) -> None:
        lease.dead = True
        self._busy[lease.where] -= 1
        self._clock.at(self._noticed_s(), self._lose_late, lease)

    def _noticed_s(self) -> float:
        return self._swept(self._clock.now_s + DEAD_AFTER_S)

    def _swept(self, at_s: float) -> float:
        return -(-at_s // self._sweep_s) * self._sweep_s

    def _lose_late(self, lease: Lease) -> None:
        if lease.zombie_since_s is not None:
            self._world.end_zombie(lease)
        else:
            self._lose(lease)
        self._wake()

    def _lose(self, lease: Lease) -> None:
        for task, event in self._world.lose(lease):
            self._counts[str(event)] += 1
            if task.state in TERMINAL:
                self.last_s = self._clock.now_s

    def _come(self, what: tuple[str, int]) -> None:
        pool, n = what
        self._live[pool] += n
        self._count(what)
        self._take_waiting(pool)

    def _count(self, what: tuple[str, int]) -> None:
        """The planner's own count of a pool's slots changes."""
        pool, n = what
        self._world.slots[pool] += n
        self._meter.capacity(pool=pool, n=self._world.slots[pool])
        self._world.stand()
        self._wake()


def draw(kind: Kind, dice: Random) -> Drawn:
    """Draw what an attempt of a kind takes, and how it ends."""
    slot_s = kind.law.draw(dice)
    if kind.timeout_s is not None and slot_s > kind.timeout_s:
        return kind.timeout_s, ErrorClass.TIMEOUT
    if kind.failures:
        share = dice.random()
        for error, of_all in kind.failures:
            share -= of_all
            if share < 0:
                return slot_s, error
    return slot_s, None

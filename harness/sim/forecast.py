"""One replay of what waits, in virtual time: the real plan from here on, service times and arrivals drawn (rule 15).

Whoever asks brings a Picture, of the tables or of a simulated world, and the dice; the same both give the same answer.
What is known of times and of what comes is a sample, so each replay goes by a sample of that: of few, nobody knows the
mean. A replay ends when all that waits has started, at `horizon_s`, or after `steps_most` starts and arrivals: it costs
what it may cost. What has not started by then is in nobody's sight, and has no value.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from harness.policy.accounts import ClockRow, CreditRow
from harness.policy.flow import FlowFacts
from harness.policy.known import KindFacts
from harness.policy.lifecycle import Event
from harness.policy.pressure import Level
from harness.policy.room import Pause
from harness.sim.clock import Clock
from harness.sim.rows import Lease, Run, Task, Tenant
from harness.sim.world import World

COALESCE_S = 0.005  # from what happened to the tick that sees it, and from there to the claim: as in the dispatcher
HOP_S = 0.003
BEHIND_LEAST, BEHIND_MOST = 4, 400  # of what stands behind: of each flow, and in all, put in line at once
FEW, FEW_SIGMA = 5, 0.5  # times seen that are too few to sample from; how far their mean may be off (logarithm)
UNKNOWN_SIGMA = 1.0  # of the logarithm of a time that nobody has measured: most kinds of work are that uneven
OVERDUE = 0.5  # of what it has taken so far: the mean of what is left of an attempt longer than all that were measured


@dataclass(frozen=True, kw_only=True, slots=True)
class Whose:
    """Where a task stands: its flow."""

    pool: str
    priority: int
    tenant: int
    run: int = 0
    signature: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """A task that waits. `since_s`: since when it may run, or from when on."""

    task: int
    kind: str
    whose: Whose
    since_s: float
    single: bool = False
    lost_starts: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Behind:
    """`n` more tasks of a flow, younger than those told: nobody asks when they start, but others wait behind them."""

    whose: Whose
    kind: str
    n: int
    since_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A lease. `members`: (task, kind) still to end, in order, `n` there were; `claimed_s`: None, not claimed yet."""

    whose: Whose
    via: str | None
    members: tuple[tuple[int, str], ...]
    n: int
    lane: int
    est_s: float
    cost: float
    released_s: float
    claimed_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """What comes of one tenant, class and kind: batches, `rate_per_s` of them; `sizes`: of all that were seen."""

    whose: Whose
    kind: str
    rate_per_s: float
    sizes: tuple[int, ...] = (1,)
    as_run: bool = False
    fanout_cap: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """All that a replay begins with, at `now_s`.

    `tenants`: (cap, weight, may be degraded) of those that aren't as the others. `run_caps`: fan-out caps. `services`:
    by kind, sorted seconds that attempts took. `again`: by kind, the share of attempts that come back, and how late.
    """

    now_s: float
    slots: Mapping[str, int]
    kinds: Sequence[KindFacts]
    waiting: Sequence[Waiting]
    behind: Sequence[Behind] = ()
    held: Sequence[Held] = ()
    capacities: Mapping[str, int] = field(default_factory=dict)
    quotas: Sequence[tuple[int, str, str, int]] = ()
    pauses: Sequence[Pause] = ()
    beyond: Sequence[int] = ()
    tenants: Mapping[int, tuple[int, float, bool]] = field(default_factory=dict)
    run_caps: Mapping[int, int | None] = field(default_factory=dict)
    estimates: Mapping[str, float] = field(default_factory=dict)
    services: Mapping[str, Sequence[float]] = field(default_factory=dict)
    again: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    streams: Sequence[Stream] = ()
    clocks: Mapping[str, Sequence[ClockRow]] = field(default_factory=dict)
    credits: Mapping[str, Sequence[CreditRow]] = field(default_factory=dict)
    level: Level = Level.NORMAL


@dataclass(slots=True)
class Replayed:
    """What one replay came to: by task, seconds from now until it starts, and until it ends. `cut`: not to its end."""

    starts_s: dict[int, float] = field(default_factory=dict)
    ends_s: dict[int, float] = field(default_factory=dict)
    cut: bool = False


def replay(picture: Picture, dice: Random, *, horizon_s: float, steps_most: int) -> Replayed:
    """Play once from here on."""
    return _Replay(picture, dice, horizon_s, steps_most).run()


class _Replay:
    def __init__(self, picture: Picture, dice: Random, horizon_s: float, steps_most: int) -> None:
        self.picture, self.dice = picture, dice
        self.until_s, self.steps_left = picture.now_s + horizon_s, steps_most
        self.services = {kind: self._sampled(known) for kind, known in picture.services.items() if known}
        self.streams = [
            one for one in picture.streams if one.rate_per_s > 0 and picture.slots.get(one.whose.pool, 0) > 0
        ]
        self.rates = [self._rate(stream) for stream in self.streams]
        self.clock = Clock()
        self.clock.now_s = picture.now_s
        self.found = Replayed()
        self.world = World(picture.slots, picture.capacities, picture.kinds)
        self.world.estimates |= picture.estimates
        self.tenants: dict[int, Tenant] = {}
        self.runs: dict[int, Run] = {}
        self.real: dict[int, int] = {}  # the world's task -> the real one
        self.behind: dict[tuple[str, int, int, int, str], tuple[Behind, int]] = {}  # how many are still to be put
        self.ticks = False
        self.left = {one.task for one in picture.waiting}  # that have not started yet
        self._begin()

    def run(self) -> Replayed:
        clock, world = self.clock, self.world
        self._wake()
        while self.left and (next_s := clock.next_s()) is not None:
            if next_s > self.until_s or self.steps_left <= 0:
                self.found.cut = True
                break
            act, what = clock.pop()
            world.now_s = clock.now_s
            act(what)
        return self.found

    # -- how it begins

    def _begin(self) -> None:
        picture, world = self.picture, self.world
        whose = [one.whose for one in picture.waiting]
        whose += [one.whose for one in picture.behind]
        whose += [one.whose for one in picture.held]
        whose += [one.whose for one in picture.streams]
        for number in sorted({one.tenant for one in whose}):
            known = picture.tenants.get(number)
            self.tenants[number] = Tenant(number, str(number), "")
            if known is not None:
                cap, weight, degrade = known
                self.tenants[number] = Tenant(number, str(number), "", cap=cap, weight=weight, degrade=degrade)
            world.add_tenant(self.tenants[number], [quota[1:] for quota in picture.quotas if quota[0] == number])
        for one in whose:
            if one.run and one.run not in self.runs:
                self.runs[one.run] = world.add_run(
                    self.tenants[one.tenant], picture.run_caps.get(one.run), number=one.run
                )
        world.stand(picture.beyond)
        world.pause(picture.pauses)
        world.press(picture.level)
        for pool, line in world.lines.items():
            line.load(picture.clocks.get(pool, ()), picture.credits.get(pool, ()))
        self._put_in_line()
        world.now_s = picture.now_s
        for number in range(len(self.streams)):
            self._comes_next(number)

    def _put_in_line(self) -> None:
        """Tasks are older the lower their number, so all are made in the order of their real ones."""
        picture, world = self.picture, self.world
        running = {task: (kind, held) for held in picture.held for task, kind in held.members}
        waiting = {one.task: one for one in picture.waiting}
        made: dict[int, Task] = {}
        for number in sorted(running.keys() | waiting.keys()):
            if number in running:
                kind, held = running[number]
                made[number] = self._task(number, kind, held.whose)
                continue
            one = waiting[number]
            task = made[number] = self._task(number, one.kind, one.whose)
            task.single, task.lost_starts = one.single, one.lost_starts
            if one.since_s > picture.now_s:
                self.clock.at(one.since_s, self._ripen, task)
                continue
            world.now_s = one.since_s
            world.ripen(task)
            flow = world.flows[task.pool].find((task.priority, task.tenant.id, one.whose.run, task.signature))
            assert flow is not None  # the task was just put there
            world.lines[task.pool].add(flow.facts, one.since_s)
        at_once = max(BEHIND_LEAST, BEHIND_MOST // max(1, len(picture.behind)))
        for more in picture.behind:
            for _ in range(min(more.n, at_once)):
                self._put_behind(more)
        for held in picture.held:
            self._hold(held, [made[task] for task, _ in held.members])

    def _task(self, number: int | None, kind: str, whose: Whose) -> Task:
        task = self.world.submit(
            self.tenants[whose.tenant],
            self.runs.get(whose.run),
            kind,
            whose.pool,
            whose.priority,
            whose.signature,
            ready=False,
        )
        if number is not None:
            self.real[task.id] = number
        return task

    def _put_behind(self, more: Behind) -> None:
        """Put one more in its flow. The others come as it moves: most of them no replay ever gets to."""
        self.world.now_s = more.since_s
        self.world.ripen(self._task(None, more.kind, more.whose))
        self.world.now_s = self.clock.now_s
        key = (more.whose.priority, more.whose.tenant, more.whose.run, more.whose.signature)
        self.behind[more.whose.pool, *key] = (more, self.behind.get((more.whose.pool, *key), (more, more.n))[1] - 1)

    def _hold(self, held: Held, members: list[Task]) -> None:
        whose, world = held.whose, self.world
        flow = FlowFacts(id=0, priority=whose.priority, tenant=whose.tenant, run=whose.run, signature=whose.signature)
        lease = Lease(
            0,
            whose.pool,
            held.via,
            self.tenants[whose.tenant],
            self.runs.get(whose.run),
            whose.priority,
            whose.signature,
            members,
            held.n,
            flow,
            held.released_s,
            held.lane,
            held.est_s,
            held.cost,
        )
        world.hold(lease)
        if held.claimed_s is None or not members:
            self.clock.at(self.picture.now_s + HOP_S, self._claim if members else self._end_zombie, lease)
            return
        world.now_s = held.claimed_s
        world.claim(lease)
        passed_s = max(0.0, self.picture.now_s - held.claimed_s)
        self._end_later(lease, self._left(members[0].kind, passed_s / max(1, held.n - len(members) + 1)))

    # -- what happens

    def _wake(self) -> None:
        if not self.ticks:
            self.ticks = True
            self.clock.at(self.clock.now_s + COALESCE_S, self._tick)

    def _tick(self, _: None) -> None:
        self.ticks = False
        changed = False
        for one in self.world.tick():
            changed |= bool(one.leases or one.plan.empty)
            for lease in one.leases:
                self.clock.at(self.clock.now_s + HOP_S, self._claim, lease)
        if changed:
            self._wake()

    def _claim(self, lease: Lease) -> None:
        self.world.claim(lease)
        self._start(lease)

    def _start(self, lease: Lease) -> None:
        task = lease.members[0]
        self.steps_left -= 1
        slot_s = self._draw(task.kind)
        number = self.real.get(task.id)
        if number in self.left:
            self.left.remove(number)
            self.found.starts_s[number] = self.clock.now_s - self.picture.now_s
        self._end_later(lease, slot_s)
        flow = lease.flow
        more, n = self.behind.get((lease.pool, flow.priority, flow.tenant, flow.run, flow.signature), (None, 0))
        if more is not None and n > 0:
            self._put_behind(more)

    def _end_later(self, lease: Lease, left_s: float) -> None:
        """Plan the end of a lease's first task, and note when it is: a replay may be over before."""
        task = lease.members[0]
        share, after_s = self.picture.again.get(task.kind, (0.0, 0.0))
        again_s = after_s if share and self.dice.random() < share else None
        number = self.real.get(task.id)
        if number is not None:  # of one that comes back as if it found a slot then
            more_s = 0.0 if again_s is None else again_s + self._draw(task.kind)
            self.found.ends_s[number] = self.clock.now_s + left_s + more_s - self.picture.now_s
        self.clock.at(self.clock.now_s + left_s, self._end, (lease, task, again_s))

    def _end(self, ending: tuple[Lease, Task, float | None]) -> None:
        lease, task, again_s = ending
        assert lease.claimed_s is not None
        slot_s = (self.clock.now_s - lease.claimed_s) / lease.n
        event = Event.SUCCEED if again_s is None else Event.FAIL
        self.world.settle(lease, task, event, slot_s, waits=again_s is not None)
        if again_s is not None:
            self.clock.at(self.clock.now_s + again_s, self._ripen, task)
        if lease.members:
            self._start(lease)
        self._wake()

    def _end_zombie(self, lease: Lease) -> None:
        lease.zombie_since_s = self.clock.now_s
        self.world.end_zombie(lease)
        self._wake()

    def _ripen(self, task: Task) -> None:
        self.world.ripen(task)
        self._wake()

    def _comes_next(self, number: int) -> None:
        after_s = self.dice.expovariate(self.rates[number])
        self.clock.at(self.clock.now_s + after_s, self._come, number)

    def _come(self, number: int) -> None:
        stream = self.streams[number]
        whose, tenant = stream.whose, self.tenants[stream.whose.tenant]
        run = self.world.add_run(tenant, stream.fanout_cap, number=self._new_run()) if stream.as_run else None
        for _ in range(self.dice.choice(stream.sizes)):
            self.steps_left -= 1
            self.world.submit(tenant, run, stream.kind, whose.pool, whose.priority, whose.signature)
        self._comes_next(number)
        self._wake()

    def _new_run(self) -> int:
        return max(self.world.runs, default=0) + 1

    # -- how long it takes

    def _sampled(self, known: Sequence[float]) -> list[float]:
        off = self.dice.lognormvariate(0.0, FEW_SIGMA) if len(known) < FEW else 1.0
        return sorted([one * off for one in self.dice.choices(known, k=len(known))])

    def _rate(self, stream: Stream) -> float:
        n = len(stream.sizes)
        return stream.rate_per_s * self.dice.gammavariate(n, 1.0 / n)

    def _draw(self, kind: str) -> float:
        known = self.services.get(kind)
        if known:
            return self.dice.choice(known)
        return self.dice.lognormvariate(0.0, UNKNOWN_SIGMA) * self.picture.estimates.get(kind, 1.0) * 0.607

    def _left(self, kind: str, passed_s: float) -> float:
        """Draw what is left of an attempt that has taken so long already."""
        known = self.services.get(kind, ())
        first = bisect_right(known, passed_s)
        if first < len(known):
            return known[self.dice.randrange(first, len(known))] - passed_s
        mean_s = max(self.picture.estimates.get(kind, 1.0), OVERDUE * passed_s)
        return self.dice.expovariate(1.0 / mean_s) if mean_s > 0 else 0.0

"""Forecasts inside a simulation: made as the background pass makes them, and held against what came (rule 15).

Only what a dispatcher's tables would tell is used: what waits and runs, the last attempts of a kind, what came lately.
Beside each forecast stands the plain one, backlog over rate, made at the same moment from the same past.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from harness.policy import eta
from harness.policy.eta import Borne, Calibration, Range
from harness.policy.known import KindFacts
from harness.policy.lifecycle import Event
from harness.sim.forecast import Held, Picture, Stream, Waiting, Whose, replay
from harness.sim.rows import Task, Tenant
from harness.sim.scenario import Scenario
from harness.sim.world import World

RATES_S = 3600.0  # so far back go the rates of what comes
RATES_LEAST_S = 60.0  # no rate is of less: one batch a second ago is no stream
SERVICES = 300  # last attempts of a kind
HORIZON_S = 4 * 3600.0
STEPS_MOST = 10_000  # starts and arrivals of one replay
SPREAD_LEAST_S = 0.001  # a P50 below it counts as this in P90 / P50


@dataclass(slots=True)
class Made:
    """One task's first forecast. `plain_s`: backlog over rate."""

    priority: int
    at_s: float
    raw: Range
    shown: Range | None
    plain_s: float
    actual_s: float | None = None


@dataclass(slots=True)
class Foresight:
    """See the module."""

    world: World
    dice: Random
    kinds: Sequence[KindFacts]
    quotas: Sequence[tuple[int, str, str, int]] = ()
    made: dict[int, Made] = field(default_factory=dict)
    calibration: Calibration = field(default_factory=Calibration)
    began_s: float | None = None
    _came: deque[tuple[float, Whose, str, int, bool, int | None]] = field(default_factory=deque)
    _took: dict[str, deque[float]] = field(default_factory=dict)
    _starts: deque[tuple[float, str]] = field(default_factory=deque)
    _order: list[int] = field(default_factory=list)  # of forecasts, the oldest first

    # -- what happens

    def came(self, tasks: list[Task]) -> None:
        """A batch was submitted."""
        first, now_s = tasks[0], self.world.now_s
        self.began_s = now_s if self.began_s is None else self.began_s
        kinds = Counter(task.kind for task in tasks)
        for kind, number in kinds.items():
            whose = Whose(pool=first.pool, priority=first.priority, tenant=first.tenant.id, signature=first.signature)
            cap = first.run.fanout_cap if first.run else None
            self._came.append((now_s, whose, kind, number, first.run is not None, cap))

    def started(self, task: Task) -> None:
        """A task started."""
        now_s = self.world.now_s
        self._starts.append((now_s, task.pool))
        made = self.made.get(task.id)
        if made is not None and made.actual_s is None:
            made.actual_s = now_s - made.at_s

    def ended(self, task: Task, slot_s: float, event: Event) -> None:
        """An attempt ended."""
        took = self._took.get(task.kind)
        if took is None:
            took = self._took[task.kind] = deque(maxlen=SERVICES)
        took.append(slot_s)

    # -- a pass

    def look(self) -> None:
        """Make a pass: a forecast for all that waits; the first of each task is kept to be held against the truth."""
        world, now_s = self.world, self.world.now_s
        newest = [self.made[task] for task in reversed(self._order[-2 * eta.RATIOS :])]
        self.calibration = eta.calibrate(
            Borne(one.priority, one.raw, one.shown, now_s - one.at_s, one.actual_s) for one in newest
        )
        picture = self.picture()
        waiting = [world.tasks[one.task] for one in picture.waiting if not world.tasks[one.task].starts]
        if not waiting:
            return
        played = [
            replay(picture, Random(self.dice.getrandbits(64)), horizon_s=HORIZON_S, steps_most=STEPS_MOST)
            for _ in range(eta.REPLAYS)
        ]
        plain = self._plain(waiting, now_s)
        for task in waiting:
            if task.id in self.made:
                continue
            raw = eta.of_replays([one.starts_s.get(task.id, HORIZON_S) for one in played])
            trusted = self.calibration.trust is not eta.Trust.WITHDRAWN
            shown = eta.corrected(raw, eta.factors_of(self.calibration, task.priority)) if trusted else None
            self.made[task.id] = Made(task.priority, now_s, raw, shown, plain[task.id])
            self._order.append(task.id)

    def picture(self) -> Picture:
        """Return what a replay begins with."""
        world, now_s = self.world, self.world.now_s
        waiting = [
            Waiting(
                task=head.task,
                kind=head.kind,
                whose=_whose(world.tasks[head.task]),
                since_s=head.ready_s,
                single=head.single,
                lost_starts=head.lost_starts,
            )
            for flows in world.flows.values()
            for flow in flows
            for head in flow.ready
        ]
        held = [
            Held(
                whose=Whose(
                    pool=lease.pool,
                    priority=lease.priority,
                    tenant=lease.tenant.id,
                    run=lease.run.id if lease.run else 0,
                    signature=lease.signature,
                ),
                via=lease.via,
                members=tuple([(task.id, task.kind) for task in lease.members]),
                n=lease.n,
                lane=lease.lane,
                est_s=lease.est_s,
                cost=lease.cost,
                released_s=lease.released_s,
                claimed_s=lease.claimed_s,
            )
            for lease in world.leases.values()
        ]
        dumped = {pool: line.dump() for pool, line in world.lines.items()}
        return Picture(
            now_s=now_s,
            slots=dict(world.slots),
            kinds=self.kinds,
            waiting=waiting,
            held=held,
            capacities=dict(world.capacities),
            quotas=self.quotas,
            pauses=world.standing.pauses,
            tenants={tenant.id: (tenant.cap, tenant.weight, tenant.degrade) for tenant in world.tenants.values()},
            run_caps={run.id: run.fanout_cap for run in world.runs.values()},
            estimates=dict(world.estimates),
            services={kind: sorted(took) for kind, took in self._took.items()},
            streams=self._streams(now_s),
            clocks={pool: clocks for pool, (clocks, _) in dumped.items()},
            credits={pool: credits for pool, (_, credits) in dumped.items()},
            level=world.room.level,
        )

    def _streams(self, now_s: float) -> list[Stream]:
        while self._came and now_s - self._came[0][0] > RATES_S:
            self._came.popleft()
        began_s = now_s if self.began_s is None else self.began_s
        span_s = max(RATES_LEAST_S, min(RATES_S, now_s - began_s))
        sizes: dict[tuple[Whose, str, bool, int | None], list[int]] = {}
        for _, whose, kind, number, as_run, cap in self._came:
            sizes.setdefault((whose, kind, as_run, cap), []).append(number)
        return [
            Stream(
                whose=whose, kind=kind, rate_per_s=len(seen) / span_s, sizes=tuple(seen), as_run=as_run, fanout_cap=cap
            )
            for (whose, kind, as_run, cap), seen in sizes.items()
        ]

    def _plain(self, waiting: list[Task], now_s: float) -> dict[int, float]:
        """Backlog over rate: those of the pool that are more urgent or as urgent and older, over starts a second."""
        while self._starts and now_s - self._starts[0][0] > RATES_LEAST_S * 5:
            self._starts.popleft()
        began_s = now_s if self.began_s is None else self.began_s
        span_s = max(1.0, min(RATES_LEAST_S * 5, now_s - began_s))
        rates = Counter(pool for _, pool in self._starts)
        found: dict[int, float] = {}
        ahead = Counter[str]()
        for task in sorted(waiting, key=lambda one: (one.priority, one.id)):
            ahead[task.pool] += 1
            found[task.id] = ahead[task.pool] * span_s / max(1, rates[task.pool])
        return found


def of(scenario: Scenario, world: World, groups: Mapping[str, Sequence[Tenant]], dice: Random) -> Foresight:
    """Return who foresees in a scenario's world, with dice of its own. `groups`: its tenants."""
    quotas = [
        (tenant.id, *quota)
        for group, tenants in groups.items()
        for tenant in tenants
        for quota in scenario.tenants[group].quotas
    ]
    return Foresight(world, Random(dice.getrandbits(64)), list(scenario.kinds.values()), quotas)


def figures(made: Iterable[Made]) -> Mapping[str, float]:
    """Return how forecasts were borne out: of those whose task has started, and were shown.

    `raw`: before correction. `pinball_ratio`: the loss, over that of backlog over rate; `p50_ratio`: of the P50 alone.
    """
    every = [one for one in made if one.shown is not None]
    known = [(one, one.actual_s, one.shown) for one in every if one.actual_s is not None and one.shown is not None]
    if not known:
        return {"n": 0}
    spreads = sorted(shown.p90_s / max(shown.p50_s, SPREAD_LEAST_S) for _, _, shown in known)
    plain = [(actual_s, Range(one.plain_s, one.plain_s)) for one, actual_s, _ in known]
    return {
        "n": len(known),
        "unborne": len(every) - len(known),
        "p50_covers": _share(actual_s <= shown.p50_s for _, actual_s, shown in known),
        "p90_covers": _share(actual_s <= shown.p90_s for _, actual_s, shown in known),
        "raw_p50_covers": _share(actual_s <= one.raw.p50_s for one, actual_s, _ in known),
        "raw_p90_covers": _share(actual_s <= one.raw.p90_s for one, actual_s, _ in known),
        "spread": spreads[len(spreads) // 2],
        "pinball_ratio": _over(
            sum(eta.pinball(actual_s, shown) for _, actual_s, shown in known),
            sum(eta.pinball(actual_s, said) for actual_s, said in plain),
        ),
        "p50_ratio": _over(
            sum(abs(actual_s - shown.p50_s) for _, actual_s, shown in known),
            sum(abs(actual_s - said.p50_s) for actual_s, said in plain),
        ),
    }


def _share(found: Iterable[bool]) -> float:
    every = list(found)
    return sum(every) / len(every)


def _over(one: float, other: float) -> float:
    return one / other if other else 0.0


def _whose(task: Task) -> Whose:
    return Whose(
        pool=task.pool,
        priority=task.priority,
        tenant=task.tenant.id,
        run=task.run.id if task.run else 0,
        signature=task.signature,
    )

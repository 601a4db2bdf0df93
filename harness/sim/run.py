"""Plays a scenario in virtual time: what comes, when the dispatcher ticks, what changes; policy decides in between.

The loop stands in for the dispatcher's process and its sweep. One cell at a time; cells share nothing.
Invariants: time never goes back; the same scenario, seed and cell give the same events.
"""

import time
from array import array
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

from harness.policy.errors import ErrorClass
from harness.policy.lifecycle import Event, State
from harness.policy.pressure import EVERY_S, Change
from harness.policy.ramp import DOUBLES_EVERY_S, WHOLE_AFTER_S
from harness.sim import foresight, permits
from harness.sim.arrivals import Arrivals
from harness.sim.clock import Clock
from harness.sim.door import EVERY_S as EVERY_LOOK_S
from harness.sim.door import Door
from harness.sim.downstream import Downstreams
from harness.sim.foresight import Foresight
from harness.sim.ledger import Reading, between
from harness.sim.meter import FEW_TENANTS, Meter
from harness.sim.plans import FIRST_COME, PLANS
from harness.sim.pressure import Pressure
from harness.sim.rows import Task, Tenant
from harness.sim.scenario import Scenario
from harness.sim.track import STEPS, Track
from harness.sim.workers import Workers
from harness.sim.world import World

COST_EVERY = 8  # ticks of which one is timed: reading the time of the process costs as much as a small tick


@dataclass(slots=True)
class Cost:
    """What the simulator itself took, in seconds of one core; of some ticks. Not part of what a seed determines."""

    cpu_s: float = 0.0
    ticks_s: "array[float]" = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class Played:
    """What one cell came to."""

    world: World
    meter: Meter
    counts: Counter[str]
    cost: Cost
    end_s: float
    first_s: float
    last_s: float
    phases: dict[str, Reading]
    pressure: Pressure | None = None
    track: Track | None = None
    foresight: Foresight | None = None
    downstreams: Downstreams | None = None


def play(scenario: Scenario, *, seed: int, cell: int = 0, alike: bool = False, tracked: bool = False) -> Played:
    """Play one cell of a scenario.

    `alike`: what a task takes is drawn as it comes, so that it takes the same under other limits. `tracked`: for a
    chart.
    """
    one = _Play(scenario, Random(f"{seed}/{cell}"), cell)
    if alike:
        one.arrivals.tasks_dice = Random(f"{seed}/{cell}/tasks")
    if tracked:
        one.track = Track(one.world, one.counts, every_s=scenario.duration_s / STEPS)
    return one.run()


class _Play:
    def __init__(self, scenario: Scenario, dice: Random, cell: int) -> None:
        self.scenario = scenario
        self.cell = cell
        self.clock = Clock()
        self.counts: Counter[str] = Counter()
        self.cost = Cost()
        pools = {pool: self._share(steps[0][1]) for pool, steps in scenario.pools.items()}
        resources = {name: self._share(steps[0][1]) for name, steps in scenario.resources.items()}
        quotas = {name: one.quota[0][1] for name, one in scenario.providers.items()}
        everybody = [(group, name) for group in scenario.tenants.values() for name in group.names()]
        steps = round(scenario.measure.window_s / scenario.measure.step_s)
        self.meter = Meter(
            pools=pools, resources=resources | quotas, by_tenant=len(everybody) <= FEW_TENANTS, steps=steps
        )
        self.world = World(
            pools,
            resources,
            scenario.kinds.values(),
            plan=PLANS.get(scenario.plan, PLANS["fair"]),
            first_come=scenario.plan == FIRST_COME,
            watch=self.meter,
        )
        self.groups: dict[str, list[Tenant]] = {name: [] for name in scenario.tenants}
        for number, (group, name) in enumerate(everybody, 1):
            if number % scenario.cells == cell:
                tenant = Tenant(
                    number, name, group.name, group.cap, group.weight, group.backlog_quota, group.top_priority
                )
                self.groups[group.name].append(tenant)
                self.world.add_tenant(tenant, group.quotas)
        self.world.estimates |= scenario.trace.estimates if scenario.trace else {}
        self.world.stand()
        self.foresight = foresight.of(scenario, self.world, self.groups, dice) if scenario.foresee_s else None
        self.workers = Workers(
            self.world,
            self.clock,
            self.meter,
            dice,
            self.counts,
            kinds=scenario.kinds,
            wake=self._wake,
            sweep_s=scenario.dispatcher.sweep_s,
            began=self.foresight.started if self.foresight else None,
            ended=self._ended,
            providers=scenario.providers,
        )
        self.pressure = Pressure(self.world, scenario.said, self._level_changed) if scenario.pressure else None
        self.track: Track | None = None
        self._ticked_s = -1.0
        self._tick_planned = False
        self._pauses: list[int] = []
        self._phases: dict[str, Reading] = {}
        self.arrivals = Arrivals(
            scenario,
            self.world,
            self.clock,
            self.workers,
            self.counts,
            groups=self.groups,
            dice=Random(dice.getrandbits(64)),
            came=self._came,
        )
        if scenario.admission:
            assert self.pressure is not None  # the parser says so
            self.arrivals.door = Door(
                self.world,
                scenario.kinds,
                Random(dice.getrandbits(64)),
                pressure=self.pressure,
                counts=self.counts,
                ripen=self.workers.ripen,
            )

    def run(self) -> Played:
        """Play until nothing is left to happen, or the scenario's end."""
        began_s = time.process_time()
        self._plan_ahead()
        clock, world, meter = self.clock, self.world, self.meter
        end_s = float("inf") if self.scenario.end_s is None else self.scenario.end_s
        while (step := clock.step(end_s)) is not None:
            world.now_s = meter.now_s = clock.now_s
            step[0](step[1])
        if self.scenario.end_s is not None:
            clock.now_s = world.now_s = meter.now_s = end_s
        meter.finish(world.leases.values())
        for task in world.tasks.values():
            if task.state is State.QUEUED and not task.starts:
                meter.still_waits(task)
        self.cost.cpu_s = time.process_time() - began_s
        first_s = self.arrivals.first_s or 0.0
        last_s = max(first_s, self.workers.last_s)
        played = Played(world, meter, self.counts, self.cost, clock.now_s, first_s, last_s, self._phases)
        played.pressure, played.track, played.foresight = self.pressure, self.track, self.foresight
        played.downstreams = self.workers.downstreams
        return played

    def _plan_ahead(self) -> None:
        scenario, clock = self.scenario, self.clock
        clock.at(scenario.measure.from_s, self._begin)
        for pool, steps in scenario.pools.items():
            for at_s, n in steps[1:]:
                clock.at(at_s, lambda what: self.workers.set_slots(*what), (pool, self._share(n)))
        for name, steps in scenario.resources.items():
            for at_s, n in steps[1:]:
                clock.at(at_s, self._set_capacity, (name, self._share(n)))
        for number, pause in enumerate(scenario.pauses):
            clock.at(pause.from_s, self._pause, number)
            clock.at(pause.until_s, self._resume, number)
        for breaker in scenario.breakers:
            clock.at(breaker.from_s, self._read)
            for step in range(int(WHOLE_AFTER_S / DOUBLES_EVERY_S) + 1):
                clock.at(breaker.until_s + step * DOUBLES_EVERY_S, self._read)
        if scenario.breakers or scenario.providers:
            clock.at(0.0, self._read_again)
        for group in scenario.tenants.values():
            for at_s, cap in group.later_caps:
                clock.at(at_s, self._change_tenants, (group.name, cap, None))
            for at_s, weight in group.later_weights:
                clock.at(at_s, self._change_tenants, (group.name, None, weight))
        for phase in scenario.phases:
            clock.at(phase.from_s, self._phase_begins, phase.name)
            clock.at(phase.until_s, self._phase_ends, phase.name)
        for loss in scenario.losses:
            clock.at(loss.at_s, self.workers.kill, loss)
        self.arrivals.next()
        clock.beat(scenario.dispatcher.sweep_s, self._sweep)
        if self.pressure:
            clock.beat(EVERY_S, self._evaluate)
            if scenario.end_s is not None:  # levels fall when nothing else happens any more
                clock.at(scenario.end_s, lambda _: None)
        if scenario.admission:
            clock.beat(EVERY_LOOK_S, self._look_from_door)
        if self.track:
            clock.beat(self.track.every_s, self._take)
        if scenario.foresee_s:
            clock.beat(scenario.foresee_s, self._foresee)

    def _share(self, n: int) -> int:
        """This cell's part of n; all parts together are n."""
        return n // self.scenario.cells + int(self.cell < n % self.scenario.cells)

    # -- measuring

    def _begin(self, _: None) -> None:
        measure = self.scenario.measure
        self.meter.begin(measure.until_s)
        self.workers.measure(measure.until_s)
        self.clock.beat(measure.step_s, self._window)
        self.clock.at(measure.until_s, lambda _: self.meter.finish(self.world.leases.values()))

    def _window(self, _: None) -> None:
        self.meter.window(self.world.leases.values())
        if not self.meter.over:
            self.clock.beat(self.scenario.measure.step_s, self._window)

    def _take(self, _: None) -> None:
        assert self.track is not None
        self.track.step(self.world.room.level)
        self.clock.beat(self.track.every_s, self._take)

    def _phase_begins(self, name: str) -> None:
        self._phases[name] = self.meter.ledger.read(self.clock.now_s)

    def _phase_ends(self, name: str) -> None:
        self._phases[name] = between(self._phases[name], self.meter.ledger.read(self.clock.now_s))

    # -- what comes

    def _came(self, tasks: list[Task]) -> None:
        if self.pressure:
            for task in tasks:
                self.pressure.recent.came(task, self.clock.now_s)
        if self.foresight:
            self.foresight.came(tasks)
        self._wake()

    def _look_from_door(self, _: None) -> None:
        assert self.arrivals.door is not None
        self.arrivals.door.round()
        self.clock.beat(EVERY_LOOK_S, self._look_from_door)

    # -- the dispatcher

    def _wake(self) -> None:
        """Something became ready or free: a tick comes, but no closer to the last one than the loop allows."""
        if not self._tick_planned:
            free = self.world.bounds.room.free
            for pool, flows, _ in self.world.planned:
                if flows.by_id and free.get(pool, 0) > 0:
                    self._tick_planned = True
                    at_s = self._ticked_s + self.scenario.dispatcher.coalesce_s
                    self.clock.at(max(self.clock.now_s, at_s), self._tick)
                    return

    def _tick(self, _: None) -> None:
        self._tick_planned = False
        now_s = self._ticked_s = self.clock.now_s
        if self.counts["ticks"] % COST_EVERY:
            ticks = self.world.tick()
        else:
            began_s = time.process_time()
            ticks = self.world.tick()
            self.cost.ticks_s.append(time.process_time() - began_s)
        hop_s = self.scenario.dispatcher.hop_s
        changed = 0
        for one in ticks:
            changed += len(one.leases) + len(one.plan.empty)
            for lease in one.leases:
                self.clock.at(now_s + hop_s, self.workers.claim, lease)
        self.counts["ticks"] += 1
        if changed:
            self._wake()

    def _sweep(self, _: None) -> None:
        self.world.fold_charges()
        self.workers.hand_back()
        self.clock.beat(self.scenario.dispatcher.sweep_s, self._sweep)

    # -- pressure

    def _evaluate(self, _: None) -> None:
        assert self.pressure is not None
        self.pressure.evaluate()
        self.clock.beat(EVERY_S, self._evaluate)

    def _ended(self, task: Task, slot_s: float, event: Event, error: ErrorClass | None) -> None:
        if self.pressure:
            self.pressure.recent.ended(task, slot_s, event, error, self.clock.now_s)
        if self.foresight:
            self.foresight.ended(task, slot_s, event)

    def _level_changed(self, change: Change) -> None:
        self.counts[f"level_{change.after.word}"] += 1
        self._wake()

    # -- forecasts

    def _foresee(self, _: None) -> None:
        assert self.foresight is not None
        self.foresight.look()
        self.clock.beat(self.scenario.foresee_s, self._foresee)

    # -- what changes

    def _set_capacity(self, what: tuple[str, int]) -> None:
        name, n = what
        self.world.capacities[name] = n
        self.meter.capacity(resource=name, n=n)
        self.world.stand()
        self._wake()

    def _change_tenants(self, what: tuple[str, int | None, float | None]) -> None:
        group, cap, weight = what
        for tenant in self.groups[group]:
            self.world.change_tenant(tenant, cap=cap, weight=weight)
        self._wake()

    def _pause(self, number: int) -> None:
        self._pauses.append(number)
        self._obey_pauses()

    def _resume(self, number: int) -> None:
        self._pauses.remove(number)
        self._obey_pauses()
        steps = int(WHOLE_AFTER_S / DOUBLES_EVERY_S)
        for step in range(1, steps + 2):  # what came back may take more at each step of its ramp
            self.clock.at(self.clock.now_s + step * DOUBLES_EVERY_S, self._look_again)

    def _read(self, _: None) -> None:
        found = permits.outlook(self.world, self.scenario.breakers)
        if self.workers.downstreams is not None:
            calls = self.workers.downstreams.outlook()
            found = replace(calls, readings={**found.readings, **calls.readings})
        self.world.see(found)
        self._wake()

    def _read_again(self, _: None) -> None:
        self._read(None)
        self.clock.beat(permits.READ_EVERY_S, self._read_again)

    def _look_again(self, _: None) -> None:
        self.world.stand()
        self._wake()

    def _obey_pauses(self) -> None:
        by_name = {tenant.name: str(tenant.id) for tenant in self.world.tenants.values()}
        found = []
        for number in self._pauses:
            pause = self.scenario.pauses[number]
            key = by_name.get(pause.key, "0") if pause.scope == "tenant" else pause.key
            found.append((pause.scope, key, "operator", "scenario"))
        self.world.pause(found)
        self._wake()

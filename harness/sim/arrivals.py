"""What comes in a simulation, and the door that it comes to: taken, deferred, or refused; generated or recorded.

Invariants: what is refused changes nothing but counts; a recorded task was admitted when it was recorded.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

from harness.policy import admission
from harness.policy.admission import Accept, Decision, Defer
from harness.policy.lifecycle import Event
from harness.sim import replay, workload
from harness.sim.clock import Clock
from harness.sim.door import Door
from harness.sim.rows import Run, Task, Tenant
from harness.sim.scenario import Scenario, Work
from harness.sim.workers import Drawn, Workers, draw
from harness.sim.workload import Arrival
from harness.sim.world import World


class Arrivals:
    """All that comes to one cell. `came`: told of tasks that were taken, once for what comes together.

    `tasks_dice`: what a task takes is drawn from these as it comes, so that it takes the same under other limits.
    """

    def __init__(
        self,
        scenario: Scenario,
        world: World,
        clock: Clock,
        workers: Workers,
        counts: Counter[str],
        *,
        groups: dict[str, list[Tenant]],
        dice: Random,
        came: Callable[[list[Task]], None],
    ) -> None:
        self.door: Door | None = None
        self.tasks_dice: Random | None = None
        self.first_s: float | None = None
        self._scenario, self._world, self._clock, self._workers, self._counts = scenario, world, clock, workers, counts
        self._groups, self._came = groups, came
        self._facts: dict[int, admission.TenantFacts] = {}
        self._coming = self._all(dice)

    def next(self) -> None:
        """Plan the next arrival."""
        arrival = next(self._coming, None)
        if arrival is not None:
            self._clock.at(arrival.at_s, self._arrive if isinstance(arrival, Arrival) else self._replay, arrival)

    def _all(self, dice: Random) -> Iterator[Arrival | replay.Replayed]:
        if self._scenario.trace is not None:
            return replay.arrivals(self._scenario.trace, self._world, self._groups)
        return workload.arrivals(self._scenario.works, self._groups, dice)

    def _arrive(self, arrival: Arrival) -> None:
        work, tenant = arrival.work, arrival.tenant
        kinds = [self._scenario.kinds[name] for name in work.kinds]
        drawn: list[Drawn] = []
        if self.tasks_dice is not None:  # of what is refused, too: all others take the same
            drawn = [draw(kinds[number % len(kinds)], self.tasks_dice) for number in range(work.batch)]
        decision = self._decide(tenant, work)
        if isinstance(decision, Accept | Defer):
            run = self._world.add_run(tenant, work.fanout_cap) if work.as_run else None
            self._take(work, tenant, run, drawn, decision)
        else:
            self._counts[f"refused_{decision.why}"] += work.batch
            if self.door is not None and decision.why not in ("priority", "backlog"):
                self.door.refused(work)
        self.next()

    def _take(self, work: Work, tenant: Tenant, run: Run | None, drawn: list[Drawn], decision: Accept | Defer) -> None:
        now_s, tasks = self._clock.now_s, []
        for number in range(work.batch):
            kind = self._scenario.kinds[work.kinds[number % len(work.kinds)]]
            after_s = decision.after_s.get(number % len(work.kinds)) if isinstance(decision, Defer) else None
            task = self._world.submit(
                tenant, run, kind.name, kind.pool, work.priority, kind.signature, ready=after_s is None
            )
            task.drawn = drawn[number] if drawn else None
            if work.deadline_s is not None:
                task.deadline_s = now_s + work.deadline_s
                self._clock.at(now_s + max(0.0, work.deadline_s - 0.5 * kind.est_s), self._expire, task)
            if after_s is not None and self.door is not None:
                self._counts["deferred"] += 1
                self.door.defer(task, now_s + after_s)
            tasks.append(task)
        if self.door is not None:
            self.door.took(tasks)
        self._taken(tasks)

    def _decide(self, tenant: Tenant, work: Work) -> Decision:
        facts = self._facts.get(tenant.id)
        if facts is None:
            facts = self._facts[tenant.id] = admission.TenantFacts(
                id=tenant.id, name=tenant.name, top_priority=tenant.top_priority, backlog_quota=tenant.backlog_quota
            )
        if self.door is None:
            found = admission.refused(facts, most_urgent=work.priority, count=work.batch, backlog=tenant.live)
            return found or Accept()
        return self.door.decide(facts, tenant, work)

    def _replay(self, arrival: replay.Replayed) -> None:
        recorded, now_s = arrival.task, self._clock.now_s
        # Whether it was admitted was decided when it was recorded.
        task = self._world.submit(
            arrival.tenant,
            arrival.run,
            recorded.kind,
            recorded.pool,
            recorded.priority,
            recorded.signature,
            ready=not recorded.ready_s,
            replay=recorded.attempts,
        )
        if recorded.ready_s:
            self._clock.at(now_s + recorded.ready_s, self._workers.ripen, task)
        if recorded.withdrawn_s is not None:
            self._clock.at(now_s + recorded.withdrawn_s, self._withdraw, task)
        self._taken([task])
        self.next()

    def _taken(self, tasks: list[Task]) -> None:
        if self.first_s is None:
            self.first_s = self._clock.now_s
        self._counts["submitted"] += len(tasks)
        self._came(tasks)

    def _withdraw(self, task: Task) -> None:
        if task.id in self._world.tasks and self._world.withdraw(task):
            self._counts["withdrawn"] += 1

    def _expire(self, task: Task) -> None:
        """Half of what its kind takes doesn't fit before its deadline any more: it is dead work (rule R6)."""
        if task.id not in self._world.tasks:
            return
        outside = self.door is not None and self.door.forget(task)
        if outside or self._world.withdraw(task, Event.EXPIRE):
            self._counts["expire"] += 1

"""The door of a simulated world: what it knows of waits, as old as the real one's figures are, and who was deferred.

It keeps what engine.doorkeeper and engine.doorway keep, and lets in who they let in: a look each second, and what was
let in since counted on top. Decides nothing by itself (policy.admission, policy.prospect).

Invariant: a task is let in once, by its time at the latest.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from statistics import median

from harness.policy import admission, prospect
from harness.policy.admission import Decision, TenantFacts, Wanted
from harness.policy.lifecycle import Event
from harness.policy.predicted import Place
from harness.policy.pressure.facts import BIN_S, WINDOW_S
from harness.policy.prospect import Came, Deferred, Mine, Ran, Waits
from harness.sim.pressure import Pressure
from harness.sim.rows import Task, Tenant
from harness.sim.scenario import Kind, Work
from harness.sim.world import World

EVERY_S = 1.0  # between two looks, as the leader's side takes them

Asked = tuple[str, int, str]  # pool, priority, signature


@dataclass(slots=True)
class Look:
    """What the last look found. `own`: waiting by (tenant, pool, priority) and by (tenant, pool, priority, signature).

    `since`: what was let in after it, by the same.
    """

    places: Mapping[str, Place] = field(default_factory=dict)
    service_s: Mapping[str, float] = field(default_factory=dict)
    own: Counter[tuple[object, ...]] = field(default_factory=Counter)
    since: Counter[tuple[object, ...]] = field(default_factory=Counter)


class Door:
    """See the module. `pressure`: of the world, for its facts; `ripen`: lets a task into the line."""

    def __init__(
        self,
        world: World,
        kinds: Mapping[str, Kind],
        dice: Random,
        *,
        pressure: Pressure,
        counts: Counter[str],
        ripen: Callable[[Task], None],
    ) -> None:
        self._world, self._kinds, self._dice = world, kinds, dice
        self._pressure, self._counts, self._ripen = pressure, counts, ripen
        self._look = Look()
        self._deferred: dict[int, tuple[Task, float]] = {}  # by task, with its time at the latest

    # -- at the door

    def decide(self, facts: TenantFacts, tenant: Tenant, work: Work) -> Decision:
        """Decide on one submission, as a whole."""
        kinds = [self._kinds[name] for name in work.kinds]
        number = Counter(work.kinds[at % len(kinds)] for at in range(work.batch))
        wanted = []
        for kind in kinds:
            first_s, last_s = self._waits_s(tenant, (kind.pool, work.priority, kind.signature), number[kind.name])
            wanted.append(
                Wanted(
                    priority=work.priority,
                    count=number[kind.name],
                    wait_s=first_s,
                    last_s=last_s,
                    service_s=self._look.service_s.get(kind.name, 0.0),
                    deadline_s=work.deadline_s,
                )
            )
        return admission.decide(
            facts,
            most_urgent=work.priority,
            count=work.batch,
            backlog=tenant.live,
            wanted=wanted,
            level=self._world.room.level,
            luck=self._dice.random(),
        )

    def refused(self, work: Work) -> None:
        """A submission was refused: it is demand."""
        for number in range(work.batch):
            kind = self._kinds[work.kinds[number % len(work.kinds)]]
            self._pressure.recent.refused(kind.pool, kind.signature, work.priority, self._world.now_s)

    def took(self, tasks: list[Task]) -> None:
        """Tasks were taken: those that are ready count as waiting until the next look."""
        for task in tasks:
            if task.id not in self._deferred:
                self._look.since.update(_counted(task))
                self._look.since[task.pool, task.priority] += 1

    def defer(self, task: Task, until_s: float) -> None:
        """A task was deferred until then at the latest."""
        self._deferred[task.id] = (task, until_s)

    def forget(self, task: Task) -> bool:
        """A deferred task has expired. Returns whether it was deferred."""
        if self._deferred.pop(task.id, None) is None:
            return False
        self._world.withdraw_unready(task, Event.EXPIRE)
        return True

    def _waits_s(self, tenant: Tenant, asked: Asked, count: int) -> tuple[float | None, float | None]:
        """Return how long the first and the last of `count` tasks would wait."""
        look, of_class = self._look, (tenant.id, *asked[:2])
        of_those = (tenant.id, *asked)
        mine = Mine(
            tasks=look.own[of_class] + look.since[of_class],
            alike=look.own[of_those] + look.since[of_those],
            fresh=look.since[asked[:2]],
            weight=tenant.weight,
            in_flight=tenant.in_flight,
            cap=tenant.cap,
        )
        return prospect.waits_s(look.places, *asked, mine, count)

    # -- beside the line

    def round(self) -> None:
        """Look, and let in who fits, or whose time has come."""
        facts = self._read()
        places = prospect.places(facts)
        let = prospect.let_in(facts, places) if facts.deferred else []
        self._look = Look(places=places, service_s=facts.service_s, own=self._own())
        rooms = {(one.pool, one.priority, one.signature, one.tenant): one.tasks for one in let}
        now_s, ripe = self._world.now_s, []
        for number in sorted(self._deferred):
            task, until_s = self._deferred[number]
            key = (task.pool, task.priority, task.signature, task.tenant.id)
            if until_s <= now_s:
                ripe.append(task)
            elif rooms.get(key, 0) > 0:
                rooms[key] -= 1
                self._counts["let_in_early"] += 1
                ripe.append(task)
        for task in ripe:
            del self._deferred[task.id]
            if task.id in self._world.tasks:
                self._ripen(task)

    def _own(self) -> Counter[tuple[object, ...]]:
        found = Counter[tuple[object, ...]]()
        for pool, flows in self._world.flows.items():
            for flow in flows:
                priority, tenant, _, signature = flow.key
                found[tenant, pool, priority] += len(flow.ready)
                found[tenant, pool, priority, signature] += len(flow.ready)
        return found

    def _read(self) -> prospect.Facts:
        """Return the facts of the prospect, from those of pressure and from who waits."""
        facts = self._pressure.facts(refused=False)
        waiting: dict[tuple[str, int, int], float] = defaultdict(float)
        weights = self._world.owners.weight
        for pool, flows in self._world.flows.items():
            for flow in flows:
                priority, tenant, _, signature = flow.key
                for name, n in prospect.of_task(pool, signature) if flow.ready else ():
                    waiting[name, priority, tenant] += n * len(flow.ready)
        came: dict[tuple[str, str, int], float] = defaultdict(float)
        for one in facts.arrived:
            if one.bin < WINDOW_S / BIN_S:
                came[one.pool, one.signature, one.priority] += one.number / max(BIN_S, min(WINDOW_S, self._world.now_s))
        ran: dict[tuple[str, str], list[float]] = defaultdict(list)
        by_kind: dict[str, list[float]] = defaultdict(list)
        for ended in facts.ended:
            ran[ended.pool, ended.signature].append(ended.slot_s)
            if ended.verdict == Event.SUCCEED:
                by_kind[ended.kind].append(ended.slot_s)
        service_s = {name: self._world.standing.kinds.estimates[name] for name in self._kinds}
        service_s |= {name: median(seconds) for name, seconds in by_kind.items() if len(seconds) >= 5}
        return prospect.Facts(
            slots=facts.slots,
            limits=facts.limits or {},
            waiting=[Waits(*key, tasks, weights(key[2])) for key, tasks in waiting.items()],
            held=facts.held,
            came=[Came(*key, a_second) for key, a_second in came.items()],
            ran=[Ran(*key, len(seconds), sum(seconds)) for key, seconds in ran.items()],
            deferred=self._waiting_outside(),
            service_s=service_s,
        )

    def _waiting_outside(self) -> list[Deferred]:
        groups: dict[tuple[str, int, str, int], list[Task]] = {}
        for task, _ in self._deferred.values():
            groups.setdefault((task.pool, task.priority, task.signature, task.tenant.id), []).append(task)
        return [
            Deferred(*key, self._world.owners.weight(key[3]), len(tasks), min(task.id for task in tasks))
            for key, tasks in groups.items()
        ]


def _counted(task: Task) -> tuple[tuple[object, ...], ...]:
    tenant, pool, priority = task.tenant.id, task.pool, task.priority
    return ((tenant, pool, priority), (tenant, pool, priority, task.signature))

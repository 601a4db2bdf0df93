"""A pool in a simulated world, played in virtual time: who submits what, who is picked when, counted by itself.

It knows nothing of how a plan decides; what it counts, it counts from the leases that come out of ticks.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any

from hypothesis import strategies as st

from harness.policy.flow import needs
from harness.policy.lifecycle import Event, State
from harness.sim.rows import Lease, Run, Task, Tenant
from harness.sim.scenario import Kind, Law
from harness.sim.world import World

POOL = "llm"
SLOTS = (1, 2, 4, 10, 50)
FOLD_EVERY_S = 1.0


def kind(name: str, mean_s: float, signature: str = "") -> Kind:
    """A kind of the pool."""
    return Kind(name=name, pool=POOL, signature=signature, law=Law(name="fixed", mean_s=mean_s), est_s=mean_s)


PLAIN = (kind("plain", 1.0), kind("long", 3.0))
NEEDY = (kind("browse", 1.0, "browser=1"), kind("both", 2.0, "browser=1,licence=1"), kind("much", 1.0, "licence=2"))


@dataclass(frozen=True, slots=True)
class Pick:
    """A lease as it was made."""

    at_s: float
    priority: int
    tenant: int
    run: int
    kind: str
    tasks: tuple[int, ...]


class Play:
    """A world with one pool, whose leases are claimed at once and end after what `lasts` says."""

    def __init__(
        self,
        slots: int,
        *,
        kinds: Iterable[Kind] = PLAIN,
        capacities: dict[str, int] | None = None,
        lasts: Callable[[Task], float] = lambda _: 1.0,
    ) -> None:
        self.kinds = {one.name: one for one in kinds}
        self.world = World({POOL: slots, "quarantine": 1}, capacities or {}, self.kinds.values())
        self.lasts = lasts
        self.now_s = 0.0
        self.waiting: dict[int, Task] = {}
        self.picks: list[Pick] = []
        self.held: list[tuple[float, float, Task]] = []  # from, until, of each attempt
        self.before_tick: Callable[[], None] = lambda: None
        self.on_pick: Callable[[Lease, list[Lease]], None] = lambda lease, flight: None  # what was in flight before it
        self.after_tick: Callable[[], None] = lambda: None
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._number = 0
        self._folded_s = 0.0

    def tenant(self, number: int, *, cap: int = 1000, weight: float = 1.0, quotas: Any = ()) -> Tenant:
        """Add a tenant."""
        tenant = Tenant(number, f"t{number}", "all", cap=cap, weight=weight)
        self.world.add_tenant(tenant, quotas)
        self.world.stand()
        return tenant

    def submit(self, tenant: Tenant, kind: str, priority: int, run: Run | None = None, n: int = 1) -> list[Task]:
        """Put tasks in line, now."""
        one = self.kinds[kind]
        tasks = [self.world.submit(tenant, run, kind, POOL, priority, one.signature) for _ in range(n)]
        self.waiting |= {task.id: task for task in tasks}
        return tasks

    def at(self, at_s: float, act: Callable[[], object]) -> None:
        """Do something then."""
        self._number += 1
        heappush(self._heap, (at_s, self._number, act))

    def go(self, until_s: float = float("inf")) -> None:
        """Play: what happens at the same second happens before the tick of that second."""
        while self._heap and self._heap[0][0] <= until_s:
            self.now_s = self.world.now_s = self._heap[0][0]
            while self._heap and self._heap[0][0] == self.now_s:
                heappop(self._heap)[2]()
            if self.now_s - self._folded_s >= FOLD_EVERY_S:
                self._folded_s = self.now_s
                self.world.fold_charges()
            self.tick()

    def tick(self) -> list[Lease]:
        """One tick; what it picked runs."""
        flight = list(self.world.leases.values())
        self.before_tick()
        made = [lease for tick in self.world.tick() for lease in tick.leases]
        for lease in made:
            self.on_pick(lease, flight)
            flight.append(lease)
            run = lease.run.id if lease.run else 0
            ids = tuple(task.id for task in lease.members)
            self.picks.append(Pick(self.now_s, lease.priority, lease.tenant.id, run, lease.members[0].kind, ids))
            for task in lease.members:
                del self.waiting[task.id]
        self.after_tick()
        for lease in made:
            self.world.claim(lease)
            self._start(lease)
        return made

    def _start(self, lease: Lease) -> None:
        task = lease.members[0]
        slot_s = self.lasts(task)
        self.held.append((self.now_s, self.now_s + slot_s, task))
        self.at(self.now_s + slot_s, lambda: self._end(lease, task, slot_s))

    def _end(self, lease: Lease, task: Task, slot_s: float) -> None:
        assert self.world.settle(lease, task, Event.SUCCEED, slot_s) is State.SUCCEEDED
        if lease.members:
            self._start(lease)


def in_flight(flight: Iterable[Lease], **of: Any) -> int:
    """How many tasks of such leases are in flight: `tenant`, `run` (ids), `priority`; `resource`: how much of it."""
    resource = of.pop("resource", None)
    total = 0
    for lease in flight:
        found = {"tenant": lease.tenant.id, "run": lease.run.id if lease.run else 0, "priority": lease.priority}
        if all(found[name] == value for name, value in of.items()):
            total += dict(needs(lease.signature)).get(resource, 0) if resource else max(1, len(lease.members))
    return total


@dataclass(frozen=True, slots=True)
class Scene:
    """What Hypothesis draws: the rest follows from `seed`."""

    slots: int
    seed: int
    weights: tuple[float, ...]
    caps: tuple[int, ...]
    fanout_caps: tuple[int | None, ...]
    browsers: int
    licences: int
    needy: bool
    urgent: bool
    heavy: bool
    pauses: tuple[tuple[str, str], ...] = field(default=())


@st.composite
def scenes(
    draw: st.DrawFn, *, capped: bool = True, needy: bool | None = None, paused: bool = False, runs: bool = True
) -> Scene:
    """Any pool with some tenants, runs and resources."""
    n = draw(st.integers(2, 5))
    caps = st.sampled_from([1, 2, 7, 1000]) if capped else st.just(1000)
    fanout_caps = st.sampled_from([None, None, 1, 3]) if runs else st.just(-1)
    pauses = st.sampled_from([("tenant", "1"), ("priority", "p3"), ("pool_priority", f"{POOL}.p2"), ("pool", POOL)])
    return Scene(
        slots=draw(st.sampled_from(SLOTS)),
        seed=draw(st.integers(0, 10**6)),
        weights=tuple(draw(st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=n, max_size=n))),
        caps=tuple(draw(st.lists(caps, min_size=n, max_size=n))),
        fanout_caps=tuple(draw(st.lists(fanout_caps, min_size=n, max_size=n))),
        browsers=draw(st.integers(0, 4)),
        licences=draw(st.integers(0, 4)),
        needy=draw(st.booleans()) if needy is None else needy,
        urgent=draw(st.booleans()),
        heavy=draw(st.booleans()),
        pauses=tuple(draw(st.lists(pauses, max_size=2, unique=True))) if paused else (),
    )


def set_up(scene: Scene) -> Play:
    """The pool of a scene, with all that will arrive in it planned: some 40 bursts in some 25 S/C."""
    dice = Random(scene.seed)
    lengths = Random(scene.seed + 1)

    def lasts(task: Task) -> float:
        mean_s = {"long": 3.0, "both": 2.0}.get(task.kind, 1.0)
        return lengths.lognormvariate(-0.5, 1.0) * mean_s if scene.heavy else mean_s * lengths.uniform(0.5, 1.5)

    kinds = PLAIN + NEEDY if scene.needy else PLAIN
    capacities = {"browser": scene.browsers, "licence": scene.licences}
    play = Play(scene.slots, kinds=kinds, capacities=capacities, lasts=lasts)
    runs: list[tuple[Tenant, list[Run | None]]] = []
    for number, (weight, cap, fanout_cap) in enumerate(
        zip(scene.weights, scene.caps, scene.fanout_caps, strict=True), 1
    ):
        quotas = [("pool", POOL, 2)] if cap == 7 else []
        tenant = play.tenant(number, cap=cap, weight=weight, quotas=quotas)
        with_runs = fanout_cap != -1
        runs.append((tenant, [None, *(play.world.add_run(tenant, fanout_cap) for _ in range(2 * with_runs))]))
    at_s = 0.0
    for _ in range(40):
        at_s += dice.expovariate(1.0) * 0.6
        tenant, choices = dice.choice(runs)
        run = dice.choice(choices)
        name = dice.choice(sorted(play.kinds))
        priority = dice.choice((0, 1, 2, 3) if scene.urgent else (1, 2, 3))
        n = dice.choice((1, 2, max(3, scene.slots)))

        def arrive(
            tenant: Tenant = tenant, name: str = name, priority: int = priority, run: Run | None = run, n: int = n
        ) -> None:
            play.submit(tenant, name, priority, run, n)

        play.at(at_s, arrive)
    return play

"""Pressure in a simulation: the facts that a world has, and the level that the dispatcher's own functions make of them.

What the store reads of attempts and arrivals is kept here as it happens, for as long as it counts. What a world doesn't
have (connections) a scenario says. Decides nothing by itself.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from harness.policy import pressure as policy
from harness.policy.errors import ErrorClass
from harness.policy.lifecycle import Event
from harness.policy.pressure import Change, Facts, Level, Memory, State
from harness.policy.pressure.facts import ARRIVED_S, BIN_S, WINDOW_S, Arrived, Ended, Head, Held, Limit, Waits
from harness.policy.quota import Gate, stopped
from harness.policy.settings import QUARANTINE
from harness.sim.flows import Flow
from harness.sim.rows import Task
from harness.sim.scenario import Said
from harness.sim.world import World

DATABASE, DOWNSTREAM = "database", "downstream"  # the two pools of connections that a scenario may speak of


_Arrival = tuple[float, str, str, int]  # when, pool, signature, priority


class Recent:
    """What came and what ended lately."""

    def __init__(self) -> None:
        self._arrived: deque[_Arrival] = deque()
        self._refused: deque[_Arrival] = deque()
        self._ended: deque[tuple[float, Task, float, Event, ErrorClass | None]] = deque()

    def came(self, task: Task, now_s: float) -> None:
        """A task was submitted."""
        self._arrived.append((now_s, task.pool, task.signature, task.priority))

    def refused(self, pool: str, signature: str, priority: int, now_s: float) -> None:
        """A task was refused: it is demand, and never comes into the line."""
        self._refused.append((now_s, pool, signature, priority))

    def ended(self, task: Task, slot_s: float, event: Event, error: ErrorClass | None, now_s: float) -> None:
        """An attempt ended."""
        self._ended.append((now_s, task, slot_s, event, error))

    def arrivals(self, now_s: float, *, refused: bool = True) -> tuple[Arrived, ...]:
        """Return what came lately, in bins; `refused`: with what was refused."""
        counts = Counter[tuple[str, str, int, int]]()
        for came in (self._arrived, self._refused) if refused else (self._arrived,):
            while came and now_s - came[0][0] >= ARRIVED_S:
                came.popleft()
            counts.update(
                (pool, signature, priority, int((now_s - at_s) / BIN_S)) for at_s, pool, signature, priority in came
            )
        return tuple([Arrived(*key, number) for key, number in sorted(counts.items())])

    def attempts(self, now_s: float) -> tuple[Ended, ...]:
        """Return what ended lately."""
        while self._ended and now_s - self._ended[0][0] >= WINDOW_S:
            self._ended.popleft()
        return tuple(
            [
                Ended(
                    task.pool,
                    task.priority,
                    task.tenant.id,
                    task.signature,
                    task.kind,
                    slot_s,
                    str(event),
                    str(error or ""),
                    now_s - at_s,
                )
                for at_s, task, slot_s, event, error in self._ended
            ]
        )


def facts(world: World, recent: Recent, said: Mapping[str, float], *, refused: bool = True) -> Facts:
    """Return the facts that signals are measured from. `said`: readings of what the world doesn't have.

    `refused`: what was refused at the door is among what came.
    """
    now_s = world.now_s
    waiting = Counter[tuple[str, int, str]]()
    oldest: dict[tuple[str, int, int], float] = {}
    for pool, flow in _behind(world):
        priority, tenant, _, signature = flow.key
        waiting[pool, priority, signature] += len(flow.ready)
        age_s = now_s - flow.ready[0].ready_s
        oldest[pool, priority, tenant] = max(oldest.get((pool, priority, tenant), 0.0), age_s)
    held: dict[tuple[str, str], list[float]] = {}
    for lease in world.leases.values():
        held.setdefault((lease.pool, lease.signature), []).append(lease.est_s)
    return Facts(
        slots={pool: n for pool, n in world.slots.items() if pool in world.flows and pool != QUARANTINE},
        waiting=tuple([Waits(*key, number) for key, number in waiting.items()]),
        held=tuple([Held(*key, len(each_s), sum(each_s) / len(each_s)) for key, each_s in held.items()]),
        heads=tuple([Head(*key, world.owners.weight(key[2]), age_s) for key, age_s in oldest.items()]),
        arrived=recent.arrivals(now_s, refused=refused),
        ended=recent.attempts(now_s),
        limits=_limits(world),
        connections_busy_ratio=said.get("db_connection_usage", 0.0),
        waits_s={DATABASE: said.get("db_pool_wait", 0.0), DOWNSTREAM: said.get("http_pool_wait", 0.0)},
        databases=frozenset({DATABASE}),
    )


class Pressure:
    """The level of a world, evaluated as `observe` does it. `changed`: told of each change."""

    def __init__(self, world: World, said: Sequence[Said], changed: Callable[[Change], None]) -> None:
        self.recent = Recent()
        self.state = State()
        self.changes: list[tuple[float, Change]] = []
        self.lasted_s = dict.fromkeys(Level, 0.0)
        self._world, self._said, self._changed = world, said, changed
        self._memory = Memory()

    def facts(self, *, refused: bool = True) -> Facts:
        """Return the facts of now; `refused`: with what was refused."""
        now_s = self._world.now_s
        said = {one.signal: one.value for one in self._said if one.from_s <= now_s < one.until_s}
        return facts(self._world, self.recent, said, refused=refused)

    def evaluate(self) -> None:
        """Evaluate once; EVERY_S after the last time."""
        now_s, found = self._world.now_s, self.facts()
        self.lasted_s[self.state.level] += policy.EVERY_S
        self.state, change = policy.step(self.state, policy.measure(found, self._memory), policy.EVERY_S)
        self._memory = policy.learn(self._memory, found, policy.EVERY_S)
        if change is not None:
            self.changes.append((now_s, change))
            self._world.press(change.after)
            self._changed(change)


def _behind(world: World) -> list[tuple[str, Flow]]:
    """Return the flows whose tasks wait for capacity, with their pools; not those that something of their own holds."""
    found = []
    for pool, flows in world.flows.items():
        line = world.lines[pool]
        costing = world.standing.kinds.costing_in.get(pool, ())
        stop = stopped(pool, world.standing.pauses, world.standing.beyond, costing)
        gate = Gate(pool, world.room, line, stop, world.now_s)
        paused = any(scope == "pool" and key == pool for scope, key, _, _ in world.standing.pauses)
        for flow in flows if not paused else ():
            priority, tenant, run, signature = flow.key
            if not flow.ready or gate.priority(priority) or gate.tenant(priority, tenant):
                continue
            if (run and gate.run(run)) or gate.pair(tenant, signature):
                continue
            found.append((pool, flow))
    return found


def _limits(world: World) -> dict[str, Limit]:
    found = {name: Limit(limit=n, in_use=0, calls=False) for name, n in world.capacities.items()}
    outlook = world.bounds.course.outlook
    for name, reading in (outlook.readings if outlook else {}).items():
        if reading.breaker == "open":  # nothing waits for it that capacity would help
            found.pop(name, None)
        else:
            found[name] = Limit(limit=reading.limit, in_use=reading.in_flight, calls=True)
    return found

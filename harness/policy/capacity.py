"""How many slots each pool can use, from its downstreams: never from the number of processors, nor from what waits.

Pure. A pool's tasks use their kinds' resources. Any set of resources of which each of those kinds needs at least one
bounds the pool: together they carry no more than the sum of what each carries. The least such sum is the pool's
ceiling, and the resources in it are the ones that bind. What one resource carries:

    held by tasks    limit / n          n: the least that one task holds of it
    held by calls    ceil(SLOTS_AHEAD * limit / phi)      phi: the share of a task's life in its slot that it calls

Kinds that need no resource are bounded by nothing here; they are named, since more processes serve them alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from typing import Literal

from harness.policy.calls import SLOTS_AHEAD
from harness.policy.resources import CAPACITY_MOST, Live
from harness.policy.settings import SYSTEM, Pool, Topology

# Each worker process has two connections beside those of its slots, so that neither a busy pool nor a slow
# statement delays a heartbeat: the heartbeat's own, and the watch's (drain, pauses, dead children).
SIDE_CONNECTIONS = 2
CHOICES_MOST = 12  # resources to choose from: 4096 sets
OTHER_CONNECTIONS = 20  # of the budget, kept for web, dispatchers, sweeps, beat and commands


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What a task of one kind needs. A kind may have several: one for each choice of its input."""

    kind: str
    pool: str
    resources: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Carries:
    """What a resource carries. `phi` matters where calls hold it; 1 is the safe guess of who hasn't measured."""

    held: Literal["task", "call"]
    limit: int
    phi: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Binding:
    """One resource that binds a pool, and the slots that it keeps at work. `shared_with`: other pools that use it."""

    resource: str
    carries: Carries
    each: int
    slots: int
    shared_with: tuple[str, ...] = ()

    def derivation(self) -> str:
        """How `slots` comes about.

        >>> bound = Binding(resource="db:main", carries=Carries(held="task", limit=20), each=1, slots=20)
        >>> bound.derivation()
        'db:main 20'
        """
        limit = self.carries.limit
        if self.carries.held == "call":
            return f"{self.resource} ceil({SLOTS_AHEAD:g} x {limit} / {self.carries.phi:.2f}) = {self.slots}"
        return f"{self.resource} {limit}" + (f" / {self.each} = {self.slots}" if self.each > 1 else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """What bounds a pool. `free`: its kinds that need no resource; `kinds` 0: it has none at all."""

    pool: Pool
    bindings: tuple[Binding, ...]
    free: tuple[str, ...]
    kinds: int

    @property
    def slots(self) -> int | None:
        """The slots that its downstreams can keep at work; None: no downstream binds it."""
        return sum(one.slots for one in self.bindings) if self.bindings else None

    @property
    def exact(self) -> bool:
        """Whether its work never uses more slots: all of it needs what tasks hold."""
        return bool(self.bindings) and not self.free and all(one.carries.held == "task" for one in self.bindings)

    @property
    def processes(self) -> int:
        """Worker processes that give it those slots; 1 where nothing binds, or where a downstream carries nothing."""
        return max(1, ceil((self.slots or 0) / self.pool.slots))

    def derivation(self) -> str:
        """How the ceiling comes about, one line."""
        if not self.kinds:
            return "no kind runs here"
        if not self.bindings:
            return "no downstream binds it"
        whole = " + ".join(one.derivation() for one in self.bindings)
        return whole if len(self.bindings) == 1 else f"{whole}: {self.slots}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Objection:
    """Something that doesn't add up. `id` is stable; `hint` says what to do."""

    id: str
    message: str
    hint: str
    error: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """Worker processes that somebody wants to run of a pool; `slots` of each, None: as configured."""

    processes: int
    slots: int | None = None


def configured(topology: Topology) -> dict[str, Carries]:
    """Return what the resources carry as resources.toml has them."""
    return {
        name: Carries(held=one.held, limit=min(one.capacity, _pool_of(topology, name)))
        for name, one in topology.resources.items()
    }


def overridden(topology: Topology, live: Mapping[str, Live]) -> dict[str, Carries]:
    """Return what the resources carry as operators have set them, whatever their limits are at the moment."""
    found = configured(topology)
    return {
        name: Carries(held=one.held, limit=min(live[name].resource.capacity, _pool_of(topology, name)))
        for name, one in found.items()
        if name in live
    }


def bounds(topology: Topology, needs: Sequence[Need], carries: Mapping[str, Carries]) -> dict[str, Bound]:
    """Return what bounds each pool that runs tasks of its own. `carries`: by resource.

    >>> from harness.policy.settings import Pool
    >>> pool = Pool(name="x", workers="threads", slots=8, connections=1, prefetch_multiplier=1, events=False)
    >>> at = Topology(database_connections=80, pools={"x": pool}, resources={})
    >>> found = bounds(at, [Need(kind="k", pool="x", resources={"r": 2})], {"r": Carries(held="task", limit=30)})
    >>> found["x"].slots, found["x"].processes, found["x"].derivation()
    (15, 2, 'r 30 / 2 = 15')
    """
    users: dict[str, set[str]] = {}
    for need in needs:
        for name in need.resources:
            users.setdefault(name, set()).add(need.pool)
    return {
        name: _bound(pool, [need for need in needs if need.pool == name], carries, users)
        for name, pool in topology.pools.items()
        if any(need.pool == name for need in needs) or (name != SYSTEM and name not in _OWN)
    }


def _pool_of(topology: Topology, name: str) -> int:
    """A target's pool, where its limit follows it; any other resource has no such."""
    target = topology.targets.get(name)
    return target.pool if target is not None and target.follow else CAPACITY_MOST


_OWN = frozenset({"quarantine"})  # it runs other pools' tasks, within their slots


def _bound(pool: Pool, needs: Sequence[Need], carries: Mapping[str, Carries], users: Mapping[str, set[str]]) -> Bound:
    bound_kinds = [need for need in needs if need.resources]
    least = _cover(bound_kinds, carries)
    return Bound(
        pool=pool,
        bindings=tuple(
            Binding(
                resource=name,
                carries=carries[name],
                each=each,
                slots=slots,
                shared_with=tuple(sorted(users[name] - {pool.name})),
            )
            for name, each, slots in least
        ),
        free=tuple(sorted({need.kind for need in needs if not need.resources})),
        kinds=len({need.kind for need in needs}),
    )


def _cover(needs: Sequence[Need], carries: Mapping[str, Carries]) -> list[tuple[str, int, int]]:
    """Return (resource, each, slots) of the set that bounds them most; of equal ones the smallest, then by name."""
    signatures = [{name: n for name, n in need.resources.items() if name in carries} for need in needs]
    signatures = [one for one in signatures if one]
    if not signatures:
        return []
    forced = {name for one in signatures if len(one) == 1 for name in one}  # in every such set
    rest = [one for one in signatures if not forced & one.keys()]
    some = sorted({name for one in rest for name in one})[:CHOICES_MOST]
    best: list[tuple[str, int, int]] = []
    for size in range(len(some) + 1):
        for chosen in combinations(some, size):
            names = sorted(forced.union(chosen))
            if not all(one.keys() & names for one in signatures):
                continue
            found = [(name, *_slots(name, signatures, carries[name])) for name in names]
            if not best or sum(one[2] for one in found) < sum(one[2] for one in best):
                best = found
    return best


def _slots(name: str, signatures: Iterable[Mapping[str, int]], carries: Carries) -> tuple[int, int]:
    each = min(one[name] for one in signatures if name in one)
    if carries.held == "call":
        return 1, ceil(SLOTS_AHEAD * carries.limit / carries.phi - 1e-9)
    return each, carries.limit // each


def process_connections(pools: Sequence[Pool]) -> int:
    """Return the connections to Harness's database that one worker process of these pools may open."""
    own = sum(pool.connections for pool in pools)
    return (own * 2 if any(pool.name == SYSTEM for pool in pools) else own) + SIDE_CONNECTIONS


def judge(topology: Topology, found: Mapping[str, Bound], wishes: Mapping[str, Wish]) -> tuple[Objection, ...]:
    """Say what is against running so many worker processes, each of one pool; with the derivation."""
    objections, connections, parts = [], 0, []
    for name, wish in wishes.items():
        pool = topology.pool(name)
        slots = wish.slots or pool.slots
        whole = wish.processes * slots
        each = process_connections([pool])
        connections += wish.processes * each
        parts.append(f"{name} {wish.processes} x {each}")
        bound = found.get(name)
        if bound is None or bound.slots is None:
            continue
        useful = max(1, ceil(bound.slots / slots))
        if wish.processes <= useful + bound.exact:  # there one more stands by, to take over
            continue
        rest = wish.processes - useful
        gain = f"only {', '.join(bound.free)} gain from the other {rest}"
        objections.append(
            Objection(
                id="slots",
                message=f"pool {name}: {wish.processes} processes x {slots} slots = {whole}, but its downstreams carry "
                f"{bound.slots} ({bound.derivation()})",
                hint=f"{useful} do; {gain if bound.free else f'the other {rest} would get no work'}",
                error=not bound.free,
            )
        )
    budget = topology.database_connections
    room = budget - OTHER_CONNECTIONS
    if connections > room:
        objections.append(
            Objection(
                id="connections",
                message=f"Harness's own database: {' + '.join(parts)} = {connections} connections, but the budget is "
                f"{budget} - {OTHER_CONNECTIONS} kept for web, dispatchers and commands = {room}",
                hint="run fewer processes, lower `connections` of their pools, or raise [database] connections "
                "(and max_connections of the server)",
                error=True,
            )
        )
    return tuple(objections)


def objections(topology: Topology, needs: Sequence[Need]) -> tuple[Objection, ...]:
    """Say what doesn't add up in resources.toml, whatever runs."""
    found = bounds(topology, needs, configured(topology))
    said = []
    for name, bound in found.items():
        slots = bound.slots
        if slots is not None and bound.pool.slots > slots and not bound.free:
            said.append(
                Objection(
                    id="slots",
                    message=f"pool {name}: one process has {bound.pool.slots} slots, but its downstreams carry {slots} "
                    f"({bound.derivation()})",
                    hint=f"the others stay empty: set pools.{name}.slots = {max(1, slots)}, or raise the capacity",
                )
            )
    one_each = {name: Wish(1) for name in topology.pools}
    said += [one for one in judge(topology, found, one_each) if one.id == "connections"]
    return tuple(said)

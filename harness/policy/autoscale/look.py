"""From the facts of the pressure, and how resources stand, to a pool's crew, work and downstreams. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.policy.autoscale.size import Crew, Downstream, Work
from harness.policy.capacity import OTHER_CONNECTIONS, process_connections
from harness.policy.errors import ErrorClass
from harness.policy.flow import needs
from harness.policy.pressure.facts import BIN_S, Facts
from harness.policy.pressure.machine import Reading
from harness.policy.pressure.measure import DONE, PHI_LEAST, S_LEAST, lasting
from harness.policy.pressure.signals import Level
from harness.policy.settings import QUARANTINE, SYSTEM, Topology

REFUSED_S = 10.0  # so long after a 429 nobody is added: two canaries of a limiter that drains
MINUTE_S = 60.0
URGENT_BELOW = 2  # P0, P1
PRIOR_S = 10.0  # that a task takes of which nobody knows anything
PHI_LEASES = 5  # of fewer tasks at work their share in calls is chance
PHI_WEIGHT = 0.15  # of one look each 5 s: an EWMA over 30 s
# What says that something behind the workers has too much; of refusals `Downstream.refuses` knows more, and sooner.
STRAINS = ("tool_error_rate", "retry_storm", "db_connection_usage", "db_pool_wait", "http_pool_wait")


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """How a resource stands. `limit`: the most of what it has now and what is proven; `shut`: why, "": it isn't."""

    held: Literal["task", "call"]
    limit: int
    ceiling: int
    adaptive: bool = False
    mode: str = ""
    in_flight: int = 0
    waiting: int = 0
    shut: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Runs:
    """A worker process that lives: its slots by pool, the connections that it may open, whether it drains."""

    pools: Mapping[str, int]
    connections: int
    draining: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """Everything at one moment."""

    facts: Facts
    seen: Mapping[str, Seen]
    runs: Sequence[Runs] = ()
    level: Level = Level.NORMAL
    signals: Mapping[str, Reading] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """What `size` is asked about a pool."""

    crew: Crew
    work: tuple[Work, ...]
    downstreams: Mapping[str, Downstream]


def pools(topology: Topology, look: Look, phi: Mapping[str, float]) -> dict[str, Pool]:
    """Return every pool that can have more or fewer workers. `phi`: by resource, as `learn` keeps it."""
    leases = _leases(look.facts)
    refused = _refused(look.facts)
    strained = tuple(
        sorted(name for name in STRAINS if name in look.signals and look.signals[name].score >= Level.HIGH)
    )
    room = topology.database_connections - OTHER_CONNECTIONS - sum(one.connections for one in look.runs)
    found = {}
    for name, pool in topology.pools.items():
        if name in (SYSTEM, QUARANTINE):
            continue
        workers = sum(name in one.pools and not one.draining for one in look.runs)
        work = _work(look.facts, name)
        found[name] = Pool(
            crew=Crew(
                pool=name,
                each=pool.slots,
                workers=workers,
                in_use=sum(one.leases for one in look.facts.held if one.pool == name),
                least=pool.processes_least,
                most=pool.processes_most,
                connections=workers + max(0, room) // process_connections([pool]),
                strained=strained if look.level >= Level.HIGH else (),
            ),
            work=work,
            downstreams={
                resource: _downstream(resource, look, leases, name, refused, phi)
                for resource in sorted({resource for one in work for resource in one.needs})
                if resource in look.seen
            },
        )
    return found


def learn(phi: Mapping[str, float], look: Look) -> dict[str, float]:
    """Return the share of a task's life in its slot that it calls, by resource, with one look more."""
    leases = _leases(look.facts)
    found = {}
    for name, one in look.seen.items():
        before = phi.get(name, 1.0)
        active = sum(leases[name].values()) - one.waiting
        if one.held == "call" and active >= PHI_LEASES and not _shut(one):
            before += PHI_WEIGHT * (min(1.0, max(PHI_LEAST, one.in_flight / active)) - before)
        found[name] = before
    return found


def _downstream(
    name: str,
    look: Look,
    leases: Mapping[str, Mapping[str, int]],
    pool: str,
    refused: Iterable[str],
    phi: Mapping[str, float],
) -> Downstream:
    one, own = look.seen[name], leases[name].get(pool, 0)
    whole = sum(leases[name].values())
    return Downstream(
        name=name,
        held=one.held,
        limit=one.limit,
        ceiling=one.ceiling if one.adaptive else one.limit,
        phi=phi.get(name, 1.0) if one.held == "call" else 1.0,
        leases=own,
        others=whole - own,
        in_use=whole if one.held == "task" else one.in_flight,
        waiting=one.waiting,
        refuses=_shut(one) or ("answers 429" if one.held == "call" and name in refused else ""),
        seeking=one.adaptive and one.mode == "ramp",
        settled=one.adaptive and one.mode == "hold" and not one.shut,
    )


def _shut(one: Seen) -> str:
    return one.shut or ("answers 429" if one.adaptive and one.mode == "drain" else "")


def _refused(facts: Facts) -> set[str]:
    return {
        name
        for one in facts.ended
        if one.error == ErrorClass.RATE_LIMIT and one.age_s < REFUSED_S
        for name, _ in needs(one.signature)
    }


def _leases(facts: Facts) -> Mapping[str, dict[str, int]]:
    """Return leases by resource and pool; of what tasks hold, how much of it."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in facts.held:
        for name, n in needs(one.signature):
            found[name][one.pool] += n * one.leases
    return found


def _work(facts: Facts, pool: str) -> tuple[Work, ...]:
    waiting: dict[str, int] = defaultdict(int)
    urgent: dict[str, int] = defaultdict(int)
    leases: dict[str, int] = defaultdict(int)
    expected_s: dict[str, float] = {}
    bins: dict[str, list[int]] = defaultdict(lambda: [0] * int(MINUTE_S / BIN_S))
    for waits in facts.waiting:
        if waits.pool == pool:
            waiting[waits.signature] += waits.number
            urgent[waits.signature] += waits.number if waits.priority < URGENT_BELOW else 0
    for held in facts.held:
        if held.pool == pool:
            leases[held.signature] += held.leases
            expected_s[held.signature] = held.est_s
    for arrived in facts.arrived:
        if arrived.pool == pool and arrived.bin < MINUTE_S / BIN_S:
            bins[arrived.signature][arrived.bin] += arrived.number
    took = _took(facts, pool)
    return tuple(
        Work(
            needs=dict(needs(one)),
            waiting=waiting[one],
            urgent=urgent[one],
            leases=leases[one],
            a_second=lasting(bins[one], facts.arrived_s),
            mean_s=max(S_LEAST, took.get(one) or expected_s.get(one) or took.get(None) or PRIOR_S),
        )
        for one in sorted({*waiting, *leases, *bins})
    )


def _took(facts: Facts, pool: str) -> dict[str | None, float]:
    """Return what tasks took in their slots, in the mean, by signature; None: whatever the signature."""
    times: dict[str | None, list[float]] = defaultdict(list)
    for one in facts.ended:
        if one.pool == pool and one.verdict in DONE:
            times[one.signature].append(one.slot_s)
            times[None].append(one.slot_s)
    return {name: sum(found) / len(found) for name, found in times.items()}

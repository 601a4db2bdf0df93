"""What the downstreams carry and what runs: the facts of `manage.py capacity`, gathered and judged. Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.kinds import registry
from harness.policy import capacity as policy
from harness.policy.calls import PHI_LEAST, PHI_MOST
from harness.policy.capacity import Bound, Carries, Objection, Wish
from harness.policy.resources import Live
from harness.policy.settings import Pool, Topology
from harness.store import capacity as store
from harness.store import resources, targets
from harness.store.capacity import Process, Server
from harness.store.database import Connection
from harness.store.resources import Change, ResourceNow

PHI_FROM_LEASES = 5  # tasks at work with a resource: of fewer, their share in calls is chance


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """A downstream: what it carries as sized, its limit now, and who last changed that. `held`: by tasks at work."""

    name: str
    live: Live
    sized: Carries
    measured: bool
    now: ResourceNow | None
    change: Change | None
    held: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolNow:
    """A pool: what bounds it, what runs of it, and what follows. `missing`, `beyond`: worker processes."""

    bound: Bound
    processes: int
    slots: int
    at_work: int
    beyond: int

    @property
    def pool(self) -> Pool:
        """The pool."""
        return self.bound.pool

    @property
    def verdict(self) -> str:
        """One sentence: what to do, if anything."""
        bound = self.bound
        if not bound.kinds:
            return "nothing to run" if not self.processes else "its processes have nothing to run"
        if not self.processes:
            return "none runs: its tasks wait"
        if self.beyond:
            if bound.exact:
                return "one stands by" if self.beyond == 1 else f"over-provisioned: {self.beyond} of them stand by"
            gain = f"only {', '.join(bound.free)} gain from" if bound.free else "no work for"
            return f"over-provisioned: {gain} {self.beyond} of them"
        if bound.slots is not None and bound.processes > self.processes:
            return f"up to {bound.processes - self.processes} more would get work"
        return "as it should be" if bound.slots is not None else "more processes, more work at once"


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """Everything: pools and resources by name, worker processes, connections and what doesn't add up."""

    pools: Mapping[str, PoolNow]
    resources: Mapping[str, Resource]
    processes: tuple[Process, ...]
    server: Server
    budget: int
    objections: tuple[Objection, ...]

    @property
    def connections(self) -> int:
        """Connections that the worker processes may open to Harness's database."""
        return sum(one.connections for one in self.processes)

    @property
    def connections_wanted(self) -> int:
        """Those of as many worker processes of each pool as its downstreams carry, each of one pool."""
        return sum(one.bound.processes * policy.process_connections([one.pool]) for one in self.pools.values())


def capacity(connection: Connection, topology: Topology) -> Capacity:
    """Gather and judge. Raises: psycopg.Error."""
    # 1. Load
    live = resources.effective(connection, topology.resources)
    kept = resources.kept(connection)
    held = targets.leases(connection)
    running = store.processes(connection)
    server = store.server(connection)
    last = resources.last_changes(connection, live)
    wanted = registry.needs()
    # 2. Decide
    sized = policy.overridden(topology, live)
    found = {
        name: _resource(one, sized[name].limit, kept.get(name), last.get(name), held.get(name, 0))
        for name, one in live.items()
    }
    bounds = policy.bounds(topology, wanted, {name: one.sized for name, one in found.items()})
    return Capacity(
        pools={name: _pool(bound, running, server) for name, bound in bounds.items()},
        resources=found,
        processes=tuple(running),
        server=server,
        budget=topology.database_connections,
        objections=policy.objections(topology, wanted),
    )


def judge(found: Capacity, topology: Topology, wishes: Mapping[str, Wish]) -> tuple[Objection, ...]:
    """Say what is against running so many worker processes."""
    return policy.judge(topology, {name: one.bound for name, one in found.pools.items()}, wishes)


def _resource(live: Live, limit: int, now: ResourceNow | None, change: Change | None, held: int) -> Resource:
    """Size by what it carries in good times: a limit that is low for a minute sends nobody home."""
    one = live.resource
    phi, measured = 1.0, False
    if one.adaptive and now is not None:
        limit = min(limit, max(now.limit_now, now.proven or 0))
    if one.held == "call" and now is not None and held >= PHI_FROM_LEASES:
        phi, measured = max(PHI_LEAST, min(now.in_flight / held, PHI_MOST)), True
    return Resource(
        name=one.name,
        live=live,
        sized=Carries(held=one.held, limit=limit, phi=phi),
        measured=measured,
        now=now,
        change=change,
        held=held,
    )


def _pool(bound: Bound, running: list[Process], server: Server) -> PoolNow:
    name = bound.pool.name
    of_it = [one for one in running if name in one.pools and not one.draining]
    slots = sum(one.pools[name] for one in of_it)
    beyond = 0
    if bound.slots is not None:
        left = slots
        for size in sorted((one.pools[name] for one in of_it), reverse=True):
            if left - size < bound.slots or beyond == len(of_it) - 1:
                break
            left, beyond = left - size, beyond + 1
    return PoolNow(bound=bound, processes=len(of_it), slots=slots, at_work=server.at_work.get(name, 0), beyond=beyond)

"""What runs: a dispatcher that leads, beat with its worker, and a worker of this code for every pool."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from harness.kinds import registry
from harness.ops.deployment.finding import Finding, Level
from harness.policy.settings import Topology
from harness.store import capacity, pressure, queries, sessions
from harness.store.database import Connection

OBSERVED_S = 30.0  # beat asks for it each 5 s


def dispatcher(connection: Connection) -> Iterator[Finding]:
    """Yield whether somebody releases tasks."""
    if queries.readiness(connection).leading:
        yield _found("dispatcher", "ok", "one leads")
    else:
        yield _found("dispatcher", "error", "none leads: no task is released", "start `manage.py dispatcher`, best two")


def beat(connection: Connection) -> Iterator[Finding]:
    """Yield whether pressure, limits and advice are observed: beat, the pool `system` and the way between them."""
    standing = pressure.now(connection)
    age_s = None if standing is None else standing.now_s - standing.seen_s
    if age_s is not None and age_s <= OBSERVED_S:
        yield _found("beat", "ok", f"pressure was judged {max(0.0, age_s):.0f} s ago")
        return
    says = "nobody has ever judged pressure" if age_s is None else f"pressure was last judged {age_s:,.0f} s ago"
    yield _found("beat", "error", says, "start `celery -A config beat` (one) and a worker of the pool system")


def workers(connection: Connection, topology: Topology) -> Iterator[Finding]:
    """Yield which pools have a worker that takes work."""
    processes: Mapping[str, int] = _at_work(connection)
    none = sorted(topology.pools.keys() - processes.keys())
    for pool in none:
        yield _found(
            "workers",
            "error",
            f"no live worker serves the pool {pool}: its tasks wait",
            f"start `celery -A config worker --resource-pool {pool}`",
        )
    if not none:
        yield _found("workers", "ok", ", ".join(f"{pool} {n}" for pool, n in sorted(processes.items())))


def kinds(connection: Connection, topology: Topology) -> Iterator[Finding]:
    """Yield the kinds of this code that no live worker of their pool knows: it runs other code, or none."""
    known = sessions.kinds(connection)
    served = _at_work(connection)
    missing = [
        f"{kind.name}@{kind.version}"
        for kind in registry.all_kinds()
        if kind.pool in served and f"{kind.name}@{kind.version}" not in known
    ]
    if missing:
        yield _found(
            "kinds",
            "error",
            f"no live worker knows {', '.join(missing[:5])}" + (f" and {len(missing) - 5} more" * (len(missing) > 5)),
            "restart the workers with this code; until then their tasks wait (hold `version`)",
        )
    else:
        yield _found("kinds", "ok", f"{len(known)} are known to live workers")


def _at_work(connection: Connection) -> dict[str, int]:
    """The worker processes that take work, by pool."""
    found: dict[str, int] = defaultdict(int)
    for one in capacity.processes(connection):
        if not one.draining:
            for pool in one.pools:
                found[pool] += 1
    return dict(found)


def _found(check: str, level: Level, says: str, fix: str = "") -> Finding:
    return Finding(check=check, level=level, says=says, fix=fix)

"""Part of the stage `observe`: how many worker processes each pool should have, after each evaluation of the pressure.

load (the facts that the pressure was judged by, how resources stand, what runs) -> decide (policy.autoscale) -> commit
(a row a pool, and each change). It starts and ends nothing: who does goes by the rows (manage.py autoscale), or by the
metric. While nobody judges the rows get old, and nobody acts on old ones.
"""

from collections.abc import Mapping

from harness.engine.pressure import Judged
from harness.policy import autoscale as policy
from harness.policy.autoscale import Advice, Look, Memory, Seen
from harness.policy.resources import Live
from harness.policy.settings import Topology
from harness.store import autoscale, resources
from harness.store.database import Connection
from harness.store.pressure import STALE_S
from harness.store.resources import ResourceNow
from harness.telemetry import logs

log = logs.get(__name__)


def advise(connection: Connection, topology: Topology, judged: Judged) -> tuple[Advice, ...]:
    """Judge all pools once, by the facts of the pressure; () where there are none. Raises: psycopg.Error."""
    if judged.facts is None or judged.level is None:
        return ()
    with connection.transaction():
        # 1. Load
        known = autoscale.known(connection)
        kept = resources.kept(connection)
        live = resources.effective(connection, topology.resources)
        now_s = max((one.now_s for one in known.values()), default=0.0)
        look = Look(
            facts=judged.facts,
            seen={
                name: _seen(one, kept.get(name), observed=judged.facts.limits is not None) for name, one in live.items()
            },
            runs=autoscale.runs(connection),
            level=judged.level,
            signals=judged.readings,
        )
        # 2. Decide
        phi = policy.learn({name: share for one in known.values() for name, share in one.phi.items()}, look)
        found = []
        for name, pool in policy.pools(topology, look, phi).items():
            before = known.get(name)
            passed_s = policy.EVERY_S if before is None else now_s - before.seen_s
            enough = policy.size(pool.crew, pool.work, pool.downstreams)
            memory, advice = policy.step(before.memory if before else Memory(), pool.crew, enough, passed_s)
            found.append((advice, memory, {one: phi[one] for one in pool.downstreams if one in phi}))
        # 3. Commit
        autoscale.keep(connection, found)
    advices = tuple(advice for advice, _, _ in found)
    _tell(known, advices)
    return advices


def _seen(live: Live, now: ResourceNow | None, *, observed: bool) -> Seen:
    """Say how a resource stands; a limit that is low for a moment counts as what is proven."""
    one = live.resource
    if one.held == "task":
        return Seen(held="task", limit=live.limit, ceiling=one.capacity)
    if now is None or not observed:
        return Seen(held="call", limit=live.limit, ceiling=one.capacity, shut=f"wasn't seen for {STALE_S:.0f} s")
    limit = one.capacity
    if one.adaptive:
        limit = min(limit, max(now.limit_now, now.proven or 0))
    shut = "has its breaker open" if now.breaker not in ("", "closed") else ""
    if now.blocked_until_s and now.seen_s is not None and now.blocked_until_s > now.seen_s:
        shut = "is blocked"
    return Seen(
        held="call",
        limit=limit,
        ceiling=one.capacity,
        adaptive=one.adaptive,
        mode=now.mode,
        in_flight=now.in_flight,
        waiting=now.waiting,
        shut=shut,
    )


def _tell(known: Mapping[str, autoscale.Known], advices: tuple[Advice, ...]) -> None:
    for one in advices:
        before = known.get(one.pool)
        if before is not None and before.memory.desired not in (None, one.desired):
            log.info(
                "workers_advised",
                pool=one.pool,
                workers=one.workers,
                before=before.memory.desired,
                desired=one.desired,
                binds=one.binds,
                reason=one.reason,
            )

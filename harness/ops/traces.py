"""Recorded traces: makes one of what the store recorded, for the simulator to replay.

Tenants are numbers in it; payloads, results and names stay behind.
"""

import uuid
from datetime import datetime

from harness.kinds import registry
from harness.policy.errors import Invalid
from harness.policy.settings import Topology
from harness.sim import record
from harness.sim.trace import Trace, TracedKind, TracedTenant, concurrency
from harness.store import trace
from harness.store.database import Connection


def export(
    connection: Connection,
    topology: Topology,
    *,
    run: uuid.UUID | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Trace:
    """Return the trace of a run, or of what was submitted in [since, until). Raises: Invalid when there is nothing."""
    # 1. Tasks, their times counted from the first
    rows = list(trace.tasks(connection, run=run, since=since, until=until))
    if not rows:
        raise Invalid(
            "no task was submitted there (or retention removed it); name another run or time window", field="run"
        )
    zero_s = min(row.submitted_s for row in rows)
    tasks = sorted(
        (
            record.task_of(
                submit_s=row.submitted_s - zero_s,
                tenant=row.tenant,
                run=row.run,
                kind=row.kind,
                pool=row.pool,
                priority=row.priority,
                signature=row.signature,
                events=[(at_s - zero_s, event, before, after) for at_s, event, before, after in row.events],
            )
            for row in rows
        ),
        key=lambda task: task.submit_s,  # stable: what was submitted together stays in order of ids
    )
    # 2. What stood beside them
    found = trace.facts(connection, tenants={row.tenant for row in rows}, runs={row.run for row in rows} - {0})
    slots: dict[str, int] = {}
    for pool in sorted({row.pool for row in rows} | set(found["slots"])):
        attempts = [attempt for task in tasks if task.pool == pool for attempt in task.attempts]
        busy = concurrency((attempt.start_s, attempt.start_s + attempt.slot_s) for attempt in attempts)
        slots[pool] = max(int(found["slots"].get(pool, 0)), busy, 1)
    return Trace(
        pools=slots,
        resources={name: resource.capacity for name, resource in topology.resources.items()},
        kinds=tuple(_kind(name) for name in sorted({row.kind for row in rows})),
        tenants=tuple(
            TracedTenant(
                id=number,
                cap=cap,
                weight=weight,
                backlog_quota=backlog,
                top_priority=top,
                quotas=tuple((scope, name, n) for scope, name, n in quotas),
            )
            for number, cap, weight, backlog, top, quotas in found["tenants"]
        ),
        runs={number: (tenant, cap) for number, tenant, cap in found["runs"]},
        tasks=tuple(tasks),
        estimates={kind: float(mean_s) for kind, mean_s in found["estimates"].items()},
    )


def _kind(name: str) -> TracedKind:
    kind = registry.find(name)
    if kind is None:  # it was removed since
        return TracedKind(name=name, pool="", signature="", est_s=1.0, bundle=False, costs=False, max_attempts=4)
    return TracedKind(
        name=name,
        pool=kind.pool,
        signature=kind.signature,
        est_s=kind.est_s,
        bundle=kind.bundle,
        costs=kind.costs,
        max_attempts=kind.max_attempts,
    )

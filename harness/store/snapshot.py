"""What the dispatcher looks at: facts of one tick, bounded by what it may release, never by the backlog."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.policy.dispatch import FlowFacts, Head
from harness.policy.look import Asked
from harness.policy.ramp import WHOLE_AFTER_S
from harness.policy.room import InFlight, needs
from harness.store import sql
from harness.store.database import Connection
from harness.store.sessions import DEAD_AFTER_S

FlowKey = tuple[str, int, int, int, str]  # pool, priority, tenant, run, signature


@dataclass(frozen=True, kw_only=True, slots=True)
class InUse:
    """Slots by pool (of live, undrained sessions), what is in flight, and the pools in which some flow exists."""

    slots: dict[str, int]
    flight: list[InFlight]
    with_flows: list[str]


@dataclass(frozen=True, slots=True)
class Scopes:
    """Pauses as (scope, key, source, reason), quotas as (tenant, scope, name, cap), estimates in seconds by kind.

    `ramps`: pauses that ended a moment ago, as (scope, key, seconds since).
    """

    pauses: tuple[tuple[str, str, str, str], ...]
    quotas: tuple[tuple[int, str, str, int], ...]
    estimates: dict[str, float]
    ramps: tuple[tuple[str, str, float], ...] = ()


def in_use(connection: Connection, pools: Sequence[str]) -> InUse:
    """Return what a tick begins with. `pools`: those whose flows are asked for."""
    found = InUse(slots={}, flight=[], with_flows=[])
    cursor = connection.execute(sql.load("snapshot/in_use"), {"dead_after_s": DEAD_AFTER_S, "pools": list(pools)})
    for what, pool, n, via, tenant, run, signature, members, tenant_cap, run_cap in cursor:
        if what == "flight":
            found.flight.append(InFlight(pool, via, tenant, run, signature, n, members, tenant_cap, run_cap))
        elif what == "slots":
            found.slots[pool] = n
        else:
            found.with_flows.append(pool)
    return found


def scopes(connection: Connection) -> Scopes:
    """Return pauses, ramps, quotas and estimates."""
    row = connection.execute(sql.load("snapshot/scopes"), {"ramp_s": WHOLE_AFTER_S}).fetchone()
    found = row[0] if row else {"pauses": [], "ramps": [], "quotas": [], "estimates": []}
    return Scopes(
        tuple((p[0], p[1], p[2], p[3]) for p in found["pauses"]),
        tuple((q[0], q[1], q[2], q[3]) for q in found["quotas"]),
        dict(found["estimates"]),
        tuple((r[0], r[1], float(r[2])) for r in found["ramps"]),
    )


def leases_by_scope(connection: Connection) -> list[tuple[str, int, int, int, int]]:
    """Return the slots held, as (pool, priority, tenant, run, leases)."""
    cursor = connection.execute(sql.load("snapshot/leases_by_scope"))
    return [(row[0], row[1], row[2], row[3], row[4]) for row in cursor]


def flows(connection: Connection, asked: Asked, places: dict[int, str] | None = None) -> list[FlowFacts]:
    """Answer a look: the next flows of a pool, each with its first heads, oldest first (none: it is empty).

    Where each head's row lies is noted in `places` (by task), for the release.
    """
    blocked = asked.blocked
    cursor = connection.execute(
        sql.load("snapshot/flows"),
        {
            "pool": asked.pool,
            "after_priority": asked.after[0],
            "after_rank": asked.after[1],
            "after_id": asked.after[2],
            "priorities": [priority for priority in range(4) if priority not in blocked.priorities],
            "tenants": list(blocked.tenants),
            "runs": list(blocked.runs),
            "signatures": list(blocked.signatures),
            "blocked_pairs": [f"{tenant}:{signature}" for tenant, signature in blocked.pairs],
            "flows": asked.flows,
            "heads": asked.heads,
            "rows": asked.rows,
            "lost_below": blocked.lost_below,
        },
    )
    found: list[FlowFacts] = []
    first: tuple[int, int, int, int, str, float, int, int | None] | None = None
    heads: list[Head] = []
    for row in cursor:
        if first is None or row[0] != first[0]:
            if first is not None:
                found.append(_flow(first, heads))
            first, heads = row[:8], []
        if row[8] is not None:
            heads.append(Head(row[8], row[9], row[10], row[11]))
            if places is not None:
                places[row[8]] = row[12]
    if first is not None:
        found.append(_flow(first, heads))
    return found


def _flow(row: tuple[int, int, int, int, str, float, int, int | None], heads: list[Head]) -> FlowFacts:
    flow, priority, tenant, run, signature, rank, tenant_cap, run_cap = row
    return FlowFacts(
        id=flow,
        priority=priority,
        tenant=tenant,
        run=run,
        signature=signature,
        rank=rank,
        tenant_cap=tenant_cap,
        run_cap=run_cap,
        heads=tuple(heads),
        needs=needs(signature),
    )


def delete_empty_flows(connection: Connection, flow_ids: Sequence[int], *, epoch: int) -> list[FlowKey]:
    """Delete flows seen empty, if they still are. The caller must look at the returned keys again (restore_flows)."""
    cursor = connection.execute(sql.load("snapshot/delete_empty_flows"), {"epoch": epoch, "flows": list(flow_ids)})
    return [(row[0], row[1], row[2], row[3], row[4]) for row in cursor]


def restore_flows(connection: Connection, keys: Iterable[FlowKey]) -> int:
    """Bring back flows that were deleted while a task became ready in them. Returns how many."""
    row = connection.execute(sql.load("snapshot/restore_flows"), {"keys": json.dumps(list(keys))}).fetchone()
    return row[0] if row else 0


def scan_flows(connection: Connection) -> int:
    """Find every flow that ready tasks need. Returns how many were missing."""
    row = connection.execute(sql.load("snapshot/scan_flows")).fetchone()
    return row[0] if row else 0


def fold_charges(connection: Connection, *, epoch: int, weight: float, limit: int = 5000) -> int:
    """Fold charges into the estimates, once each, the oldest first. Returns how many it folded."""
    parameters = {"epoch": epoch, "weight": weight, "limit": limit}
    row = connection.execute(sql.load("snapshot/fold_charges"), parameters).fetchone()
    return row[0] if row else 0

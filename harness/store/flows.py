"""Flows come with what makes a task ready and go when the leader has seen them empty; a race loses none (ADR 0005)."""

import json
from collections.abc import Iterable, Sequence

from harness.store import sql
from harness.store.database import Connection

FlowKey = tuple[str, int, int, int, str]  # pool, priority, tenant, run, signature


def delete_empty(connection: Connection, flow_ids: Sequence[int], *, epoch: int) -> dict[int, FlowKey | None]:
    """Delete flows seen empty, if they still are. Returns those by id (None: it was gone already).

    The caller must look at their keys again (`restore`).
    """
    cursor = connection.execute(sql.load("snapshot/delete_empty_flows"), {"epoch": epoch, "flows": list(flow_ids)})
    return {row[0]: None if row[1] is None else (row[1], row[2], row[3], row[4], row[5]) for row in cursor}


def restore(connection: Connection, keys: Iterable[FlowKey]) -> int:
    """Bring back flows that were deleted while a task became ready in them. Returns how many."""
    row = connection.execute(sql.load("snapshot/restore_flows"), {"keys": json.dumps(list(keys))}).fetchone()
    return row[0] if row else 0


def scan(connection: Connection) -> int:
    """Find every flow that ready tasks need. Returns how many were missing."""
    row = connection.execute(sql.load("snapshot/scan_flows")).fetchone()
    return row[0] if row else 0

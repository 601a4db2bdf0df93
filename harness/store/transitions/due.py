"""What time alone does to tasks: due, expired, or a worker came that knows their version. The sweep's."""

import json
from collections.abc import Sequence

from harness.policy.prospect import Let
from harness.store import sql
from harness.store.database import Connection


def wake_due(connection: Connection, *, actor: str, limit: int = 500) -> int:
    """Make tasks ready whose not_before has come. Returns how many."""
    return len(connection.execute(sql.load("transitions/wake_due"), {"limit": limit, "actor": actor}).fetchall())


def let_in(connection: Connection, groups: Sequence[Let], *, actor: str, reason: str) -> int:
    """Make deferred tasks ready, of each group the oldest. Returns how many."""
    rows = [[one.pool, one.priority, one.signature, one.tenant, one.tasks] for one in groups]
    parameters = {"groups": json.dumps(rows), "actor": actor, "reason": reason}
    return len(connection.execute(sql.load("transitions/let_in"), parameters).fetchall())


def expire_due(connection: Connection, *, actor: str, limit: int = 500) -> int:
    """Fail tasks whose start_by or deadline has passed before they ran. Returns how many."""
    return len(connection.execute(sql.load("transitions/expire_due"), {"limit": limit, "actor": actor}).fetchall())


def resume_version(connection: Connection, *, actor: str, limit: int = 500) -> int:
    """Let tasks go on that waited for a worker that knows their kind and version. Returns how many."""
    return len(connection.execute(sql.load("transitions/resume_version"), {"limit": limit, "actor": actor}).fetchall())

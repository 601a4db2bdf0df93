"""What people did that leaves no trace at a task."""

import json
from collections.abc import Mapping

from harness.store.database import Connection


def note(
    connection: Connection,
    *,
    actor: str,
    verb: str,
    subject: str,
    reason: str,
    tenant: int | None = None,
    data: Mapping[str, object] | None = None,
) -> None:
    """Note one act that is done. `tenant`: who did it for itself; None: an operator. `data`: what it changed."""
    facts = {**(data or {}), **({} if tenant is None else {"tenant": tenant})}
    connection.execute(
        "INSERT INTO audit_entry (actor, verb, subject, reason, data, ended_at) "
        "VALUES (%s, %s, %s, %s, %s, clock_timestamp())",
        (actor, verb, subject, reason, json.dumps(facts)),
    )

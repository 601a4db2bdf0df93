"""The verb redrive as the list of verbs has it; engine.redrive does it. A batch is sent by its own statement."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from harness.engine import redrive as sending
from harness.engine.operate.done import Done
from harness.engine.redrive import KEEP, Tally
from harness.store.database import Connection
from harness.store.transitions import By


def redrive(
    connection: Connection,
    task: uuid.UUID,
    *,
    tenant: int | None,
    actor: str,
    reason: str = "",
    input: Mapping[str, Any] | None = None,
) -> Done:
    """Send an ended task again, with another input if one is given. Raises: see `redrive.one`."""
    value = KEEP if input is None else input
    done = sending.one(connection, task, tenant=tenant, actor=actor, reason=reason, input=value)
    return Done(outcome=done.outcome)


def redrive_batch(connection: Connection, tasks: Sequence[int], *, tenant: int | None, by: By) -> Tally:
    """Send a batch again, for a bulk verb."""
    return sending.batch(connection, tasks, tenant=tenant, actor=by.actor, reason=by.reason)

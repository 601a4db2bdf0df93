"""Operators' verb on a worker process: let it finish what it runs and go. It takes nothing new from then on.

What starts it anew, or doesn't, is the supervisor's business; nothing that runs is touched.
"""

import uuid

from harness.engine.operate.done import Done
from harness.engine.operate.who import needed_reason
from harness.policy.errors import NotFound
from harness.store import audit, sessions
from harness.store.database import Connection


def drain_worker(connection: Connection, session: uuid.UUID, *, actor: str, reason: str) -> Done:
    """Tell a worker process to drain. Outside a transaction. Outcomes: `draining`, `already`.

    Raises: Invalid (reason), NotFound.
    """
    why = needed_reason(reason)
    with connection.transaction():
        told = sessions.tell_to_drain(connection, session)
        if told is None:
            raise NotFound(f"no worker process {session} lives here any more", field="worker")
        if told.fresh:
            audit.note(connection, actor=actor, verb="drain", subject=f"worker {told.name}", reason=why)
    return Done(outcome="draining" if told.fresh else "already")

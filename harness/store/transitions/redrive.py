"""What people do to tasks that have ended: send them again, by compare-and-set under the tasks' locks."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from harness.store import sql
from harness.store.database import Connection


@dataclass(frozen=True, kw_only=True, slots=True)
class Again:
    """One ended task to send again, as its kind is now. `input`: JSON text, if it is another one; with it `terms`.

    `terms`: all under which the task is found from now on; None: it isn't searched.
    """

    task: int
    version: int
    pool: str
    signature: str
    start_by: datetime | None
    input: str | None = None
    terms: Sequence[str] | None = None


def redrive(connection: Connection, tasks: Sequence[Again], *, actor: str, reason: str = "") -> dict[int, int]:
    """Send ended tasks again. Returns {task: token epoch} of those sent; the others had been, or hadn't ended so."""
    rows = ",".join(_json(one) for one in tasks)
    cursor = connection.execute(
        sql.load("transitions/redrive"), {"rows": f"[{rows}]", "actor": actor, "reason": reason}
    )
    return dict(cursor.fetchall())


def _json(one: Again) -> str:
    head = json.dumps(
        {
            "task": one.task,
            "version": one.version,
            "pool": one.pool,
            "signature": one.signature,
            "start_by": None if one.start_by is None else one.start_by.isoformat(),
            "changed": one.input is not None,
            "terms": None if one.input is None or one.terms is None else list(one.terms),
        }
    )
    return head if one.input is None else f'{head[:-1]},"input":{one.input}}}'

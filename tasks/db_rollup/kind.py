"""`db.rollup`: how many of the tenant's latest tasks ended, by kind and state.

Reads Harness's own database through `ctx.db`, in one statement over the index by tenant; it writes nothing. Only the
latest tasks are looked at, so that the work stays as short as a bundle's member must be.
"""

from psycopg.rows import tuple_row
from pydantic import BaseModel, ConfigDict, Field

from harness.kinds import Context, kind

# The engine's role sees every tenant: the WHERE is what keeps them apart. Index: task (tenant_id, id).
_LATEST = """
SELECT kind, state, count(*), count(finished_at)
FROM (SELECT kind, state, finished_at FROM task WHERE tenant_id = %s ORDER BY id DESC LIMIT %s) AS latest
GROUP BY kind, state
ORDER BY kind, state
"""


class Window(BaseModel):
    """How far back to look: that many of the tenant's tasks, the newest first."""

    model_config = ConfigDict(extra="forbid")

    latest: int = Field(default=10_000, ge=1, le=50_000)


class Count(BaseModel):
    """Tasks of one kind that ended in one state."""

    kind: str
    state: str
    tasks: int


class Rollup(BaseModel):
    """The counts, by kind and state; `looked_at`: tasks in the window, unfinished ones too."""

    finished: list[Count]
    looked_at: int


@kind("db.rollup", pool="db", input=Window, output=Rollup, bundle=True, est_s=0.005, timeout_s=30)
def rollup(ctx: Context, payload: Window) -> Rollup:
    """Count in one statement."""
    with ctx.db() as connection, connection.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(_LATEST, (ctx.tenant_id, payload.latest)).fetchall()
    return Rollup(
        finished=[Count(kind=name, state=state, tasks=ended) for name, state, _, ended in rows if ended],
        looked_at=sum(tasks for _, _, tasks, _ in rows),
    )

"""What ends of other tasks do to a task: a parked parent goes on, and what depended on others ripens. The dispatcher's.

Level-triggered: a notice only says where to look, and stays until somebody has looked.
"""

from harness.store import sql
from harness.store.database import Connection

NOTICES_AT_ONCE = 5000


def rouse(connection: Connection, *, actor: str, limit: int = NOTICES_AT_ONCE) -> tuple[int, int]:
    """Look at the tasks that notices tell of. Returns how many changed, and how many of them are ready now."""
    rows = connection.execute(sql.load("transitions/rouse"), {"limit": limit, "actor": actor}).fetchall()
    return len(rows), sum(ready for _, ready in rows)


def look_again(connection: Connection, task: int, *, actor: str) -> bool:
    """Look at one task as if a notice told of it. Returns whether that changed anything, of it or of others."""
    connection.execute(
        "INSERT INTO notice (task_id, tenant_id, down) SELECT id, tenant_id, false FROM task WHERE id = %s", (task,)
    )
    return rouse(connection, actor=actor)[0] > 0

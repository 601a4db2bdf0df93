"""Tasks by their terms (policy.terms): tags, schedule, words. Only tasks that were given a title, tags or a schedule.

A page costs what one look at `scan` entries of the rarest term costs, whatever the number of tasks.
"""

import uuid
from collections.abc import Sequence

from harness.store import sql
from harness.store.database import Connection
from harness.store.queries import LAST_ID, SCAN_ROWS, TaskView

COUNTED = 1000  # entries of a term that are counted to find the rarest one


def tasks_of_terms(
    connection: Connection,
    terms: Sequence[str],
    *,
    tenant: int,
    run: uuid.UUID | None = None,
    state: str | None = None,
    kind: str | None = None,
    priority: int | None = None,
    before: int = LAST_ID,
    most: int,
    scan: int = SCAN_ROWS,
) -> tuple[list[TaskView], int | None]:
    """Return a page of the tasks that have all of these terms (one at least), as `queries.tasks` does."""
    wanted = list(dict.fromkeys(terms))
    parameters = {"tenant": tenant, "before": before}
    counted = {wanted[0]: 1}
    if len(wanted) > 1:
        cursor = connection.execute(sql.load("search/rarity"), parameters | {"terms": wanted, "most": COUNTED})
        counted = dict(cursor.fetchall())
    rarest = min(counted, key=lambda term: counted[term])
    if not counted[rarest]:
        return [], None
    rows = connection.execute(
        sql.load("search/task_page_of_terms"),
        parameters
        | {
            "rarest": rarest,
            "others": [term for term in wanted if term != rarest],
            "run": run,
            "state": state,
            "kind": kind,
            "priority": priority,
            "most": most,
            "scan": scan,
        },
    ).fetchall()
    return [TaskView(*row[1:]) for row in rows if row[1] is not None], rows[0][0] if rows else None

"""Where the rows of tasks lie, for a release without a look."""

from collections.abc import Sequence

from harness.store.database import Connection


def places_of(connection: Connection, tasks: Sequence[int]) -> tuple[str, ...]:
    """Return each task's place (ctid), in the order given."""
    rows = connection.execute("SELECT id, ctid FROM task WHERE id = ANY(%s)", (list(tasks),)).fetchall()
    found = {row[0]: row[1] for row in rows}
    return tuple(found[task] for task in tasks)

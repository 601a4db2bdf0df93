# mypy: disable-error-code="import-not-found"
# Peers are installed for benchmarks only (requirements-bench.txt), so the checker may not find them.
"""procrastinate on PostgreSQL with psycopg; the task is a coroutine."""

import os
from collections.abc import Sequence

import procrastinate

from benchmarks import effects, servers
from benchmarks.submission import Item, Submitter

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))
run = app.task(name="bench.run")(effects.body_async)


def _arguments(item: Item) -> dict[str, object]:
    return dict(zip(("tag", "i", "submitted_s", "duration_s"), item, strict=True))


class _Procrastinate(Submitter):
    def __init__(self) -> None:
        app.open()

    def one(self, item: Item) -> None:
        run.defer(**_arguments(item))

    def many(self, items: Sequence[Item]) -> None:
        for start in range(0, len(items), 1000):
            run.batch_defer(*map(_arguments, items[start : start + 1000]))

    def close(self) -> None:
        app.close()


def reset() -> None:
    """Build the tables afresh."""
    servers.recreate_database(os.environ["DATABASE_URL"])
    with app.open():
        app.schema_manager.apply_schema()


def submitter() -> Submitter:
    """Return an open client."""
    return _Procrastinate()

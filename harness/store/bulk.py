"""Which tasks a bulk verb is about: one look by an index, without locks. The verb decides again under each lock."""

from dataclasses import dataclass

from harness.store import sql
from harness.store.database import Connection


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """What the tasks have in common; None: anything. `tenant`, `run`: ids; `term`: a mark, which needs its tenant."""

    tenant: int | None = None
    run: int | None = None
    term: str | None = None
    state: str | None = None
    kind: str | None = None
    pool: str | None = None
    priority: int | None = None


def matching(connection: Connection, where: Where, *, live: bool, after: int = 0, most: int) -> list[tuple[int, str]]:
    """Return (id, state) of matching tasks with ids above `after`, by id: unfinished or (`live` False) ended ones.

    Of the ended ones without a run or mark: those that failed for good, which have an index.
    """
    if any(name is not None and "\0" in name for name in (where.kind, where.pool)):
        return []  # no name holds one, and PostgreSQL takes no such text
    if where.term is not None:
        name = "bulk/of_tag"
    elif where.run is not None:
        name = "bulk/of_run"
    else:
        name = f"bulk/{'' if live else 'dead_'}{'of_all' if where.tenant is None else 'of_tenant'}"
    parameters = {
        "tenant": where.tenant,
        "run": where.run,
        "term": where.term,
        "state": where.state,
        "kind": where.kind,
        "pool": where.pool,
        "priority": where.priority,
        "live": live,
        "after": after,
        "most": most,
    }
    return [(row[0], row[1]) for row in connection.execute(sql.load(name), parameters)]

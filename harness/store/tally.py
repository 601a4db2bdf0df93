"""What was counted since Harness began, as one row, and what it is counted from. Nothing is added up here.

Who counts reads and writes in one transaction that has locked the row: two count one after the other.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.policy.tally import PEOPLE_S, TASK_S, Span, Totals
from harness.store import sql
from harness.store.database import Connection
from harness.store.leader import TTL_S
from harness.store.sessions import DEAD_AFTER_S

TABLES = ("attempt", "task", "door_answer", "level_change")
ROWS_MOST = 20_000  # of a table in one round: some 100 ms
FLOWS_MOST = 5_000  # whose heads are looked at for the oldest
SLACK_S = 0.5  # between a transaction's begin and what the server says of it
OPEN_MOST_S = 120.0  # no transaction of ours is open for longer; another's isn't waited for


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """The row. `seen_s`: when it was made (epoch seconds)."""

    seen_s: float
    took_s: float
    mark: Mapping[str, Any]
    told: Mapping[str, Any]
    totals: Totals
    stands: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scraped:
    """The row as a scrape reads it, the time, and when the lead was last renewed (None: nobody has ever led)."""

    kept: Kept | None
    now_s: float
    renewed_s: float | None


def lock(connection: Connection) -> Kept | None:
    """Return the row, locked until the transaction ends. None: nobody has counted yet."""
    row = connection.execute(f"{_SELECT} FOR UPDATE").fetchone()
    return None if row is None else _kept(row)


def scraped(connection: Connection) -> Scraped:
    """Return the row to who answers a scrape, under role web without a tenant."""
    with connection.transaction():
        connection.execute("SELECT set_config('harness.scrape', 'yes', true)")
        row = connection.execute(_SELECT).fetchone()
        lead = connection.execute(
            "SELECT extract(epoch FROM clock_timestamp())::double precision, "
            "(SELECT extract(epoch FROM until)::double precision FROM leader WHERE id = 1)"
        ).fetchone()
    assert lead is not None
    now_s, until_s = lead
    return Scraped(
        kept=None if row is None else _kept(row),
        now_s=now_s,
        renewed_s=until_s - TTL_S if until_s else None,  # 0: it was given up, and nobody has taken it
    )


def opened(connection: Connection) -> tuple[float, float]:
    """Return the time, and since when what is inserted now may have been going on (epoch seconds)."""
    row = connection.execute(sql.load("tally/open")).fetchone()
    assert row is not None
    return row[0], max(row[1], row[0] - OPEN_MOST_S) - SLACK_S


def begin(connection: Connection) -> Mapping[str, int]:
    """Return the highest number of each table, where counting begins."""
    return _object(connection, "tally/begin", {})


def grown(
    connection: Connection,
    spans: Mapping[str, Sequence[Span]],
    *,
    from_s: float,
    known: Sequence[Sequence[int]],
    since_s: float,
) -> Mapping[str, Any]:
    """Return what came since the last round, added up (tally/grown.sql)."""
    return _object(
        connection,
        "tally/grown",
        {
            "spans": json.dumps([(name, low, top) for name, some in spans.items() for low, top in some]),
            "from_s": from_s,
            "known": json.dumps(known),
            "since_s": since_s,
            "most": ROWS_MOST,
            "bounds": list(TASK_S),
            "people": list(PEOPLE_S),
        },
    )


def depth(connection: Connection) -> Mapping[str, Any]:
    """Count what is in line, all of it (tally/depth.sql)."""
    return _object(connection, "tally/depth", {})


def stands(connection: Connection, *, from_s: float) -> Mapping[str, Any]:
    """Return how things stand now (tally/stands.sql)."""
    return _object(connection, "tally/stands", {"flows": FLOWS_MOST, "dead_after_s": DEAD_AFTER_S, "from_s": from_s})


def names(connection: Connection, tenants: Sequence[int]) -> dict[int, str]:
    """Return the names of tenants, of those that are still there."""
    cursor = connection.execute("SELECT id, name FROM tenant WHERE id = ANY(%s)", (list(tenants),))
    return {row[0]: row[1] for row in cursor}


def keep(connection: Connection, kept: Kept) -> None:
    """Keep a round, in the transaction that has locked the row."""
    connection.execute(
        sql.load("tally/keep"),
        {
            "at_s": kept.seen_s,
            "took_s": kept.took_s,
            "mark": json.dumps(kept.mark),
            "told": json.dumps(kept.told),
            "totals": json.dumps({name: list(of_name.items()) for name, of_name in kept.totals.items()}),
            "stands": json.dumps(kept.stands),
        },
    )


_SELECT = (
    "SELECT extract(epoch FROM seen_at)::double precision, took_s, mark, told, totals, stands FROM tally WHERE id = 1"
)


def _kept(row: Sequence[Any]) -> Kept:
    totals = {name: {tuple(labels): values for labels, values in some} for name, some in row[4].items()}
    return Kept(seen_s=row[0], took_s=row[1], mark=row[2], told=row[3], totals=totals, stands=row[5])


def _object(connection: Connection, name: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    row = connection.execute(sql.load(name), parameters).fetchone()
    assert row is not None
    found: Mapping[str, Any] = row[0]
    return found

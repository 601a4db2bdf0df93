"""Pauses of scopes: rows that the dispatcher obeys. None is deleted when it ends: the ramp counts from there.

One row a (scope, key, source); `source` is whose it is (policy.holds), so each side lifts only its own. A row is in
force until it is resumed or `until` has passed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from harness.store.database import Connection

_IN_FORCE = "resumed_at IS NULL AND (until IS NULL OR until > clock_timestamp())"
KEPT_DAYS = 30  # after its end, so that people can see who it was


@dataclass(frozen=True, slots=True)
class PauseRow:
    """A pause in force."""

    scope: str
    key: str
    source: str
    author: str
    reason: str
    until: datetime | None
    created_at: datetime


def put(
    connection: Connection,
    *,
    scope: str,
    key: str,
    source: str,
    tenant: int | None,
    author: str,
    reason: str,
    until: datetime | None,
) -> bool:
    """Put a pause in force, or give one in force another end. False: it is in force as it stands."""
    row = connection.execute(
        "INSERT INTO pause (scope, key, source, tenant_id, author, reason, until) VALUES (%s, %s, %s, %s, %s, %s, %s) "
        "ON CONFLICT (scope, key, source) DO UPDATE SET author = excluded.author, reason = excluded.reason, "
        "until = excluded.until, created_at = clock_timestamp(), resumed_at = NULL, resumed_by = NULL "
        "WHERE pause.resumed_at IS NOT NULL OR pause.until <= clock_timestamp() "
        "OR pause.until IS DISTINCT FROM excluded.until RETURNING true",
        (scope, key, source, tenant, author, reason, until),
    ).fetchone()
    return row is not None


def standing(connection: Connection, *, scope: str, source: str) -> dict[str, tuple[float, float]]:
    """Return the pauses of a source in force, by key: since how long, and for how long still (those with an end)."""
    cursor = connection.execute(
        "SELECT key, date_part('epoch', clock_timestamp() - created_at), date_part('epoch', until - clock_timestamp()) "
        f"FROM pause WHERE scope = %s AND source = %s AND until IS NOT NULL AND {_IN_FORCE}",
        (scope, source),
    )
    return {key: (stood_s, lasts_s) for key, stood_s, lasts_s in cursor}


def put_for(
    connection: Connection, *, scope: str, keys: Sequence[str], source: str, author: str, reason: str, seconds: float
) -> None:
    """Put pauses in force until so many seconds from now, by the database's clock, whatever they were before."""
    connection.execute(
        "INSERT INTO pause (scope, key, source, author, reason, until) "
        "SELECT %s, key, %s, %s, %s, clock_timestamp() + make_interval(secs => %s) FROM unnest(%s::text[]) AS key "
        "ON CONFLICT (scope, key, source) DO UPDATE SET author = excluded.author, reason = excluded.reason, "
        "until = excluded.until, created_at = clock_timestamp(), resumed_at = NULL, resumed_by = NULL",
        (scope, source, author, reason, seconds, sorted(keys)),
    )


def end(connection: Connection, *, scope: str, key: str, source: str, by: str) -> bool:
    """End a pause now. False: it isn't in force."""
    row = connection.execute(
        f"UPDATE pause SET resumed_at = clock_timestamp(), resumed_by = %s "
        f"WHERE scope = %s AND key = %s AND source = %s AND {_IN_FORCE} RETURNING true",
        (by, scope, key, source),
    ).fetchone()
    return row is not None


def of(connection: Connection, scope: str, key: str) -> list[PauseRow]:
    """Return the pauses of a scope that are in force."""
    cursor = connection.execute(
        "SELECT scope, key, source, author, reason, until, created_at FROM pause "
        f"WHERE scope = %s AND key = %s AND {_IN_FORCE} ORDER BY source",
        (scope, key),
    )
    return [PauseRow(*row) for row in cursor]


def in_force(connection: Connection) -> list[PauseRow]:
    """Return every pause in force, the oldest first; the key of a tenant or run is its name or public id."""
    cursor = connection.execute(
        "SELECT scope, coalesce(tenant.name, run.public_id::text, key), source, author, reason, until, "
        "pause.created_at "
        "FROM pause LEFT JOIN tenant ON scope = 'tenant' AND tenant.id::text = key "
        "LEFT JOIN run ON scope = 'run' AND run.id = CASE WHEN scope = 'run' THEN key::bigint END "
        f"WHERE {_IN_FORCE} ORDER BY pause.created_at, pause.id"
    )
    return [PauseRow(*row) for row in cursor]


def queues(connection: Connection) -> set[str]:
    """Return what is in force and concerns queues: 'llm' (a pool), 'llm.p3' (of a pool), 'p3' (a priority)."""
    cursor = connection.execute(
        f"SELECT key FROM pause WHERE scope IN ('pool', 'priority', 'pool_priority') AND {_IN_FORCE}"
    )
    return {row[0] for row in cursor}


def forget(connection: Connection) -> None:
    """Delete pauses that are long over."""
    connection.execute(
        "DELETE FROM pause WHERE coalesce(resumed_at, until) < clock_timestamp() - make_interval(days => %s)",
        (KEPT_DAYS,),
    )

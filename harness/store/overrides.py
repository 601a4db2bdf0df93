"""Operators' overrides of resources: rows that every process reads within seconds. One that has ended is kept a while.

One row in force a (resource, field), until it is ended or `until` has passed. Where one changes a limit that nothing
learns, that is a change of the limit: its row is written in the same transaction. What a value may be and who did what
is policy.resources' and engine.operate's business.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from harness.policy.resources import Live, Resource, Value, in_force
from harness.store import resources
from harness.store.database import Connection

MODE = "override"  # of such a change of a limit


@dataclass(frozen=True, kw_only=True, slots=True)
class OverrideRow:
    """An override that hasn't ended; `over`: its time has passed, and nothing obeys it any more."""

    resource: str
    field: str
    value: Value
    author: str
    reason: str
    created_at: datetime
    until: datetime | None
    over: bool


def lock(connection: Connection, resource: str) -> None:
    """Let nobody else set or clear overrides of a resource until this transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('harness override ' || %s))", (resource,))


def standing(connection: Connection, resource: str | None = None) -> list[OverrideRow]:
    """Return the overrides that haven't ended, of one resource or all, by resource and field."""
    cursor = connection.execute(
        "SELECT resource, field, value, author, reason, created_at, until, coalesce(until <= clock_timestamp(), false) "
        "FROM override WHERE ended_at IS NULL AND (%(resource)s::text IS NULL OR resource = %(resource)s) "
        "ORDER BY resource, field",
        {"resource": resource},
    )
    return [
        OverrideRow(
            resource=row[0],
            field=row[1],
            value=row[2],
            author=row[3],
            reason=row[4],
            created_at=row[5],
            until=row[6],
            over=row[7],
        )
        for row in cursor
    ]


def put(
    connection: Connection,
    *,
    resource: str,
    changes: Mapping[str, Value],
    author: str,
    reason: str,
    until: datetime | None,
) -> None:
    """Put values in force instead of those before. Inside a transaction that holds the lock."""
    end(connection, resource=resource, fields=changes)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO override (resource, field, value, author, reason, until, created_at) "
            "VALUES (%s, %s, %s, %s, %s, %s, clock_timestamp())",
            [(resource, name, json.dumps(value), author, reason, until) for name, value in changes.items()],
        )


def end(connection: Connection, *, resource: str, fields: Iterable[str]) -> None:
    """End overrides now; one whose time had passed ended then. Inside a transaction that holds the lock."""
    connection.execute(
        "UPDATE override SET ended_at = least(until, clock_timestamp()) "
        "WHERE resource = %s AND field = ANY(%s) AND ended_at IS NULL",
        (resource, list(fields)),
    )


def note_limit(connection: Connection, before: Live, after: Resource, *, at_s: float | None, reason: str) -> None:
    """Write a row when a resource's limit has changed and nothing learns the new one: then it is its capacity.

    Of what a measured target has left that is the most; what was measured stands in the state.
    """
    if after.adaptive:
        return
    new = replace(before, resource=after).limit
    if new != before.limit:
        connection.execute(
            "INSERT INTO limit_change (resource, at, old, new, reason, mode) "
            "VALUES (%s, coalesce(to_timestamp(%s), clock_timestamp()), %s, %s, %s, %s)",
            (after.name, at_s, before.limit, new, reason, MODE),
        )


def end_over(connection: Connection, configured: Mapping[str, Resource]) -> int:
    """End the overrides whose time has passed; the changes of limits that follow get a row. Returns how many.

    In a transaction of its own. Two at once end each once.
    """
    with connection.transaction():
        rows = connection.execute(
            "UPDATE override SET ended_at = until WHERE ended_at IS NULL AND until <= clock_timestamp() "
            "RETURNING resource, field, value, extract(epoch FROM until)::double precision"
        ).fetchall()
        over: dict[str, dict[str, Value]] = {}
        last_s: dict[str, float] = {}
        for resource, field, value, until_s in rows:
            over.setdefault(resource, {})[field] = value
            last_s[resource] = max(until_s, last_s.get(resource, 0.0))
        if not rows:
            return 0
        now = resources.effective(connection, configured)
        for name in sorted(over.keys() & now.keys()):
            live = now[name]
            left = {field: one.value for field, one in live.overrides.items()}
            before = replace(live, resource=in_force(configured[name], {**over[name], **left}))
            note_limit(connection, before, live.resource, at_s=last_s[name], reason="an override is over")
        return len(rows)

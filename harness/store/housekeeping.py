"""What goes away: a tenant with all that is its own, and what is old. In bounded batches, in autocommit.

Tables are found in the catalog: every one with a `tenant_id` is emptied of a tenant, whoever made it, those that refer
to others first. What hangs on a task is listed here, since only some of what has a `task_id` goes with the task.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from graphlib import TopologicalSorter

import psycopg
from psycopg import sql as compose

from harness.store import sql
from harness.store.database import CONNECT_TIMEOUT_S, Connection

BATCH_ROWS = 2000
STATEMENT_TIMEOUT = "10min"  # dropping a day of the trace copies what is kept of it
LOCK_TIMEOUT = "5s"  # who waits for a lock on the trace holds up all that write to it
LOCK_TIMEOUT_BESIDE = "100ms"  # so, of what runs by itself beside the work, nobody waits longer than this
# What goes with a task, by task_id; the task's own row comes last. A table with a tenant_id is found by itself.
OF_TASK = ("event", "attempt", "step", "approval", "gathering", "dependency", "notice", "task_body", "task_term")
_APART = {*OF_TASK, "task", "lease", "lease_member"}  # not by table: by task, or gone when the work is over


@dataclass(frozen=True, kw_only=True, slots=True)
class Live:
    """What of a tenant isn't over: unfinished tasks, and slots that its tasks hold."""

    tasks: int
    slots: int


@contextmanager
def as_owner(url: str, *, application_name: str, lock_timeout: str = LOCK_TIMEOUT) -> Iterator[Connection]:
    """Open a connection as the owner of the tables, with the patience that sets of rows need.

    No role may do all this: web and engine know nothing of people's logins, staff rewrites no history.
    Raises: psycopg.Error.
    """
    with psycopg.connect(
        url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, application_name=application_name
    ) as connection:
        connection.execute(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'")
        connection.execute(f"SET lock_timeout = '{lock_timeout}'")
        yield connection


def tenant_id(connection: Connection, name: str) -> int | None:
    """Return a tenant's number."""
    row = connection.execute("SELECT id FROM tenant WHERE name = %s", (name,)).fetchone()
    return row[0] if row else None


def close_door(connection: Connection, tenant: int) -> None:
    """Take no more work of a tenant: its keys are revoked, its backlog and artifacts have no room."""
    with connection.transaction():
        connection.execute(
            "UPDATE api_key SET revoked_at = clock_timestamp() WHERE tenant_id = %s AND revoked_at IS NULL", (tenant,)
        )
        connection.execute("UPDATE tenant SET backlog_quota = 0, artifact_quota_bytes = 0 WHERE id = %s", (tenant,))


def live(connection: Connection, tenant: int) -> Live:
    """Count what isn't over."""
    tasks = connection.execute(
        "SELECT count(*) FROM task WHERE tenant_id = %s AND finished_at IS NULL", (tenant,)
    ).fetchone()
    slots = connection.execute("SELECT count(*) FROM lease WHERE tenant_id = %s", (tenant,)).fetchone()
    assert tasks and slots
    return Live(tasks=tasks[0], slots=slots[0])


def counts(connection: Connection, tenant: int) -> dict[str, int]:
    """Count a tenant's rows in every table, for people to look at before they agree."""
    found = {}
    for table in [*tenant_tables(connection), *sorted(_APART - {"event"})]:
        query = compose.SQL("SELECT count(*) FROM {} WHERE tenant_id = %s").format(compose.Identifier(table))
        row = connection.execute(query, (tenant,)).fetchone()
        if row and row[0]:
            found[table] = row[0]
    return found


def tenant_tables(connection: Connection) -> list[str]:
    """Return the tables with a tenant_id, but for those of tasks: each before those that it refers to."""
    names = {row[0] for row in connection.execute(sql.load("housekeeping/tenant_tables"))} - _APART
    graph: dict[str, set[str]] = {name: set() for name in names}
    for referring, referred in connection.execute(sql.load("housekeeping/references")):
        if referring in names and referred in names and referring != referred:
            graph[referred].add(referring)
    return list(TopologicalSorter(graph).static_order())


def audit(connection: Connection, entry: int) -> dict[str, int]:
    """Return the rows by table that an entry tells of."""
    row = connection.execute("SELECT data FROM audit_entry WHERE id = %s", (entry,)).fetchone()
    return dict(row[0]) if row else {}


def delete_of_tenant(connection: Connection, table: str, tenant: int) -> Iterator[int]:
    """Delete a tenant's rows of one table, a batch each time it is asked; yields how many."""
    name = compose.Identifier(table)
    statement = compose.SQL(
        "DELETE FROM {table} WHERE tenant_id = %(tenant)s AND ctid = ANY(ARRAY("
        "SELECT ctid FROM {table} WHERE tenant_id = %(tenant)s LIMIT %(limit)s))"
    ).format(table=name)
    while gone := connection.execute(statement, {"tenant": tenant, "limit": BATCH_ROWS}).rowcount:
        yield gone


def delete_tasks_of_tenant(connection: Connection, tenant: int) -> Mapping[str, int] | None:
    """Delete one batch of a tenant's ended tasks with all that hangs on them. None: there are no more."""
    cursor = connection.execute(
        "SELECT id FROM task WHERE tenant_id = %s AND finished_at IS NOT NULL ORDER BY id LIMIT %s",
        (tenant, BATCH_ROWS),
    )
    tasks = [row[0] for row in cursor]
    return delete_tasks(connection, tasks) if tasks else None


def delete_tasks(connection: Connection, tasks: list[int]) -> Mapping[str, int]:
    """Delete ended tasks with all that hangs on them, in one transaction. Returns rows by table."""
    gone: dict[str, int] = {}
    with connection.transaction():
        # Locked first: a redrive that came between the look and the lock has made one live again.
        cursor = connection.execute(
            "SELECT id FROM task WHERE id = ANY(%s) AND finished_at IS NOT NULL ORDER BY id FOR UPDATE", (tasks,)
        )
        locked = [row[0] for row in cursor]
        for table in OF_TASK:
            statement = compose.SQL("DELETE FROM {} WHERE task_id = ANY(%s)").format(compose.Identifier(table))
            gone[table] = connection.execute(statement, (locked,)).rowcount
        gone["task"] = connection.execute("DELETE FROM task WHERE id = ANY(%s)", (locked,)).rowcount
    return gone


def delete_stray_events(connection: Connection, tenant: int) -> int:
    """Delete what the trace holds of a tenant's tasks that retention had deleted before; day by day."""
    return connection.execute("DELETE FROM event WHERE tenant_id = %s", (tenant,)).rowcount


def artifact_rows(connection: Connection, tenant: int) -> int:
    """Count what is left of a tenant's artifacts, hidden ones too."""
    row = connection.execute("SELECT count(*) FROM artifact WHERE tenant_id = %s", (tenant,)).fetchone()
    assert row is not None
    return int(row[0])


def delete_tenant_row(connection: Connection, tenant: int) -> bool:
    """Delete the tenant itself, and pauses of it. Nothing of its artifacts is decided at the same time."""
    with connection.transaction():
        connection.execute(sql.load("artifacts/lock"), {"tenant": tenant})
        connection.execute("DELETE FROM pause WHERE scope = 'tenant' AND key = %s", (str(tenant),))
        return connection.execute("DELETE FROM tenant WHERE id = %s", (tenant,)).rowcount > 0


def begin_audit(connection: Connection, *, verb: str, subject: str, subject_id: int, actor: str, reason: str) -> int:
    """Return the id of the entry of an act: of the one that was broken off, or of a new one."""
    row = connection.execute(
        "SELECT id FROM audit_entry WHERE verb = %s AND subject_id = %s AND ended_at IS NULL", (verb, subject_id)
    ).fetchone()
    row = row or (
        connection.execute(
            "INSERT INTO audit_entry (verb, subject, subject_id, actor, reason) VALUES (%s, %s, %s, %s, %s) "
            "RETURNING id",
            (verb, subject, subject_id, actor, reason),
        ).fetchone()
    )
    assert row is not None
    return int(row[0])


def note_audit(connection: Connection, entry: int, gone: Mapping[str, int]) -> None:
    """Add rows by table to an entry."""
    connection.execute(sql.load("housekeeping/note_audit"), {"id": entry, "gone": json.dumps(dict(gone))})


def end_audit(connection: Connection, entry: int) -> None:
    """Say that the act is done."""
    connection.execute("UPDATE audit_entry SET ended_at = clock_timestamp() WHERE id = %s", (entry,))


def now(connection: Connection) -> datetime:
    """Return the database's time."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    found: datetime = row[0]
    return found


def lately_deleted(connection: Connection) -> list[int]:
    """Return tenants deleted in the last two days: a request under way at that moment may have left a row."""
    cursor = connection.execute(
        "SELECT subject_id FROM audit_entry WHERE verb = 'tenant.delete' "
        "AND ended_at > clock_timestamp() - interval '2 days'"
    )
    return [row[0] for row in cursor]


def old_tasks(
    connection: Connection, *, before: datetime, dead_before: datetime, after: int, limit: int = BATCH_ROWS
) -> tuple[list[int], int | None]:
    """Look at the next tasks by id: which ended before their time, and after which id to look on (None: at the end).

    A child isn't before its parent: it comes with a later round.

    `dead_before`: the time of dead letters; not later than that of the others, `before`.
    """
    rows = connection.execute(
        sql.load("housekeeping/old_tasks"),
        {"before": before, "dead_before": dead_before, "after": after, "limit": limit},
    ).fetchall()
    old = [row[0] for row in rows if row[1]]
    # Ids are given out in the order of birth, nearly: a whole batch of young tasks means that none after it is old.
    more = len(rows) == limit and any(not row[2] for row in rows)
    return old, rows[-1][0] if more else None


def delete_empty_runs(connection: Connection, *, before: datetime) -> Iterator[int]:
    """Delete runs born before a time whose tasks are all gone, a batch each time it is asked; yields how many."""
    after: int | None = 0
    while after is not None:
        row = connection.execute(
            sql.load("housekeeping/delete_empty_runs"), {"before": before, "after": after, "limit": BATCH_ROWS}
        ).fetchone()
        assert row is not None
        yield row[0]
        after = row[1]


def delete_old_reasons(connection: Connection, *, before: datetime) -> Iterator[int]:
    """Delete notes on why flows waited that ended before a time, a batch each time it is asked; yields how many.

    The next note on a flow has their sums, so what was waited since stays exact.
    """
    while gone := connection.execute(
        "DELETE FROM wait_reason WHERE id = ANY(ARRAY("
        "SELECT id FROM wait_reason WHERE until < %s ORDER BY until LIMIT %s))",
        (before, BATCH_ROWS),
    ).rowcount:
        yield gone


def delete_old_limits(connection: Connection, *, before: datetime) -> Iterator[int]:
    """Delete changes of limits and of the level, and overrides that ended, before a time, a batch each time.

    Yields how many.
    """
    for table, moment in (
        ("limit_change", "at"),
        ("level_change", "at"),
        ("advice_change", "at"),
        ("override", "ended_at"),
    ):
        statement = compose.SQL(
            "DELETE FROM {table} WHERE id = ANY(ARRAY("
            "SELECT id FROM {table} WHERE {moment} < %s ORDER BY {moment} LIMIT %s))"
        ).format(table=compose.Identifier(table), moment=compose.Identifier(moment))
        while gone := connection.execute(statement, (before, BATCH_ROWS)).rowcount:
            yield gone


def delete_expired_keys(connection: Connection) -> Iterator[int]:
    """Delete idempotency keys whose time is over, a batch each time it is asked; yields how many."""
    while gone := connection.execute(
        "DELETE FROM idempotency WHERE ctid = ANY(ARRAY("
        "SELECT ctid FROM idempotency WHERE expires_at < clock_timestamp() LIMIT %s))",
        (BATCH_ROWS,),
    ).rowcount:
        yield gone


def drop_event_days(connection: Connection, *, before: datetime) -> Iterator[str]:
    """Drop the days of the trace that ended before a time, one each time it is asked; yields their names.

    Raises: psycopg.errors.LockNotAvailable when writers of the trace didn't make way within the lock_timeout.
    """
    while True:
        row = connection.execute("SELECT harness_drop_event_day(%s)", (before,)).fetchone()
        if row is None or row[0] is None:
            return
        yield row[0]


def delete_orphaned_events(connection: Connection, *, before: datetime) -> Iterator[int]:
    """Delete old events of the default partition whose tasks are gone, a batch each time it is asked."""
    while gone := connection.execute(
        sql.load("housekeeping/delete_orphaned_events"), {"before": before, "limit": BATCH_ROWS}
    ).rowcount:
        yield gone

"""What the auditor looks at, and where its findings stand. Every look is one statement: it sees one consistent moment.

Looks over large tables go window by window, by key, so that none takes long whatever the table holds. Nothing here
judges twice or repairs (engine.auditor).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from harness.policy.settings import Topology
from harness.store import resources, sql
from harness.store.database import Connection
from harness.store.sessions import DEAD_AFTER_S

OBSERVE_LATE_S = 30.0  # it comes every 5 s
LATE_S = 60.0  # what the sweep does within seconds is a fault after this long
ZOMBIE_S = 900.0  # a worker restarts itself long before one of its threads hangs for this long
VERSION_WAIT_S = 600.0  # a deployment takes less
LAST_ID = 2**63 - 1
FIRST_FLOW = ["", -1, 0, 0, ""]
# Rows of one statement. Each takes some 10 ms of what the database holds in memory.
WINDOWS = {
    "tasks": 5000,
    "members": 5000,
    "leases": 2000,
    "attempts": 1500,
    "trace": 500,
    "orphaned_attempts": 3000,
    "orphaned_bodies": 3000,
    "orphaned_steps": 3000,
    "flows": 1000,
}
HOT_TABLES = ("task", "task_body", "lease", "lease_member", "flow", "charge", "worker_session", "leader")
DEAD_RATIO = 0.2  # of the live rows: where a table is large, vacuum comes at 0.02
USAGE_STEP = timedelta(minutes=15)  # of attempts added up in one statement
Used = tuple[int, int]  # attempts, tokens


@dataclass(frozen=True, slots=True)
class Found:
    """One fault as a look sees it. `subject` in words, one for each rule; `id`: its number, where it has one."""

    rule: str
    subject: str
    id: int | None
    tenant: int | None
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """What one statement found, and where the next begins (None: this was the end)."""

    found: list[Found]
    following: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """What was added up of a UTC day's attempts, by tenant, until when."""

    begins: datetime
    until: datetime
    used: Mapping[int, Used]


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """Findings of one rule, in all the time that is kept."""

    found: int
    repaired: int
    open: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenFinding:
    """A finding that stands."""

    id: int
    level: str
    found: Found


def by_id(connection: Connection, look: str, *, after: int, until: int = LAST_ID, limit: int | None = None) -> Page:
    """Look at the next rows of tasks, members, leases, attempts, trace, or what is orphaned of a task."""
    size = WINDOWS[look] if limit is None else limit
    parameters: dict[str, Any] = {"after": after, "until": until, "limit": size}
    if look == "tasks":
        parameters["version_wait_s"] = VERSION_WAIT_S
    elif look == "leases":
        parameters |= {"late_s": LATE_S, "zombie_s": ZOMBIE_S}
    *found, last = connection.execute(sql.load(f"audit/{look}"), parameters).fetchall()
    return Page([Found(*row) for row in found], last[2])


def missing_flows(connection: Connection, *, key: Sequence[Any] | None, limit: int | None = None) -> Page:
    """Look at the flows that ready tasks need, from a key on, that key included."""
    pool, priority, tenant, run, signature = FIRST_FLOW if key is None else key
    rows = connection.execute(
        sql.load("audit/flows"),
        {
            "pool": pool,
            "priority": priority,
            "tenant": tenant,
            "run": run,
            "signature": signature,
            "limit": WINDOWS["flows"] if limit is None else limit,
        },
    ).fetchall()
    ends = [row[4]["key"] for row in rows if row[0] is None]
    return Page([Found(*row) for row in rows if row[0] is not None], ends[0] if ends else None)


def over_caps(connection: Connection, topology: Topology) -> list[Found]:
    """Look at what is in flight beyond a cap."""
    # Neither what an operator allows beyond the file is a fault, nor what was taken before an operator allowed less.
    live = resources.effective(connection, topology.resources)
    held = {
        name: max(one.capacity, live[name].resource.capacity)
        for name, one in topology.resources.items()
        if one.held == "task"
    }
    rows = connection.execute(sql.load("audit/caps"), {"resources": json.dumps(held), "late_s": LATE_S})
    return [Found(*row) for row in rows]


def unobserved(connection: Connection, topology: Topology) -> list[Found]:
    """Look whether somebody keeps how resources stand (engine.observe)."""
    parameters = {
        "resources": [name for name, one in topology.resources.items() if one.held == "call"],
        "late_s": OBSERVE_LATE_S,
        "dead_after_s": DEAD_AFTER_S,
    }
    return [Found(*row) for row in connection.execute(sql.load("audit/observed"), parameters)]


def charges(connection: Connection, *, bundle_most: int) -> list[Found]:
    """Look at charges that count too much, or stay."""
    return [Found(*row) for row in connection.execute(sql.load("audit/charges"), {"bundle_most": bundle_most})]


def usage(connection: Connection, before: Added | None = None) -> tuple[list[Found], Added | None]:
    """Compare the current day's sums with the attempts that they are of; goes on where `before` ended.

    Several statements: attempts older than the mark don't change, and the sums are read together with the mark.
    """
    rows = connection.execute(sql.load("audit/usage_days")).fetchall()
    if not rows:
        return [], None
    begins, mark = rows[0][0], rows[0][1]
    summed: dict[int, Used] = {row[2]: (row[3], row[4]) for row in rows if row[2] is not None}
    used: dict[int, Used] = {}
    starts = begins
    if before is not None and before.begins == begins and before.until <= mark:
        starts, used = before.until, dict(before.used)
    while starts < mark:
        ends = min(starts + USAGE_STEP, mark)
        for tenant, n, tokens in connection.execute(sql.load("audit/usage_attempts"), {"begins": starts, "ends": ends}):
            attempts, so_far = used.get(tenant, (0, 0))
            used[tenant] = (attempts + n, so_far + tokens)
        starts = ends
    differing = {tenant for tenant in summed.keys() | used.keys() if summed.get(tenant) != used.get(tenant)}
    if differing:  # of a tenant that is being deleted, attempts go before the sums
        cursor = connection.execute(
            "SELECT subject_id FROM audit_entry WHERE verb = 'tenant.delete' AND ended_at IS NULL"
        )
        differing -= {row[0] for row in cursor}
    found = []
    for tenant in sorted(differing):
        day, attempt = summed.get(tenant, (0, 0)), used.get(tenant, (0, 0))
        facts = {"day_attempts": day[0], "attempts": attempt[0], "day_tokens": day[1], "tokens": attempt[1]}
        found.append(Found("usage_differs", f"tenant {tenant}", tenant, tenant, facts))
    return found, Added(begins=begins, until=mark, used=used)


def unclaimed(connection: Connection) -> dict[str, tuple[int, int]]:
    """Return, by the pool that runs them, leases that wait for a worker and slots of live sessions."""
    return {row[0]: (row[1], row[2]) for row in connection.execute(sql.load("audit/unclaimed"))}


def transactions(connection: Connection) -> list[tuple[int | None, str, str, str, float | None, str | None]]:
    """Return other sessions' transactions: (pid, role, application, state, age in seconds, xmin); see the statement."""
    rows = connection.execute(sql.load("audit/transactions"))
    return [(row[0], row[1], row[2] or "", row[3] or "", row[4], row[5]) for row in rows]


def dead_rows(connection: Connection, *, least: int) -> list[Found]:
    """Look at hot tables with more dead rows than `least` and a fifth of the live ones."""
    parameters = {"tables": list(HOT_TABLES), "least": least, "ratio": DEAD_RATIO}
    return [Found(*row) for row in connection.execute(sql.load("audit/dead_rows"), parameters)]


def note(connection: Connection, found: Found, *, level: str) -> tuple[int, bool]:
    """Write a finding down, or that it was seen again. Returns its id and whether it is new."""
    row = connection.execute(
        sql.load("audit/note"),
        {
            "rule": found.rule,
            "level": level,
            "subject": found.subject,
            "subject_id": found.id,
            "tenant": found.tenant,
            "facts": json.dumps(dict(found.facts), default=str),
        },
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def close(connection: Connection, finding: int, *, how: str, repaired: bool) -> None:
    """Say how a finding ended."""
    connection.execute(
        "UPDATE audit_finding SET closed_at = clock_timestamp(), how = %s, "
        "repaired_at = CASE WHEN %s THEN clock_timestamp() END WHERE id = %s AND closed_at IS NULL",
        (how, repaired, finding),
    )


def open_findings(connection: Connection, *, most: int) -> list[OpenFinding]:
    """Return the findings that stand, those not seen for longest first."""
    cursor = connection.execute(
        "SELECT id, level, rule, subject, subject_id, tenant_id, facts FROM audit_finding WHERE closed_at IS NULL "
        "ORDER BY seen_at LIMIT %s",
        (most,),
    )
    return [OpenFinding(id=row[0], level=row[1], found=Found(*row[2:])) for row in cursor]


def counts(connection: Connection) -> dict[str, Counted]:
    """Count the findings by rule."""
    cursor = connection.execute(sql.load("audit/counts"))
    return {row[0]: Counted(found=row[1], repaired=row[2], open=row[3]) for row in cursor}


def forget(connection: Connection, *, older_than_days: float) -> int:
    """Delete findings that were closed long ago. Returns how many."""
    return connection.execute(
        "DELETE FROM audit_finding WHERE closed_at < clock_timestamp() - make_interval(secs => %s)",
        (older_than_days * 86400,),
    ).rowcount


def delete_attempt(connection: Connection, attempt: int) -> bool:
    """Delete an attempt whose task is gone."""
    statement = "DELETE FROM attempt a WHERE a.id = %s AND (SELECT t.id FROM task t WHERE t.id = a.task_id) IS NULL"
    return connection.execute(statement, (attempt,)).rowcount > 0


def delete_body(connection: Connection, task: int) -> bool:
    """Delete the body of a task that is gone."""
    statement = (
        "DELETE FROM task_body b WHERE b.task_id = %s AND (SELECT t.id FROM task t WHERE t.id = b.task_id) IS NULL"
    )
    return connection.execute(statement, (task,)).rowcount > 0


def delete_steps(connection: Connection, task: int) -> bool:
    """Delete the steps of a task that is gone."""
    statement = "DELETE FROM step s WHERE s.task_id = %s AND (SELECT t.id FROM task t WHERE t.id = s.task_id) IS NULL"
    return connection.execute(statement, (task,)).rowcount > 0

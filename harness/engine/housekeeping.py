"""Housekeeping: delete a tenant with all that is its own, and what is older than the settings keep.

Both go in small steps that can be broken off and begun again. What remains of a deleted tenant is its audit entry.
What is old also goes by itself, beside the work (`retain_some`, in the leading dispatcher).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import psycopg

from harness.engine import artifacts, operate
from harness.policy.errors import Conflict, Invalid, NotFound, Unavailable
from harness.store import artifact_files, housekeeping
from harness.store.database import Connection
from harness.store.doorbell import Doorbell

LOOK_EVERY_S = 0.5
KEEP_MIN_DAYS = 1.0
RETAIN_ROWS = 500  # tasks in one transaction of what runs by itself: some 20 ms
REST = 3.0  # after each, so many times as long as it took
DROP_TRIES = 5  # to find a moment in which nobody writes the trace
VERB = "tenant.delete"
REASON_MAX_CHARS = 500

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """What was deleted of a tenant: rows by table (of all tries together, if some were broken off)."""

    tenant: int
    audit: int
    cancelled: int


@dataclass(slots=True)
class Retained:
    """What retention removed: rows by table, days of the trace, artifacts and spool files. `more`: some is left."""

    rows: dict[str, int] = field(default_factory=dict)
    days: list[str] = field(default_factory=list)
    artifacts: int = 0
    spools: int = 0
    more: bool = False

    def count(self, table: str, rows: int) -> None:
        """Add rows of a table."""
        if rows:
            self.rows[table] = self.rows.get(table, 0) + rows


def look(connection: Connection, name: str) -> tuple[int, dict[str, int], housekeeping.Live]:
    """Return a tenant's number, its rows by table and what of it isn't over. Raises: NotFound."""
    tenant = housekeeping.tenant_id(connection, name)
    if tenant is None:
        raise NotFound(f"there is no tenant {name!r}; `manage.py tenant list` shows them", field="name")
    return tenant, housekeeping.counts(connection, tenant), housekeeping.live(connection, tenant)


def delete_tenant(
    connection: Connection,
    name: str,
    *,
    actor: str,
    reason: str = "",
    cancel: bool = False,
    patience_s: float,
    say: Say,
) -> Deletion:
    """Delete a tenant: cancel its work if asked to, wait for it, then remove files and rows; the audit entry stays.

    Raises: NotFound; Conflict when work is live and `cancel` is false (nothing was changed), or when some didn't end in
    `patience_s` seconds; Unavailable when files can't be removed. After the last two: run it again.
    """
    if len(reason) > REASON_MAX_CHARS or not reason.isprintable():
        raise Invalid(f"reason: must be printable text of at most {REASON_MAX_CHARS} characters", field="reason")
    # 1. May it go?
    tenant, _, now = look(connection, name)
    if (now.tasks or now.slots) and not cancel:
        raise Conflict(
            f"{name} has {now.tasks:,} unfinished tasks and holds {now.slots} slots; `--cancel` cancels them first",
            field="cancel",
        )
    # 2. Nothing new comes in
    entry = housekeeping.begin_audit(
        connection, verb=VERB, subject=f"tenant {name}", subject_id=tenant, actor=actor, reason=reason
    )
    housekeeping.close_door(connection, tenant)
    # 3. What is there ends
    cancelled = _end_work(connection, tenant, actor=actor, patience_s=patience_s, say=say)
    # 4. Files and rows go; then the tenant; then what a request under way at that moment brought
    _purge(connection, tenant, entry, say)
    cancelled += _end_work(connection, tenant, actor=actor, patience_s=patience_s, say=say)
    _purge(connection, tenant, entry, say)
    if housekeeping.delete_tenant_row(connection, tenant):
        housekeeping.note_audit(connection, entry, {"tenant": 1})
    _purge(connection, tenant, entry, say)
    housekeeping.end_audit(connection, entry)
    return Deletion(tenant=tenant, audit=entry, cancelled=cancelled)


def retain(connection: Connection, *, keep_days: float, dead_keep_days: float, say: Say) -> Retained:
    """Remove ended tasks (with body, attempts and trace), empty runs, days of the trace and old notes on waits.

    Dead letters are kept for `dead_keep_days`, with their trace: somebody may still send them again.
    And what is over by itself: idempotency keys, artifacts, spool files of killed processes, strays of deleted tenants.
    Raises: Invalid; Unavailable.
    """
    before, dead_before = _kept_from(connection, keep_days, dead_keep_days)
    done = Retained()
    # 1. Tasks, oldest first
    after: int | None = 0
    while after is not None:
        old, after = housekeeping.old_tasks(connection, before=before, dead_before=dead_before, after=after)
        if old:
            for table, rows in housekeeping.delete_tasks(connection, old).items():
                done.count(table, rows)
            say(f"{done.rows.get('task', 0):,} tasks gone")
    for rows in housekeeping.delete_empty_runs(connection, before=before):
        done.count("run", rows)
    # 2. The trace: whole days; what a task that is still there needs is kept
    for day in housekeeping.drop_event_days(connection, before=before):
        done.days.append(day)
        say(f"{day} dropped")
    for rows in housekeeping.delete_orphaned_events(connection, before=before):
        done.count("event", rows)
    for rows in housekeeping.delete_old_reasons(connection, before=before):
        done.count("wait_reason", rows)
    for rows in housekeeping.delete_old_limits(connection, before=before):
        done.count("limit_change", rows)
    # 3. What is over by itself
    for rows in housekeeping.delete_expired_keys(connection):
        done.count("idempotency", rows)
    done.artifacts = artifacts.sweep(connection)
    done.spools = artifact_files.drop_stale_spools()
    for tenant in housekeeping.lately_deleted(connection):
        for table in housekeeping.tenant_tables(connection):
            if table != "artifact":
                for rows in housekeeping.delete_of_tenant(connection, table, tenant):
                    done.count(table, rows)
        done.artifacts += artifacts.sweep(connection, tenant=tenant)
    return done


def retain_some(
    connection: Connection,
    *,
    keep_days: float,
    dead_keep_days: float | None = None,
    most_s: float,
    rest: Callable[[float], bool],
) -> Retained:
    """The same for tasks, runs, trace and notes, beside the work: small batches with rests, at most `most_s` seconds.

    `rest` waits so many seconds; true: stop now. A day of the trace is dropped only if its writers make way at once
    (the connection's lock_timeout), else at the next time. Raises: Invalid.
    """
    before, dead_before = _kept_from(connection, keep_days, dead_keep_days)
    done = Retained()
    end_s = time.monotonic() + most_s
    after: int | None = 0
    while after is not None:
        began_s = time.monotonic()
        old, after = housekeeping.old_tasks(
            connection, before=before, dead_before=dead_before, after=after, limit=RETAIN_ROWS
        )
        if old:
            for table, rows in housekeeping.delete_tasks(connection, old).items():
                done.count(table, rows)
        if after is not None and (rest(REST * (time.monotonic() - began_s)) or time.monotonic() >= end_s):
            done.more = True
            return done
    for steps in (
        ("run", housekeeping.delete_empty_runs(connection, before=before)),
        ("event", housekeeping.delete_orphaned_events(connection, before=before)),
        ("wait_reason", housekeeping.delete_old_reasons(connection, before=before)),
        ("limit_change", housekeeping.delete_old_limits(connection, before=before)),
    ):
        for rows in steps[1]:
            done.count(steps[0], rows)
            if time.monotonic() >= end_s:
                done.more = True
                return done
    for turn in range(DROP_TRIES):
        try:
            for day in housekeeping.drop_event_days(connection, before=before):
                done.days.append(day)
            return done
        except psycopg.errors.LockNotAvailable:
            if rest(0.5 + turn) or time.monotonic() >= end_s:
                break
    done.more = True
    return done


def _kept_from(connection: Connection, keep_days: float, dead_keep_days: float | None) -> tuple[datetime, datetime]:
    """Return the times before which nothing is kept: of what has ended, and of dead letters. Raises: Invalid.

    By the database's clock: a wrong one here would remove what should stay, for good.
    """
    if not keep_days >= KEEP_MIN_DAYS:
        raise Invalid(
            f"HARNESS_KEEP_DAYS: must be at least {KEEP_MIN_DAYS:g} day, not {keep_days:g}", field="keep_days"
        )
    if dead_keep_days is None:
        dead_keep_days = keep_days
    if not dead_keep_days >= keep_days:
        raise Invalid(
            f"HARNESS_DEAD_KEEP_DAYS: must be at least HARNESS_KEEP_DAYS ({keep_days:g}), not {dead_keep_days:g}",
            field="dead_keep_days",
        )
    now = housekeeping.now(connection)
    return now - timedelta(days=keep_days), now - timedelta(days=dead_keep_days)


def _end_work(connection: Connection, tenant: int, *, actor: str, patience_s: float, say: Say) -> int:
    """Cancel what is unfinished, until nothing is and no slot is held. Returns how many. Raises: Conflict."""
    cancelled = 0
    bell = Doorbell()
    end_s = time.monotonic() + patience_s
    while True:
        done = operate.bulk(
            connection,
            "cancel",
            operate.Filter(tenant=tenant),
            tenant=None,
            actor=actor,
            reason="the tenant is deleted",
        )
        cancelled += done.done.total()
        now = housekeeping.live(connection, tenant)
        if not now.tasks and not now.slots:
            bell.ring(connection)
            return cancelled
        if time.monotonic() >= end_s:
            raise Conflict(
                f"{now.tasks:,} tasks still run and {now.slots} slots are held after {patience_s:g} s; the tenant "
                "takes no work any more: run this again when they have ended",
                field="cancel",
            )
        say(f"{now.tasks:,} tasks are ending")
        time.sleep(LOOK_EVERY_S)  # what runs ends in processes of its own


def _purge(connection: Connection, tenant: int, entry: int, say: Say) -> None:
    """Remove files, then rows. Raises: Unavailable when files can't be removed."""
    files = artifacts.sweep(connection, tenant=tenant)
    housekeeping.note_audit(connection, entry, {"artifact": files})
    held = housekeeping.artifact_rows(connection, tenant)
    if held:
        raise Unavailable(f"{held:,} artifacts can't be removed from their store now; run this again")
    artifact_files.remove(str(tenant))  # its folder, where there are folders
    while (gone := housekeeping.delete_tasks_of_tenant(connection, tenant)) is not None:
        housekeeping.note_audit(connection, entry, gone)
        say(f"{gone['task']:,} tasks gone")
    for table in housekeeping.tenant_tables(connection):
        for rows in housekeeping.delete_of_tenant(connection, table, tenant):
            housekeeping.note_audit(connection, entry, {table: rows})
            say(f"{rows:,} rows of {table} gone")
    housekeeping.note_audit(connection, entry, {"event": housekeeping.delete_stray_events(connection, tenant)})

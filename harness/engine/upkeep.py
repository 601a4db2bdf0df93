"""What the leading dispatcher does beside the line, on a thread and a connection of its own: audit, tidy, retention.

All of it is bounded and at a slow pace, and nothing waits for it: release, claim, settle and the sweep go on whatever
becomes of it. Any number may run it at once.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from harness.engine import housekeeping, sweep
from harness.engine.auditor import Alerts, Auditor, Depths
from harness.policy.errors import HarnessError
from harness.policy.settings import Topology
from harness.store import findings
from harness.store import housekeeping as stored
from harness.store.database import Connection
from harness.telemetry import logs

LOOK_S = 1.0  # between two looks at what is due
AUDIT_BUDGET_S = 0.25  # of statements over large tables, in one round
REST = 4.0  # after each window, so many times as long as it took: a fifth of one core at most, for some seconds
TIDY_EVERY_S = 3600.0
TIDY_AGAIN_S = 60.0  # after one that failed: making a partition waits for every reader of the trace
RETAIN_EVERY_S = 3600.0
RETAIN_MOST_S = 30.0  # of one round; what is left goes on after RETAIN_AGAIN_S
RETAIN_AGAIN_S = 60.0
RECONNECT_S = 1.0

log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Upkeep:
    """Its settings. `audit_every_s` 0: no audit; `keep_days` 0: no retention (`manage.py retention` does it)."""

    audit_every_s: float = 30.0
    repair: bool = True
    alerts: Alerts = field(default_factory=Alerts)
    depths: Depths | None = None
    keep_days: float = 0.0
    dead_keep_days: float | None = None  # of dead letters; None: as long as the others


def run(
    upkeep: Upkeep, *, url: str, topology: Topology, connect: Callable[[], Connection], over: threading.Event
) -> None:
    """Do what is due until `over` is set; a connection that breaks is opened anew. Raises: nothing."""
    # Not at once: a leader that has just come has better things to do, and so has the database after a restart.
    due_s = dict.fromkeys(("audit", "retention"), time.monotonic() + 2 * LOOK_S) | {"tidy": time.monotonic()}
    auditor = Auditor(
        topology=topology,
        alerts=upkeep.alerts,
        depths=upkeep.depths,
        repair=upkeep.repair,
        rest=lambda took_s: over.wait(REST * took_s),
    )
    while not over.is_set():
        try:
            with connect() as connection:
                connection.execute(f"SET lock_timeout = {int(sweep.LOCK_WAIT_S * 1000)}")
                while not over.wait(LOOK_S):
                    _round(upkeep, url, connection, auditor, due_s, over)
        except psycopg.Error as error:
            log.warning("upkeep_failed", error=str(error).strip())
            over.wait(RECONNECT_S)


def _round(
    upkeep: Upkeep,
    url: str,
    connection: Connection,
    auditor: Auditor,
    due_s: dict[str, float],
    over: threading.Event,
) -> None:
    now_s = time.monotonic()
    if now_s >= due_s["tidy"]:
        due_s["tidy"] = now_s + TIDY_AGAIN_S
        sweep.tidy(connection)
        findings.forget(connection, older_than_days=max(30.0, upkeep.keep_days))
        due_s["tidy"] = now_s + TIDY_EVERY_S
    if upkeep.audit_every_s > 0:
        if now_s >= due_s["audit"]:
            due_s["audit"] = now_s + upkeep.audit_every_s
            auditor.look(connection, now_s=now_s, budget_s=AUDIT_BUDGET_S)
            auditor.close_gone(connection, now_s=now_s)
        auditor.confirm(connection, now_s=time.monotonic())
    if upkeep.keep_days > 0 and now_s >= due_s["retention"]:
        due_s["retention"] = now_s + RETAIN_EVERY_S
        try:
            with stored.as_owner(
                url, application_name="harness-retention", lock_timeout=stored.LOCK_TIMEOUT_BESIDE
            ) as owner:
                done = housekeeping.retain_some(
                    owner,
                    keep_days=upkeep.keep_days,
                    dead_keep_days=upkeep.dead_keep_days,
                    most_s=RETAIN_MOST_S,
                    rest=over.wait,
                )
        except HarnessError as error:
            log.warning("retention_refused", error=error.message)
            return
        if done.rows or done.days:
            log.info("retained", rows=done.rows, days=done.days, more=done.more)
        if done.more:
            due_s["retention"] = now_s + RETAIN_AGAIN_S

"""The stage `submit`: requests become rows, or are refused as a whole. Load -> decide -> commit.

    1 check the requests against their kinds, without the database   2 take the idempotency key   3 load the backlog and
    what the door sees (engine.doorway)   4 decide (policy.admission)   5 insert   6 commit   7 ring the doorbell

Nothing here talks to the broker or to Redis. A refusal stores nothing, not even its idempotency key; it is counted.
"""

import os
import random
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import psycopg

from harness.engine import verdict
from harness.engine.doorway import Doorway
from harness.engine.requests import Desk, TaskRequest, by_the_clock, tied
from harness.kinds import registry
from harness.policy import admission, graph, money
from harness.policy.admission import DEFAULT_TTL_S, Defer, Overload, Reject, TenantFacts
from harness.policy.errors import Conflict, Invalid, Refused, TooLarge
from harness.policy.money import Standing
from harness.policy.settings import PRIORITIES
from harness.store import children, idempotency, queries, transitions
from harness.store import money as spending
from harness.store.backlog import Backlog, insert_run
from harness.store.database import Connection
from harness.store.doorbell import Doorbell
from harness.store.idempotency import Fingerprint
from harness.store.transitions import NewTask
from harness.telemetry import logs, traces

__all__ = [
    "Accepted",
    "Checked",
    "Door",
    "RunRequest",
    "TaskRequest",
    "check",
    "check_run",
    "commit",
    "submit",
    "submit_run",
    "tell",
]

TASKS = "tasks"  # the routes that an idempotency key belongs to
RUNS = "runs"
ERRORS_TOLD = 20  # of a request with many wrong values
NAME_MAX_CHARS = 200
KEY_MAX_CHARS = 255

log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """A run as asked for. `fanout_cap`: most of its tasks in flight at once (None: no cap of its own)."""

    nodes: Sequence[TaskRequest]
    name: str = ""
    fanout_cap: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """Requests that fit their kinds, ready to be decided on. `run`: they are the nodes of this run.

    `now`: this machine's time then; `counted`: the tasks whose start_by was counted from it. `depends_on`: of each task
    the places of those that must succeed before (empty: of none).
    """

    tasks: Sequence[NewTask]
    run: RunRequest | None
    most_urgent: int
    most_urgent_at: int
    idempotency_key: str | None
    fingerprint: Fingerprint | None
    now: datetime
    counted: Collection[uuid.UUID] = ()
    depends_on: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """What was made, in the order asked for; `existing`: by an earlier submission with the same idempotency key.

    `start_by`: when the first of them expires, if any may. Of an existing run the tasks aren't listed
    (`queries.tasks_of_run`), and of what exists start_by isn't known here.
    `standing`: where the tenant's budget stands, if the work costs. `deferred`: so many of them get in line later, for
    this `reason`; `expected_start`: of the first, None: nobody can say.
    """

    task_ids: tuple[uuid.UUID, ...]
    run_id: uuid.UUID | None
    existing: bool
    start_by: datetime | None = None
    standing: Standing = money.OPEN
    deferred: int = 0
    reason: str = ""
    expected_start: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Door:
    """What one process needs to take submissions; make one a process and share it between threads.

    `body_max_bytes`: of one payload as JSON. `ttl_s`: the default time to start, by priority; None: no limit.
    `keep_keys_s`: how long an idempotency key stands for what it made.
    """

    body_max_bytes: int
    run_max_tasks: int = 10_000
    ttl_s: Sequence[float | None] = DEFAULT_TTL_S
    keep_keys_s: float = idempotency.KEEP_S
    backlog: Backlog = field(default_factory=Backlog)
    doorbell: Doorbell = field(default_factory=Doorbell)
    way: Doorway = field(default_factory=Doorway)


def submit(
    door: Door,
    connection: Connection,
    tenant: TenantFacts,
    requests: Sequence[TaskRequest],
    *,
    actor: str,
    idempotency_key: str | None = None,
) -> Accepted:
    """Submit tasks that belong to no run, all or none. An idempotency key goes with exactly one.

    Raises: Invalid, TooLarge, Forbidden, OverQuota, Conflict (the key made something else).
    """
    return commit(door, connection, tenant, check(door, tenant, requests, idempotency_key=idempotency_key), actor=actor)


def submit_run(
    door: Door,
    connection: Connection,
    tenant: TenantFacts,
    run: RunRequest,
    *,
    actor: str,
    idempotency_key: str | None = None,
) -> Accepted:
    """Submit a run, as a whole or not at all. Raises: as `submit`."""
    return commit(door, connection, tenant, check_run(door, tenant, run, idempotency_key=idempotency_key), actor=actor)


def check(
    door: Door, tenant: TenantFacts, requests: Sequence[TaskRequest], *, idempotency_key: str | None = None
) -> Checked:
    """Check tasks against their kinds, without I/O. Raises: Invalid, TooLarge, naming the field."""
    if idempotency_key is not None and len(requests) != 1:
        raise Invalid("an idempotency key goes with exactly one task, or with a run", field="Idempotency-Key")
    marks = idempotency.fingerprint(requests[0].fields()) if idempotency_key is not None else None
    return _check(door, tenant, requests, run=None, idempotency_key=idempotency_key, marks=marks)


def check_run(door: Door, tenant: TenantFacts, run: RunRequest, *, idempotency_key: str | None = None) -> Checked:
    """Check a run and its nodes, without I/O. Raises: Invalid, TooLarge, naming the field."""
    if not run.nodes:
        raise Invalid("nodes: a run has at least one node", field="nodes")
    if len(run.nodes) > door.run_max_tasks:
        raise TooLarge(
            f"nodes: {len(run.nodes)} are more than a run may have ({door.run_max_tasks}): send several runs",
            field="nodes",
        )
    if len(run.name) > NAME_MAX_CHARS or not run.name.isprintable():
        raise Invalid(f"name: must be printable text of at most {NAME_MAX_CHARS} characters", field="name")
    if run.fanout_cap is not None and not 1 <= run.fanout_cap < 2**31:
        raise Invalid(f"fanout_cap: must be at least 1, not {run.fanout_cap}", field="fanout_cap")
    marks = None
    if idempotency_key is not None:
        marks = idempotency.fingerprint(
            {"name": run.name, "fanout_cap": run.fanout_cap}, [node.fields() for node in run.nodes]
        )
    return _check(door, tenant, run.nodes, run=run, idempotency_key=idempotency_key, marks=marks)


def commit(door: Door, connection: Connection, tenant: TenantFacts, checked: Checked, *, actor: str) -> Accepted:
    """Decide on what was checked, and insert it.

    Raises: Forbidden, OverQuota, BudgetExceeded, Overload, Conflict, Invalid (a deadline that can't be met at all).
    """
    if not checked.tasks:
        return Accepted(task_ids=(), run_id=None, existing=False)
    try:
        return _commit(door, connection, tenant, checked, actor=actor)
    except Refused as error:
        _count(door, connection, tenant, checked, error)
        raise


def _commit(door: Door, connection: Connection, tenant: TenantFacts, checked: Checked, *, actor: str) -> Accepted:
    count = len(checked.tasks)
    run_id = uuid.uuid4() if checked.run else None
    reserved = False
    try:
        with queries.as_tenant(connection, tenant.id) as server_now:
            tasks = by_the_clock(checked.tasks, checked.counted, now=checked.now, server_now=server_now)
            existing = _existing(
                connection, tenant, checked, made=run_id or checked.tasks[0].public_id, keep_s=door.keep_keys_s
            )
            if existing:
                return existing
            standing = _standing(connection, tenant, checked)
            backlog = door.backlog.reserve(
                connection, tenant.id, count, quota=tenant.backlog_quota, now_s=time.monotonic()
            )
            reserved = True
            now_s = time.monotonic()
            prediction = door.way.predict(connection, tenant.id, tasks, now=server_now, now_s=now_s)
            decision = admission.decide(
                tenant,
                most_urgent=checked.most_urgent,
                count=count,
                backlog=backlog,
                wanted=prediction.wanted,
                level=prediction.level,
                luck=random.random(),
            )
            if isinstance(decision, Reject):
                raise verdict.refusal(
                    decision, prediction, of_run=checked.run is not None, most_urgent_at=checked.most_urgent_at
                )
            if isinstance(decision, Defer):
                tasks = verdict.deferred(tasks, decision, prediction, now=server_now)
            run_row = 0
            if checked.run and run_id:
                run_row = insert_run(
                    connection,
                    public_id=run_id,
                    tenant=tenant.id,
                    name=checked.run.name,
                    size=count,
                    fanout_cap=checked.run.fanout_cap,
                )
            ids = transitions.submit(connection, tasks, tenant=tenant.id, run=run_row, actor=actor)
            if edges := [(ids[at], ids[on]) for at, ons in enumerate(checked.depends_on) for on in ons]:
                children.depend(connection, edges, tenant=tenant.id)
    except BaseException:
        if reserved:
            door.backlog.released(tenant.id, count)
        raise
    door.backlog.committed(tenant.id, count)
    if traces.on():
        for task in tasks:
            traces.submitted(task.public_id, kind=task.kind, pool=task.pool, priority=task.priority, tenant=tenant.id)
    door.way.let_in(tenant.id, tasks, checked.idempotency_key, now=server_now, now_s=now_s)
    later = [task for task in tasks if task.deferred is not None]
    if later:
        door.way.answered(tenant.id, later, "deferred", "pressure", None, now_s=now_s, demands=False)
    door.doorbell.ring(connection)
    tell(door, connection)
    starts_s = decision.starts_s if isinstance(decision, Defer) else prediction.wait_s
    return Accepted(
        task_ids=tuple(task.public_id for task in checked.tasks),
        run_id=run_id,
        existing=False,
        start_by=min((task.start_by for task in tasks if task.start_by), default=None),
        standing=standing,
        deferred=len(later),
        reason=decision.reason if isinstance(decision, Defer) else "",
        expected_start=None if starts_s is None else server_now + timedelta(seconds=starts_s),
    )


def _count(door: Door, connection: Connection, tenant: TenantFacts, checked: Checked, error: Refused) -> None:
    """Count a refusal. What a tenant's own limits refuse is no demand on the system: nobody else could do it sooner."""
    door.way.answered(
        tenant.id,
        checked.tasks,
        error.code,
        str(error.facts.get("reason", error.code)),
        checked.idempotency_key,
        now_s=time.monotonic(),
        demands=error.code == Overload.code,
    )
    tell(door, connection)


def tell(door: Door, connection: Connection, *, at_once: bool = False) -> None:
    """Write down what was refused or deferred; outside a transaction. `at_once`: or a second after the last time."""
    try:
        door.way.tell(connection, now_s=time.monotonic(), at_once=at_once)
    except psycopg.Error as error:  # the answer stands; the next one tells of this one, too
        log.info("door_untold", reason=str(error).strip())


def _standing(connection: Connection, tenant: TenantFacts, checked: Checked) -> Standing:
    """Look at the tenant's budget when work is asked for that costs. Raises: BudgetExceeded."""
    costing = {kind.name for kind in registry.costing()}
    if not any(task.kind in costing for task in checked.tasks):
        return money.OPEN
    standing = spending.standing(connection, tenant.id)
    if standing.line == "hard":
        raise money.refusal(standing)
    return standing


def _check(
    door: Door,
    tenant: TenantFacts,
    requests: Sequence[TaskRequest],
    *,
    run: RunRequest | None,
    idempotency_key: str | None,
    marks: Fingerprint | None,
) -> Checked:
    if idempotency_key is not None and not _is_key(idempotency_key):
        raise Invalid(
            f"Idempotency-Key: must be 1 to {KEY_MAX_CHARS} visible ASCII characters", field="Idempotency-Key"
        )
    default = admission.default_priority(tenant)
    desk = Desk(body_max_bytes=door.body_max_bytes, ttl_s=door.ttl_s)
    tasks: list[NewTask] = []
    dice = os.urandom(16 * len(requests))  # for all ids at once: a call each costs more than the rest of the id
    most_urgent, most_urgent_at = PRIORITIES[-1] + 1, 0
    for index, request in enumerate(requests):
        at = f"nodes[{index}]." if run else f"tasks[{index}]." if len(requests) > 1 else ""
        priority = default if request.priority is None else request.priority
        public_id = uuid.UUID(bytes=dice[16 * index : 16 * index + 16], version=4)
        task = desk.check(request, priority=priority, public_id=public_id, at=at)
        if task is not None:
            tasks.append(task)
        if priority < most_urgent:
            most_urgent, most_urgent_at = priority, index
        if len(desk.errors) >= ERRORS_TOLD:
            break
    errors = desk.errors
    if errors:
        first = errors[0]
        raise Invalid(f"{first['field']}: {first['message']}", field=first["field"], errors=errors[:ERRORS_TOLD])
    depends_on: Sequence[Sequence[int]] = ()
    if run and any(node.depends_on or node.name for node in run.nodes):
        depends_on = graph.resolve([node.name for node in run.nodes], [node.depends_on for node in run.nodes])
        tasks = tied(tasks, run.nodes, depends_on)
    return Checked(
        tasks=tasks,
        run=run,
        most_urgent=most_urgent,
        most_urgent_at=most_urgent_at,
        idempotency_key=idempotency_key,
        fingerprint=marks,
        now=desk.now,
        counted=desk.counted,
        depends_on=depends_on,
    )


def _existing(
    connection: Connection, tenant: TenantFacts, checked: Checked, *, made: uuid.UUID, keep_s: float
) -> Accepted | None:
    if checked.idempotency_key is None or checked.fingerprint is None:
        return None
    before = idempotency.claim(
        connection,
        tenant=tenant.id,
        route=RUNS if checked.run else TASKS,
        key=checked.idempotency_key,
        fingerprint=checked.fingerprint,
        made=made,
        keep_s=keep_s,
    )
    if before is None:
        return None
    if before.fingerprint.body_hash != checked.fingerprint.body_hash:
        name = idempotency.differing_field(before.fingerprint.fields, checked.fingerprint.fields)
        what = "run_id" if checked.run else "task_id"
        raise Conflict(
            f"this Idempotency-Key made {what} {before.public_id} from another body: {name} differs. "
            "Send the same body, or another key",
            field=name,
            **{what: str(before.public_id)},
        )
    if checked.run:
        return Accepted(task_ids=(), run_id=before.public_id, existing=True)
    return Accepted(task_ids=(before.public_id,), run_id=None, existing=True)


def _is_key(key: str) -> bool:
    return 0 < len(key) <= KEY_MAX_CHARS and all("!" <= letter <= "~" for letter in key)

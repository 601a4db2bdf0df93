"""Schedules: made and changed by people, fired by the sweep of whoever leads.

Firing a schedule is one transaction: lock its row, decide (policy.schedule), check the kind and input as they are now,
decide on admission, insert the tasks, move next_at on by compare-and-set. So two sweeps, a crash in the middle, or no
sweep for a day make no moment fire twice; what an outage missed is caught up as the schedule says.
"""

import time
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from harness.engine.requests import Desk, Origin, TaskRequest
from harness.kinds import registry
from harness.policy import admission, money, schedule, terms
from harness.policy.admission import DEFAULT_TTL_S, Forbidden, OverQuota, Reject, TenantFacts
from harness.policy.errors import HarnessError, Invalid, NotFound, Refused
from harness.policy.schedule import CatchUp
from harness.store import money as spending
from harness.store import queries, schedules, transitions
from harness.store.backlog import Backlog
from harness.store.database import Connection
from harness.store.schedules import Content, DueSchedule, ScheduleView
from harness.store.transitions import NewTask
from harness.telemetry import logs

FIRE_MOST = 100  # schedules a round: some 0.3 s of the sweep's time; the rest follow in the next round
REFUSED_AGAIN_S = 30.0  # after a full backlog or a spent budget
NAME_MAX_CHARS = 100
REASON_MAX_CHARS = 500

log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleRequest:
    """A schedule as asked for. `input` is a JSON value; `priority` and `ttl_s` None: the defaults when it fires."""

    name: str
    kind: str
    input: object
    cron: str
    zone: str = "UTC"
    catch_up: CatchUp = "one"
    priority: int | None = None
    ttl_s: float | None = None
    title: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Firing:
    """What the sweep of one process needs to fire. `ttl_s`: the default time to start, by priority."""

    body_max_bytes: int = 256 * 1024
    ttl_s: tuple[float | None, ...] = DEFAULT_TTL_S
    backlog: Backlog = field(default_factory=Backlog)


class _MovedOn(HarnessError):
    """Another sweep has fired it."""


def fire_due(firing: Firing, connection: Connection, *, now: datetime | None = None, most: int = FIRE_MOST) -> int:
    """Fire the schedules that are due, each in a transaction of its own. Returns how many tasks they brought.

    Any number of processes may run it at once. One schedule that fails doesn't keep the others from firing.
    """
    brought = 0
    apart: list[int] = []  # those that failed in this round
    for _ in range(most):
        taken: DueSchedule | None = None
        try:
            with connection.transaction():
                taken = schedules.take_due(connection, now=now, apart=apart)
                if taken is None:
                    break
                brought += _fire(firing, connection, taken)
        except _MovedOn:
            pass
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            if taken is None:
                raise
            apart.append(taken.id)
            log.error(
                "schedule_failed", schedule=str(taken.public_id), tenant=taken.tenant.id, error=str(error).strip()
            )
    return brought


def create(
    connection: Connection,
    tenant: TenantFacts,
    asked: ScheduleRequest,
    *,
    body_max_bytes: int,
    enabled: bool = True,
    author: str,
) -> uuid.UUID:
    """Make a schedule. Returns its public id. Raises: Invalid, TooLarge, Forbidden, OverQuota, Conflict (name)."""
    content, first = _checked(tenant, asked, body_max_bytes=body_max_bytes)
    with queries.as_tenant(connection, tenant.id):
        made = schedules.insert(
            connection, content, tenant=tenant.id, next_at=_utc(first), enabled=enabled, author=author
        )
    if made is None:
        raise OverQuota(f"this tenant has {schedules.PER_TENANT} schedules, the most there may be: delete some")
    return made


def change(
    connection: Connection, tenant: TenantFacts, public_id: uuid.UUID, changes: dict[str, Any], *, body_max_bytes: int
) -> None:
    """Change some of a schedule; `changes` maps names of ScheduleRequest to values. Another cron or zone begins anew.

    Raises: NotFound, Invalid, TooLarge, Forbidden, Conflict (name).
    """
    with queries.as_tenant(connection, tenant.id):
        before = _found(connection, public_id)
        asked = replace(_as_asked(before), **changes)
        content, first = _checked(tenant, asked, body_max_bytes=body_max_bytes)
        same = (content.cron, content.zone) == (before.cron, before.zone)
        schedules.update(
            connection,
            public_id,
            content,
            next_at=before.next_at if same and before.enabled else _utc(first),
            enabled=before.enabled,
            stopped_because=None if before.enabled else before.stopped_because,
        )


def pause(connection: Connection, tenant: TenantFacts, public_id: uuid.UUID, *, reason: str = "") -> None:
    """Stop a schedule until it is resumed. Tasks that it brought go on. Raises: NotFound, Invalid (reason)."""
    if len(reason) > REASON_MAX_CHARS or not reason.isprintable():
        raise Invalid(f"reason: must be printable text of at most {REASON_MAX_CHARS} characters", field="reason")
    with queries.as_tenant(connection, tenant.id):
        _found(connection, public_id)
        schedules.stop(connection, public_id, reason or "paused")


def resume(connection: Connection, tenant: TenantFacts, public_id: uuid.UUID, *, body_max_bytes: int) -> None:
    """Let a schedule go on from now: what it missed while it was paused isn't caught up.

    Raises: NotFound; Invalid, Forbidden when it doesn't fit any more.
    """
    with queries.as_tenant(connection, tenant.id):
        before = _found(connection, public_id)
        if before.enabled:
            return
        content, first = _checked(tenant, _as_asked(before), body_max_bytes=body_max_bytes)
        schedules.update(connection, public_id, content, next_at=_utc(first), enabled=True, stopped_because=None)


def delete(connection: Connection, tenant: TenantFacts, public_id: uuid.UUID) -> None:
    """Remove a schedule; its tasks stay. Raises: NotFound."""
    with queries.as_tenant(connection, tenant.id):
        if not schedules.delete(connection, public_id):
            raise NotFound(f"there is no schedule {public_id}")


def _fire(firing: Firing, connection: Connection, taken: DueSchedule) -> int:
    """Fire one schedule in the caller's transaction. Returns how many tasks. Raises: _MovedOn."""
    # 1. Decide
    try:
        due = schedule.due(
            taken.cron, taken.zone, taken.catch_up, next_s=taken.next_at.timestamp(), now_s=taken.now.timestamp()
        )
        tasks = _tasks(firing, taken, due.fire)
    except HarnessError as error:
        return _stop(connection, taken, error.message)
    next_at = None if due.next_s is None else _utc(due.next_s)
    ended = None if next_at else "there is no later moment"
    # 2. Admit
    reserved = False
    if tasks:
        there = firing.backlog.reserve(
            connection, taken.tenant.id, len(tasks), quota=taken.tenant.backlog_quota, now_s=time.monotonic()
        )
        reserved = True
    try:
        if tasks:
            decision = admission.refused(taken.tenant, most_urgent=tasks[0].priority, count=len(tasks), backlog=there)
            why = _refusal(connection, taken, decision)
            if why is not None:
                firing.backlog.released(taken.tenant.id, len(tasks))
                reserved = False
                return _refused(connection, taken, why)
            # 3. Insert, and move on
            transitions.submit(connection, tasks, tenant=taken.tenant.id, actor=f"schedule:{taken.name}")
        moved = schedules.move_on(
            connection,
            taken,
            next_at=next_at,
            look_at=next_at,
            fired=len(tasks),
            task=tasks[-1].public_id if tasks else None,
            stopped_because=ended,
        )
        if not moved:
            raise _MovedOn("fired by another sweep")
    except BaseException:
        if reserved:
            firing.backlog.released(taken.tenant.id, len(tasks))
        raise
    if reserved:
        firing.backlog.committed(taken.tenant.id, len(tasks))
    log.info(
        "schedule_fired" if tasks else "schedule_skipped",
        schedule=str(taken.public_id),
        tenant=taken.tenant.id,
        kind=taken.kind,
        tasks=len(tasks),
        dropped=due.dropped,
    )
    return len(tasks)


def _tasks(firing: Firing, taken: DueSchedule, moments: tuple[float, ...]) -> list[NewTask]:
    """Return the tasks to insert. Raises: Invalid, TooLarge when the kind or the input doesn't fit any more."""
    request = TaskRequest(
        kind=taken.kind,
        input=taken.input,
        priority=taken.priority,
        ttl_s=taken.ttl_s,
        title=taken.title,
        tags=taken.tags,
    )
    priority = admission.default_priority(taken.tenant) if taken.priority is None else taken.priority
    desk = Desk(body_max_bytes=firing.body_max_bytes, ttl_s=firing.ttl_s, now=taken.now)
    tasks = [
        desk.check(
            request,
            priority=priority,
            public_id=uuid.uuid4(),
            origin=Origin(schedule=taken.public_id, scheduled_for=_utc(moment_s)),
        )
        for moment_s in moments
    ]
    _raise_first(desk)
    return [task for task in tasks if task is not None]


def _refusal(connection: Connection, taken: DueSchedule, decision: Reject | None) -> Refused | None:
    """Return why it may not fire; `retry_after_s` among the facts: not now."""
    if decision is not None:
        return OverQuota(decision.message, retry_after_s=decision.retry_after_s)
    kind = registry.find(taken.kind)
    if kind is not None and kind.costs:
        standing = spending.standing(connection, taken.tenant.id)
        if standing.line == "hard":
            return money.refusal(standing)
    return None


def _refused(connection: Connection, taken: DueSchedule, why: Refused) -> int:
    """No room now: look again soon, at the same moment. Never any room: stop it."""
    if why.facts.get("retry_after_s") is None:
        return _stop(connection, taken, why.message)
    schedules.move_on(
        connection,
        taken,
        next_at=taken.next_at,
        look_at=taken.now + timedelta(seconds=REFUSED_AGAIN_S),
        stopped_because=why.message,
    )
    log.warning("schedule_refused", schedule=str(taken.public_id), tenant=taken.tenant.id, reason=why.message)
    return 0


def _stop(connection: Connection, taken: DueSchedule, why: str) -> int:
    schedules.move_on(
        connection, taken, next_at=taken.next_at, look_at=taken.next_at, stopped_because=why, enabled=False
    )
    log.warning("schedule_stopped", schedule=str(taken.public_id), tenant=taken.tenant.id, reason=why)
    return 0


def _checked(tenant: TenantFacts, asked: ScheduleRequest, *, body_max_bytes: int) -> tuple[Content, float]:
    """Return what to store, and the first moment. Raises: Invalid, TooLarge, Forbidden."""
    if not 1 <= len(asked.name) <= NAME_MAX_CHARS or not asked.name.isprintable():
        raise Invalid(f"name: must be 1 to {NAME_MAX_CHARS} printable characters", field="name")
    if asked.catch_up not in schedule.CATCH_UPS:
        raise Invalid(f"catch_up: must be one of {', '.join(schedule.CATCH_UPS)}", field="catch_up")
    now = datetime.now(UTC)
    first = schedule.check(asked.cron, asked.zone, now_s=now.timestamp())
    priority = admission.default_priority(tenant) if asked.priority is None else asked.priority
    desk = Desk(body_max_bytes=body_max_bytes, now=now)
    request = TaskRequest(
        kind=asked.kind, input=asked.input, priority=priority, ttl_s=asked.ttl_s, title=asked.title, tags=asked.tags
    )
    task = desk.check(request, priority=priority, public_id=uuid.uuid4())
    _raise_first(desk)
    assert task is not None  # else an error was told
    if priority < tenant.top_priority:
        raise Forbidden(
            f"priority: {priority} is more urgent than this tenant may ask for: ask for {tenant.top_priority} or a "
            "larger number",
            field="priority",
        )
    content = Content(
        name=asked.name,
        kind=asked.kind,
        input=task.input,
        priority=asked.priority,
        ttl_s=asked.ttl_s,
        title=asked.title,
        tags=terms.check_tags(asked.tags),
        cron=" ".join(asked.cron.split()),
        zone=asked.zone,
        catch_up=asked.catch_up,
    )
    return content, first


def _raise_first(desk: Desk) -> None:
    if desk.errors:
        first = desk.errors[0]
        raise Invalid(f"{first['field']}: {first['message']}", field=first["field"], errors=desk.errors[:20])


def _found(connection: Connection, public_id: uuid.UUID) -> ScheduleView:
    found = schedules.one(connection, public_id, lock=True)
    if found is None:
        raise NotFound(f"there is no schedule {public_id}")
    return found


def _as_asked(view: ScheduleView) -> ScheduleRequest:
    values: dict[str, Any] = {name: getattr(view, name) for name in ScheduleRequest.__slots__}
    return ScheduleRequest(**values | {"tags": tuple(view.tags)})


def _utc(moment_s: float) -> datetime:
    return datetime.fromtimestamp(moment_s, UTC)

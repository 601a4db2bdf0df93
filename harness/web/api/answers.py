"""Answers: models as JSON, views of the store as models, links, and opaque cursors."""

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, overload

from django.http import HttpRequest, HttpResponse
from pydantic import BaseModel

from harness.engine import approve, operate
from harness.engine.expect import Foreseen
from harness.policy import holds
from harness.policy.errors import Invalid
from harness.policy.lifecycle import LIVE
from harness.store.queries import EventView, RunView, TaskView
from harness.store.steps import SoFar
from harness.web.api.costs import UsedOut
from harness.web.api.eta_schemas import eta_out
from harness.web.api.schemas import BulkOut, ErrorOut, EventOut, RunOut, TaskMade, TaskOut, TaskWhole
from harness.web.api.step_schemas import StepsSoFar

ROOT = "/api/v1"
MANY = frozenset({"tag"})  # the parameters that may stand several times


def answer(model: BaseModel, status: int = 200) -> HttpResponse:
    """Return a model as JSON."""
    return HttpResponse(model.model_dump_json(by_alias=True), status=status, content_type="application/json")


def only(request: HttpRequest, *known: str) -> None:
    """Check the query's names. Raises: Invalid naming one that isn't known or stands twice: a list must not widen."""
    for name, values in request.GET.lists():
        if name not in known:
            raise Invalid(f"{name}: unknown here; known: {', '.join(known)}", field=name)
        if len(values) > 1 and name not in MANY:
            raise Invalid(f"{name}: give it once; only {', '.join(sorted(MANY))} may stand several times", field=name)


def cursor(position: int) -> str:
    """Return a cursor for a position.

    >>> position(cursor(17))
    17
    """
    return cursor_of(str(position))


def position(text: str) -> int:
    """Return the position of a cursor. Raises: Invalid."""
    try:
        value = int(text_of_cursor(text))
        if not 0 <= value < 2**63:
            raise ValueError(text)
    except ValueError:
        raise _no_cursor() from None
    return value


def cursor_of(place: str) -> str:
    """Return a cursor for a place in words.

    >>> text_of_cursor(cursor_of("2030-01-01 17"))
    '2030-01-01 17'
    """
    return base64.urlsafe_b64encode(f"v1:{place}".encode()).decode().rstrip("=")


def text_of_cursor(text: str) -> str:
    """Return the place that a cursor tells of, in words. Raises: Invalid."""
    try:
        version, _, place = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii").partition(":")
        if version != "v1":
            raise ValueError(text)
    except (ValueError, binascii.Error):
        raise _no_cursor() from None
    return place


def _no_cursor() -> Invalid:
    return Invalid("cursor: not one that a page gave as `next`", field="cursor")


def task_links(task_id: object) -> Mapping[str, str]:
    """Return where a task is."""
    at = f"{ROOT}/tasks/{task_id}"
    verbs = (
        "trace",
        "steps",
        "why",
        *operate.VERBS,
        "approvals",
        "approve",
        "deny",
        "reask",
        "stream",
        "output",
        "page-link",
    )
    return {"self": at, **{verb: f"{at}/{verb}" for verb in verbs}}


def run_links(run_id: object) -> Mapping[str, str]:
    """Return where a run is."""
    at = f"{ROOT}/runs/{run_id}"
    verbs = {verb: f"{at}/{verb}" for verb in operate.VERBS if verb != "redrive"}
    return {"self": at, "tasks": f"{ROOT}/tasks?run={run_id}", **verbs}


def task_made(task: TaskView, *, existing: bool) -> TaskMade:
    """Return what a submission that made this task says."""
    return TaskMade(
        task_id=task.public_id,
        state=task.state,
        ready=task.ready,
        admission="deferred" if _deferred_until(task) else "accepted",
        priority=task.priority,
        start_by=_start_by(task),
        existing=existing,
        links=task_links(task.public_id),
    )


def task_out(task: TaskView, eta: Foreseen | None) -> TaskOut:
    """Return a task without its result."""
    return TaskOut(**_members(task), eta=eta_out(eta))


def task_whole(task: TaskView, used: UsedOut, so_far: SoFar, eta: Foreseen | None) -> TaskWhole:
    """Return a task with its result, what it has used, and how far it has come."""
    steps = StepsSoFar(finished=so_far.finished, begun=so_far.begun, current=so_far.current) if so_far.begun else None
    return TaskWhole(**_members(task), eta=eta_out(eta), result=task.output, **used.model_dump(), steps=steps)


def event_out(event: EventView) -> EventOut:
    """Return one trace event. A traceback is for operators."""
    data = event.data
    if isinstance(data, dict) and "traceback" in data:
        data = {name: value for name, value in data.items() if name != "traceback"}
    return EventOut(
        seq=event.seq,
        at=utc(event.at),
        event=event.event,
        from_state=event.from_state,
        to_state=event.to_state,
        actor=event.actor,
        data=data,
    )


def run_out(run: RunView, eta: Foreseen | None) -> RunOut:
    """Return a run."""
    return RunOut(
        run_id=run.public_id,
        name=run.name,
        size=run.size,
        fanout_cap=run.fanout_cap,
        wants=run.want,
        created_at=utc(run.created_at),
        states=run.states,
        finished=not LIVE.intersection(run.states),
        eta=eta_out(eta),
        links=run_links(run.public_id),
    )


def bulk_out(done: operate.Tally) -> BulkOut:
    """Return what a bulk verb did."""
    return BulkOut(
        verb=done.verb,
        matched=done.matched,
        done=done.done,
        already=done.already,
        refused=done.reasons(),
        next=None if done.next is None else cursor(done.next),
        stopped=done.stopped,
    )


@overload
def utc(value: datetime) -> datetime: ...
@overload
def utc(value: None) -> None: ...
def utc(value: datetime | None) -> datetime | None:
    """Return a time in UTC, whatever the server's zone."""
    return value.astimezone(UTC) if value else None


def _members(task: TaskView) -> dict[str, Any]:
    can = [
        *operate.offered(task.state, task.want, task.holds, hold=holds.TENANT, leased=task.released),
        *approve.offered(task.state, task.holds, decided=task.ready or task.released),
    ]
    return {
        "task_id": task.public_id,
        "run_id": task.run,
        "kind": task.kind,
        "version": task.version,
        "pool": task.pool,
        "priority": task.priority,
        "state": task.state,
        "ready": task.ready,
        "released": task.released,
        "holds": task.holds,
        "waits_for": _waits_for(task),
        "wants": holds.wished(task.want),
        "title": task.title or "",
        "tags": task.tags or [],
        "schedule_id": task.schedule,
        "scheduled_for": utc(task.scheduled_for),
        "can_cancel": "cancel" in can,
        "can": can,
        "attempts_used": task.attempts_used,
        "lost_starts": task.lost_starts,
        "postponements": task.postponements,
        "degraded": task.degraded,
        "created_at": utc(task.created_at),
        "not_before": None if task.deferred else utc(task.not_before),
        "deferred_until": _deferred_until(task),
        "start_by": _start_by(task),
        "deadline": utc(task.deadline),
        "first_claimed_at": utc(task.first_claimed_at),
        "finished_at": utc(task.finished_at),
        "error": _error(task.error),
        "links": task_links(task.public_id),
    }


def _waits_for(task: TaskView) -> str | None:
    if holds.CHILDREN in task.holds:
        return "children"
    return "dependencies" if task.depends else None


def _deferred_until(task: TaskView) -> datetime | None:
    return utc(task.not_before) if task.deferred else None


def _start_by(task: TaskView) -> datetime | None:
    return utc(task.start_by) if task.first_claimed_at is None else None


def _error(error: Any) -> ErrorOut | None:
    if not isinstance(error, dict):
        return None
    return ErrorOut(error_class=error.get("class"), message=error.get("message"))

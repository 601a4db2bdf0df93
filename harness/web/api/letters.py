"""Dead letters over HTTP: list, group, read, and send again. Tracebacks are for operators: none here."""

import json
import uuid
from datetime import datetime
from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from harness.engine import expect, letters, operate
from harness.engine.letters import Wanted
from harness.engine.operate import KEEP, Forecast, Tally
from harness.policy.errors import Invalid
from harness.store import queries
from harness.store.database import Connection
from harness.store.letters import END_OF_TIME, Letter, Place
from harness.web.api import answers, documents, reading
from harness.web.api.auth import READ, WRITE, caller_of
from harness.web.api.letter_schemas import (
    REASON_KEY,
    GroupOut,
    GroupsOut,
    LetterListed,
    LetterPage,
    LetterWhole,
    PreviewOut,
    ReasonOut,
    RedriveIn,
    RedriveManyIn,
    Redriven,
    RedrivenMany,
    Refusal,
)
from harness.web.api.schemas import EventOut, Problem
from harness.web.api.step_schemas import StepLast
from harness.web.service import service

router = Router(tags=["dead letters"])
verb = Router(tags=["tasks"])  # the verb on one task stands among its tasks

PAGE_MAX = 200
ROOT = f"{answers.ROOT}/dead-letters"

Kind = Annotated[str | None, Query(pattern=r"^[\w.:-]{1,200}$")]
Class = Annotated[str | None, Query(alias="class", pattern=r"^[\w.:-]{1,40}$")]


@router.get("", auth=READ, response={200: LetterPage, (401, 403, 422, 503): Problem}, summary="List dead letters")
async def list_letters(
    request: HttpRequest,
    kind: Kind = None,
    error_class: Class = None,
    reason: Annotated[str | None, Query(pattern=REASON_KEY, description="the key of a group's reason")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
    cursor: Annotated[str | None, Query()] = None,
) -> HttpResponse:
    """List tasks that have failed for good, those that died last first, with filters."""
    answers.only(request, "kind", "class", "reason", "limit", "cursor")
    caller = caller_of(request)
    serving = service()
    before = END_OF_TIME if cursor is None else _place(cursor)
    wanted = Wanted(kind=kind, error_class=error_class, reason=reason)

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            found, following = letters.page(connection, wanted, tenant=caller.tenant.id, before=before, most=limit)
        items = [
            LetterListed(**_members(one), input_begin=one.input, input_cut=one.input_chars > len(one.input))
            for one in found
        ]
        return answers.answer(LetterPage(items=items, next=None if following is None else _cursor(following)))

    return await serving.on_thread(lambda: serving.with_connection(look))


@router.get(
    "/groups", auth=READ, response={200: GroupsOut, (401, 403, 422, 503): Problem}, summary="Count them by reason"
)
async def list_groups(request: HttpRequest, kind: Kind = None, error_class: Class = None) -> HttpResponse:
    """Count the newest dead letters by reason: kind, class, and message without what differs from task to task."""
    answers.only(request, "kind", "class")
    caller = caller_of(request)
    serving = service()

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            found = letters.groups(connection, Wanted(kind=kind, error_class=error_class), tenant=caller.tenant.id)
        items = [
            GroupOut(
                reason=ReasonOut(
                    key=group.reason.key,
                    kind=group.reason.kind,
                    error_class=group.reason.error_class,
                    pattern=group.reason.pattern,
                ),
                count=group.count,
                newest=answers.utc(group.newest),
                oldest=answers.utc(group.oldest),
                message=group.message,
                links={"letters": f"{ROOT}?reason={group.reason.key}"},
            )
            for group in found.items
        ]
        return answers.answer(GroupsOut(items=items, looked=found.looked, more=found.more))

    return await serving.on_thread(lambda: serving.with_connection(look))


@router.get(
    "/{uuid:task_id}", auth=READ, response={200: LetterWhole, (401, 403, 404, 503): Problem}, summary="Read one"
)
async def read(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """Read a dead letter with its input."""
    caller = caller_of(request)
    serving = service()

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            one = letters.one(connection, task_id)
        return answers.answer(LetterWhole(**_members(one), input=json.loads(one.input)))

    return await serving.on_thread(lambda: serving.with_connection(look))


@router.post(
    "/redrive",
    auth=WRITE,
    response={200: RedrivenMany, (400, 401, 403, 404, 413, 422, 503): Problem},
    openapi_extra=documents.body(RedriveManyIn),
    summary="Send many again",
)
async def redrive_many(request: HttpRequest) -> HttpResponse:
    """Send dead letters again as they were, at most 10,000 at once; `preview` only says what would happen."""
    caller = caller_of(request)
    serving = service()

    def work() -> HttpResponse:
        asked = reading.read(reading.body_of(request), RedriveManyIn)
        wanted = Wanted(kind=asked.kind, error_class=asked.error_class, reason=asked.reason_key)
        if (asked.task_ids is None) == wanted.everything:
            raise Invalid("task_ids: name tasks, or say which by kind, class or reason_key", field="task_ids")

        def send(connection: Connection) -> HttpResponse:
            tenant = caller.tenant.id
            these = (
                letters.batches(connection, wanted, tenant=tenant)
                if asked.task_ids is None
                else [letters.ids(connection, asked.task_ids, tenant=tenant)]
            )
            if asked.preview:
                seen = operate.forecast(connection, these, tenant=tenant)
                return answers.answer(_many(Tally(verb="redrive", more=seen.tally.more), _preview(seen)))
            done = operate.bulk(
                connection,
                "redrive",
                these,
                tenant=tenant,
                actor=caller.actor,
                reason=asked.reason,
                most=operate.MANY_MOST,
            )
            return answers.answer(_many(done))

        return serving.with_connection(send)

    return await serving.on_thread(work)


@verb.post(
    "/{uuid:task_id}/redrive",
    auth=WRITE,
    response={200: Redriven, (400, 401, 403, 404, 409, 413, 422, 429, 503): Problem},
    openapi_extra=documents.body(RedriveIn, required=False),
    summary="Send a task again",
)
async def redrive_one(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """Send a task again that has failed for good or was cancelled, as it was or with another input."""
    caller = caller_of(request)
    serving = service()

    def work() -> HttpResponse:
        asked = reading.read(reading.body_of(request), RedriveIn, empty=True)
        value = asked.input if "input" in asked.model_fields_set else KEEP

        def send(connection: Connection) -> HttpResponse:
            outcome, anew, preview = "preview", False, None
            if asked.preview:
                seen = operate.forecast_one(connection, task_id, tenant=caller.tenant.id, input=value)
                anew, preview = bool(seen.anew), _preview(seen)
            else:
                done = operate.VERBS["redrive"].run(
                    connection,
                    task_id,
                    tenant=caller.tenant.id,
                    actor=caller.actor,
                    reason=asked.reason,
                    input=value,
                )
                outcome, anew = done.outcome, done.anew
            with queries.as_tenant(connection, caller.tenant.id):
                task = queries.the_task(connection, task_id)
                eta = expect.of_tasks(connection, [task]).get(task.id)
            told = answers.task_out(task, eta)
            return answers.answer(Redriven(outcome=outcome, anew=anew, preview=preview, task=told))

        return serving.with_connection(send)

    return await serving.on_thread(work)


def _members(one: Letter) -> dict[str, object]:
    at = f"{answers.ROOT}/tasks/{one.public_id}"
    return {
        "task_id": one.public_id,
        "run_id": one.run,
        "kind": one.kind,
        "version": one.version,
        "pool": one.pool,
        "priority": one.priority,
        "title": one.title or "",
        "error_class": one.error_class,
        "message": one.message,
        "reason": letters.reason_of_letter(one).key,
        "attempts_used": one.attempts_used,
        "lost_starts": one.lost_starts,
        "died_at": answers.utc(one.dead_at),
        "created_at": answers.utc(one.created_at),
        "last_attempt_slot_s": one.slot_s,
        "events": [_event(event) for event in reversed(one.events)],
        "steps": [StepLast.model_validate(step) for step in reversed(one.steps)],
        "steps_finished": one.steps_finished,
        "links": {
            "self": f"{ROOT}/{one.public_id}",
            "task": at,
            "trace": f"{at}/trace",
            "steps": f"{at}/steps",
            "redrive": f"{at}/redrive",
        },
    }


def _event(event: dict[str, object]) -> EventOut:
    at = answers.utc(datetime.fromisoformat(str(event["at"])))
    return EventOut.model_validate({**event, "at": at})


def _many(tally: Tally, preview: PreviewOut | None = None) -> RedrivenMany:
    return RedrivenMany(
        redriven=tally.done["redriven"],
        already=tally.already,
        refused=_refusals(tally),
        more=tally.more,
        preview=preview,
    )


def _preview(seen: Forecast) -> PreviewOut:
    return PreviewOut(
        tasks=seen.tasks,
        states=seen.states,
        anew=seen.anew,
        already=seen.tally.already,
        refused=_refusals(seen.tally),
        more=seen.tally.more,
        attempts=seen.attempts,
        slot_s=seen.slot_s,
        tokens=seen.tokens,
        usd=seen.usd,
        expected_slot_s=seen.expected_slot_s,
        room=seen.room,
        steps_kept=seen.steps_kept,
        steps_dropped=seen.steps_dropped,
    )


def _refusals(tally: Tally) -> list[Refusal]:
    return [Refusal(code=code, count=count, message=tally.messages[code]) for code, count in tally.refused.items()]


def _cursor(place: Place) -> str:
    return answers.cursor_of(f"{place[0].isoformat()} {place[1]}")


def _place(cursor: str) -> Place:
    """Return the place that a page gave as `next`. Raises: Invalid."""
    at, _, number = answers.text_of_cursor(cursor).partition(" ")
    try:
        place = datetime.fromisoformat(at), int(number)
        if place[0].tzinfo is None or not 0 <= place[1] < 2**63:
            raise ValueError(cursor)
    except ValueError:
        raise Invalid("cursor: not one that a page gave as `next`", field="cursor") from None
    return place

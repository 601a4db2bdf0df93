"""Lists of tasks: all of a tenant, by words or state, and those of one run. Newest first, a page at a time."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe

from harness.policy import terms
from harness.policy.errors import Invalid, NotFound
from harness.policy.lifecycle import State
from harness.store import queries, runs, search
from harness.store.database import Connection
from harness.store.queries import TaskView
from harness.web.api import answers
from harness.web.pages import opening, shell, words
from harness.web.pages.access import Viewer
from harness.web.pages.lines import lines
from harness.web.pages.shell import page

PAGE = 50
LOOKS = 4  # of some 5,000 tasks each, before a page is shown that has found nothing yet
SEARCH_MOST_CHARS = 200
Found = tuple[list[TaskView], int | None]
ORDER = tuple(dict.fromkeys(runs.LETTERS.values()))


@require_safe
@page
async def of_tenant(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    """List a tenant's tasks; what is searched for may be a task's or a run's id, too."""
    named = request.GET.get("tenant", "") if viewer.is_operator else ""
    if viewer.is_operator and not named:
        return HttpResponseRedirect("/operations/")
    tenant = await opening.tenant_of(viewer, lambda connection: queries.tenant_named(connection, named))
    q = request.GET.get("q", "").strip()[:SEARCH_MOST_CHARS]
    if (asked := _uuid(q)) is not None:
        found = await shell.reading(lambda connection: _page_of(connection, viewer, asked), tenant=tenant)
        return HttpResponseRedirect(found)
    try:
        wanted = terms.of_query(q) if q else []
    except Invalid as error:
        return _answer(request, viewer, [], None, heading="Tasks", wrong=shell.sentence(error.message), q=q)

    def read(connection: Connection) -> Found:
        look_for = partial(search.tasks_of_terms, terms=wanted) if wanted else queries.tasks
        return _found(partial(look_for, connection, tenant=tenant, state=_state(request), most=PAGE), _before(request))

    tasks, following = await shell.reading(read, tenant=tenant)
    return _answer(request, viewer, tasks, following, heading="Tasks", q=q)


@require_safe
@page
async def of_run(request: HttpRequest, viewer: Viewer, run_id: uuid.UUID) -> HttpResponseBase:
    """List a run's tasks."""
    opening.may_open_run(viewer, run_id)
    tenant = await opening.tenant_of_run(viewer, run_id)

    def read(connection: Connection) -> tuple[str, list[TaskView], int | None]:
        run = queries.run(connection, run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        look_for = partial(queries.tasks, connection, tenant=tenant, run=run_id, state=_state(request), most=PAGE)
        return run.name, *_found(look_for, _before(request))

    name, tasks, following = await shell.reading(read, tenant=tenant)
    return _answer(request, viewer, tasks, following, heading=name or "Tasks of a run", run=viewer.run_path(run_id))


def _answer(
    request: HttpRequest,
    viewer: Viewer,
    tasks: list[TaskView],
    following: int | None,
    *,
    heading: str,
    wrong: str = "",
    q: str = "",
    run: str = "",
) -> HttpResponseBase:
    state = _state(request)
    kept = {name: value for name in ("q", "tenant") if (value := request.GET.get(name, ""))}
    facts: dict[str, Any] = {
        "heading": heading,
        "run": run,
        "q": q,
        "kept": kept,
        "wrong": wrong,
        "lines": lines(tasks, viewer, now=datetime.now(UTC)),
        "states": [
            {
                "said": said,
                "current": one == state,
                "path": f"?{urlencode(kept | ({'state': str(one)} if one else {}))}",
            }
            for one, said in [(None, "all"), *((one, words.standing_of(one, 2, 1)) for one in ORDER)]
        ],
        "older": ""
        if following is None
        else "?" + urlencode(kept | ({"state": state} if state else {}) | {"cursor": answers.cursor(following)}),
        "search_most": SEARCH_MOST_CHARS,
    }
    return shell.answer("harness/pages/tasks.html", facts, viewer, title=heading, status=422 if wrong else 200)


def _found(look_for: Callable[..., Found], before: int) -> Found:
    """Look on while nothing is found: what is rare may stand behind thousands of others."""
    for _ in range(LOOKS):
        tasks, following = look_for(before=before)
        if tasks or following is None:
            break
        before = following
    return tasks, following


def _page_of(connection: Connection, viewer: Viewer, asked: uuid.UUID) -> str:
    """Where the task or run of an id is. Raises: NotFound."""
    if queries.task(connection, asked) is not None:
        return viewer.task_path(asked)
    if queries.run_and_tenant(connection, asked) is not None:
        return viewer.run_path(asked)
    raise NotFound(f"there is no task and no run {asked}")


def _state(request: HttpRequest) -> State | None:
    asked = request.GET.get("state", "")
    return State(asked) if asked in set(State) else None


def _before(request: HttpRequest) -> int:
    asked = request.GET.get("cursor", "")
    return answers.position(asked) if asked else queries.LAST_ID


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None

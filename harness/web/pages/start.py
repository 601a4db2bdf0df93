"""A tenant's start page: what runs and waits, what wants a decision, runs and tasks, the budget; live.

The tasks listed are those that were the newest when the page was opened: they change in place, and newer ones are told
in one line above, so that no row moves under a finger.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_safe

from harness.policy.lifecycle import State
from harness.store import approvals, money, queries, runs
from harness.store.database import Connection
from harness.web.api import answers
from harness.web.pages import live, marks, opening, shell, start_told, times
from harness.web.pages.access import Viewer
from harness.web.pages.lines import lines
from harness.web.pages.live import Look
from harness.web.pages.shell import Fragment, page
from harness.web.pages.words import counted

FRAGMENTS = (
    Fragment(id="state", template="harness/pages/run_state.html", role="status"),
    Fragment(id="answers", template="harness/pages/run_answers.html"),
    Fragment(id="decisions", template="harness/pages/start_decisions.html"),
    Fragment(id="runs", template="harness/pages/start_runs.html"),
    Fragment(id="recent", template="harness/pages/start_recent.html"),
)
EVERY_S = 1.0
RELOAD_S = 15
DECISIONS_MOST = 5
RUNS_MOST = 6
TASKS_MOST = 10


@require_safe
@page
async def show(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    """Show a tenant's work. Operators name the tenant; without one they have the operations page."""
    named = request.GET.get("tenant", "")
    if viewer.is_operator and not named:
        return HttpResponseRedirect("/operations/")
    facts = (await _look(viewer, await _tenant(viewer, named), named, None)).facts
    asked = {"until": facts["until"]} | ({"tenant": named} if viewer.is_operator else {})
    return shell.answer(
        "harness/pages/start.html",
        facts,
        viewer,
        title=str(facts["title"]),
        fragments=FRAGMENTS,
        live=f"{viewer.root}/live?{urlencode(asked)}",
        reload_s=RELOAD_S,
    )


@require_safe
@page
async def stream(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    """Keep a start page up to date."""
    until, named = request.GET.get("until", ""), request.GET.get("tenant", "")
    tenant = await _tenant(viewer, named)
    look = partial(_look, viewer, tenant, named, answers.position(until) if until else None)
    await look()  # what is wrong is said before the stream begins
    return live.stream(request, look, FRAGMENTS, every_s=EVERY_S)


async def _tenant(viewer: Viewer, named: str) -> int:
    """As which tenant the page is read: a login's own, whatever is named. Raises: NotFound."""
    return await opening.tenant_of(viewer, lambda connection: queries.tenant_named(connection, named))


async def _look(viewer: Viewer, tenant: int, named: str, until: int | None) -> Look:
    def read(connection: Connection) -> Look:
        facts = _facts(connection, viewer, tenant, named if viewer.is_operator else viewer.tenant_name, until)
        return Look(facts=facts, title=f"{facts['title']} · Harness")

    return await shell.reading(read, tenant=tenant)


def _facts(connection: Connection, viewer: Viewer, tenant: int, name: str, until: int | None) -> dict[str, Any]:
    now = datetime.now(UTC)
    work = runs.now(connection, tenant)
    asked = approvals.page(connection, tenant, most=DECISIONS_MOST)
    state, sentence = start_told.sentence(work, len(asked), most=DECISIONS_MOST)
    today = now.date()
    newest, _ = queries.tasks(connection, tenant=tenant, most=TASKS_MOST)
    if until is None:
        until = newest[0].id if newest else 0
    newer = sum(task.id > until for task in newest)
    listed = newest if not newer else queries.tasks(connection, tenant=tenant, before=until + 1, most=TASKS_MOST)[0]
    whose = f"?{urlencode({'tenant': name})}" if viewer.is_operator else ""
    return {
        "name": name,
        "title": sentence,
        "until": answers.cursor(until),
        "whose": name if viewer.is_operator else "",
        "here": f"{viewer.root}/{whose}",
        "all": f"{viewer.root}/tasks/{whose}",
        "failed": f"{viewer.root}/tasks/{whose}{'&' if whose else '?'}state={State.FAILED_TERMINAL}",
        "mark": marks.mark(state),
        "sentence": sentence,
        "buttons": [],
        "answers": [
            *([start_told.running(work)] if asked and work.running else []),
            start_told.waiting(work, runs.reasons(connection, tenant), now),
            start_told.done(work),
            start_told.budget(
                money.of_tenant(connection, tenant), money.usage(connection, tenant, first=today, last=today)
            ),
        ],
        "decisions": [
            {
                "path": viewer.task_path(one.task_id),
                "prompt": one.approval.prompt,
                "name": one.title or one.kind,
                "since": times.clock(one.approval.asked_at, now),
                "until": times.clock(one.approval.deadline, now) if one.approval.deadline else "",
            }
            for one in asked
        ],
        "runs": [
            {
                "path": viewer.run_path(one.public_id),
                "mark": marks.mark(_state_of(one)),
                "name": one.name or f"Run of {counted(one.size, 'task')}",
                "told": _told(one),
                "at": times.stamp(one.created_at, now),
            }
            for one in runs.recent(connection, tenant, most=RUNS_MOST)
        ],
        "newer": newer if newer < TASKS_MOST else f"{TASKS_MOST} or more",
        "lines": lines(listed, viewer, now=now),
    }


def _state_of(run: runs.RunLine) -> State:
    if run.ended < run.looked or run.looked == runs.COUNTED_MOST < run.size:
        return State.RUNNING if run.ended else State.QUEUED
    return State.FAILED_TERMINAL if run.failed else State.SUCCEEDED


def _told(run: runs.RunLine) -> str:
    of = "" if run.looked < runs.COUNTED_MOST else "the first "
    said = f"{run.ended:,} of {of}{counted(run.looked, 'task')} ended"
    return said + (f", {run.failed:,} failed" if run.failed else "")

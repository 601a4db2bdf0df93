"""A run's page: how far it is, its picture, what failed and what is slowest; live, and whole without JavaScript."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_POST, require_safe

from harness.engine import operate
from harness.policy.errors import NotFound, Unavailable
from harness.policy.lifecycle import State
from harness.store import queries, staff
from harness.store.database import Connection
from harness.web.pages import forms, live, opening, run_seen, shared, shell, times
from harness.web.pages.access import NotYours, Viewer
from harness.web.pages.live import Look
from harness.web.pages.shared import PageLink
from harness.web.pages.shell import Fragment, page
from harness.web.service import service

FRAGMENTS = (
    Fragment(id="state", template="harness/pages/run_state.html", role="status"),
    Fragment(id="answers", template="harness/pages/run_answers.html"),
    Fragment(id="picture", template="harness/pages/run_picture.html"),
    Fragment(id="failures", template="harness/pages/run_failures.html"),
    Fragment(id="slowest", template="harness/pages/run_slowest.html"),
    Fragment(id="facts", template="harness/pages/run_facts.html"),
)
EVERY_S = 0.4  # between looks: a change is on the page within half a second
EVERY_LARGE_S = 2.0  # of a run whose look costs some 10 ms
RELOAD_S = 10
WITHIN_S = 10.0  # as the API's verbs over runs: what is left is done by the next press


@require_safe
@page
async def show(request: HttpRequest, viewer: Viewer, run_id: uuid.UUID) -> HttpResponseBase:
    """Show a run."""
    facts = (await _look(viewer, await _tenant(viewer, run_id), run_id)).facts
    return shell.answer(
        "harness/pages/run.html",
        facts,
        viewer,
        title=str(facts["title"]),
        fragments=FRAGMENTS,
        live="" if facts["over"] else f"{facts['path']}live",
        reload_s=None if facts["over"] else RELOAD_S,
        said=request.GET.get(shell.SAID, ""),
    )


@require_safe
@page
async def stream(request: HttpRequest, viewer: Viewer, run_id: uuid.UUID) -> HttpResponseBase:
    """Keep a run's page up to date."""
    tenant = await _tenant(viewer, run_id)
    first = await _look(viewer, tenant, run_id)
    return live.stream(
        request,
        partial(_look, viewer, tenant, run_id),
        FRAGMENTS,
        every_s=EVERY_LARGE_S if first.facts["many"] else EVERY_S,
    )


@require_POST
@page
async def act(request: HttpRequest, viewer: Viewer, run_id: uuid.UUID, verb: str) -> HttpResponseBase:
    """Do what a button says to all tasks of a run that it concerns, once."""
    tenant = await _tenant(viewer, run_id)
    if not viewer.may_act:
        raise NotYours("you may look at this run, not act on it")
    path = viewer.run_path(run_id)
    taken = await forms.take(viewer, request, begins=f"{verb} run {run_id} ", now=datetime.now(UTC))
    if taken is None:
        return shell.back(path, "acted")
    asking = None if viewer.is_operator else tenant
    try:
        said = await _done(viewer, partial(_act, verb, run_id, asking, viewer.actor))
    except Unavailable:
        await forms.give_back(taken)
        raise
    return shell.back(path, said)


@page
async def share(request: HttpRequest, viewer: Viewer, run_id: uuid.UUID) -> HttpResponseBase:
    """A link to the run's page and its tasks, for a day. Making one twice does no harm."""
    tenant = await _tenant(viewer, run_id)
    if not viewer.may_act or viewer.link is not None:
        raise NotYours("you may look at this run, and not share it")
    run = await shell.reading(lambda connection: queries.run(connection, run_id), tenant=tenant)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    now, purpose = datetime.now(UTC), f"share run {run_id}"
    facts: dict[str, object] = {
        "what": "run",
        "name": run.name or "Run",
        "back": viewer.run_path(run_id),
        "token": forms.token(viewer, purpose, now=now),
        "until": times.clock(now + timedelta(seconds=shared.LIFE_S), now),
    }
    if request.method == "POST":
        forms.read(viewer, request.POST.get(forms.FIELD, ""), begins=purpose, now=now)
        acts = request.POST.get("acts") == "yes"
        link = PageLink(tenant=tenant, what="run", public_id=run_id, acts=acts, label=f"{viewer.name}’s guest"[:60])
        address = shared.address(shared.made(link, now=now), link, base=request.build_absolute_uri("/"))
        facts |= {"address": address, "acts": acts}
    return shell.answer("harness/pages/share.html", facts, viewer, title=f"Share · {run.name or 'Run'}")


async def _tenant(viewer: Viewer, run_id: uuid.UUID) -> int:
    """As which tenant the run is read. Raises: NotFound."""
    opening.may_open_run(viewer, run_id)
    return await opening.tenant_of_run(viewer, run_id)


async def _look(viewer: Viewer, tenant: int, run_id: uuid.UUID) -> Look:
    def read(connection: Connection) -> Look:
        facts = run_seen.facts(connection, viewer, tenant, run_id)
        return Look(facts=facts, title=f"{facts['title']} · Harness", over=bool(facts["over"]))

    return await shell.reading(read, tenant=tenant)


async def _done(viewer: Viewer, verb: Callable[[Connection], str]) -> str:
    """Operators act under their own role, whosever the run is; everybody else as their tenant."""
    serving = service()
    if not viewer.is_operator:
        return await serving.on_thread(lambda: serving.with_connection(verb))

    def as_operator() -> str:
        with staff.own_connection(None) as connection:
            return verb(connection)

    return await serving.on_thread(as_operator)


def _act(verb: str, run_id: uuid.UUID, tenant: int | None, actor: str, connection: Connection) -> str:
    """Return the key of what is said of it (words.OUTCOMES)."""
    if verb in ("pause", "resume"):
        scope = operate.pause_scope if verb == "pause" else operate.resume_scope
        outcome = scope(connection, "run", str(run_id), tenant=tenant, actor=actor).outcome
        return outcome if outcome in ("already", "held") else f"run_{outcome}"
    state = State.FAILED_TERMINAL if verb == "redrive" else None
    where = operate.Filter(run=run_id, state=state)
    tally = operate.bulk(connection, verb, where, tenant=tenant, actor=actor, within_s=WITHIN_S)
    if tally.more:
        return "run_part"
    return f"run_{verb}" if tally.done.total() else "already"

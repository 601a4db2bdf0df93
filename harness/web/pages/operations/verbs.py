"""What an operator can do from the operations page: pause, resume, override a limit, drain a worker. A page each.

Each asks for a reason, acts once however often its form is sent, and is done by engine.operate, which judges what was
said; what it refuses is shown beside the field. A page of its own, so that no reload eats what somebody writes.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from harness.engine import operate
from harness.policy.errors import HarnessError, Invalid, Unavailable
from harness.policy.holds import OPERATOR
from harness.policy.resources import FIELDS, read
from harness.policy.scopes import PRIORITY_KEYS, Scope
from harness.policy.settings import SYSTEM
from harness.store import staff
from harness.store.database import Connection
from harness.web.pages import forms, words
from harness.web.pages.access import NotYours, Viewer
from harness.web.pages.operations import seen
from harness.web.pages.operations.seen import Seen
from harness.web.pages.shell import answer, back, operators, sentence
from harness.web.service import service

PATH = "/operations/"
RUNS_LISTED = 200  # workers that are offered


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """A field of a form. `kind`: text, choice, moment, tick; `options`: (value, words); `wrong`: why it was refused."""

    name: str
    label: str
    kind: str = "text"
    value: str = ""
    options: tuple[tuple[str, str], ...] = ()
    help: str = ""
    wrong: str = ""
    required: bool = False
    half: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """A verb's page. `right`: the permission that it needs; `act` does it and returns what is said of it.

    `nothing`: why there is nothing to do, of a look; "" when there is. `more`: an address and what it is for.
    """

    name: str
    right: str
    title: str
    what: str
    button: str
    fields: Callable[[Seen, Mapping[str, str]], list[Field]]
    act: Callable[[Connection, str, Mapping[str, str]], str]
    nothing: Callable[[Seen], str] = lambda _: ""
    more: tuple[str, str] | None = None


def may(viewer: Viewer) -> frozenset[str]:
    """Return the verbs that a viewer may use."""
    return frozenset(name for name, verb in VERBS.items() if verb.right in viewer.rights)


@operators
async def pause(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    """Pause a pool, a priority, a tenant or a run."""
    return await _verb(request, viewer, VERBS["pause"])


@operators
async def resume(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    """Lift a pause of operators."""
    return await _verb(request, viewer, VERBS["resume"])


@operators
async def override(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    """Override a field of a resource."""
    return await _verb(request, viewer, VERBS["override"])


@operators
async def drain(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    """Let a worker process go."""
    return await _verb(request, viewer, VERBS["drain"])


async def _verb(request: HttpRequest, viewer: Viewer, verb: Verb) -> HttpResponse:
    if verb.right not in viewer.rights:
        raise NotYours(f"your login may look at this page, but not {verb.title.lower()}")
    now = datetime.now(UTC)
    if request.method != "POST":
        found = await seen.look()
        token = forms.token(viewer, f"operations {verb.name} {uuid.uuid4().hex}", now=now)
        return _form(viewer, verb, found, request.GET.dict(), token=token)
    said = {name: value.strip() for name, value in request.POST.dict().items()}
    # 1. Take the form's token: whoever sends it again is told so
    taken = await forms.take(viewer, request, begins=f"operations {verb.name} ", now=now)
    if taken is None:
        return back(PATH, "acted")
    # 2. Do it; what is refused can be sent again
    try:
        outcome = await service().on_thread(lambda: _done(verb, viewer.actor, said))
    except Unavailable:
        await forms.give_back(taken)
        raise
    except HarnessError as error:
        await forms.give_back(taken)
        return _form(viewer, verb, await seen.look(), said, token=request.POST[forms.FIELD], wrong=error)
    # 3. Show how all stands now
    seen.forget()
    return back(PATH, outcome)


def _done(verb: Verb, actor: str, said: Mapping[str, str]) -> str:
    with staff.own_connection(None) as connection:
        return verb.act(connection, actor, said)


def _form(
    viewer: Viewer,
    verb: Verb,
    found: Seen,
    said: Mapping[str, str],
    *,
    token: str,
    wrong: HarnessError | None = None,
) -> HttpResponse:
    fields = [replace(one, value=said.get(one.name, one.value)) for one in verb.fields(found, said)]
    fields.append(Field(name="until", label="Until (UTC)", kind="moment", value=said.get("until", ""), half=True))
    if verb.name not in ("pause", "override"):
        fields.pop()
    fields.append(
        Field(
            name="reason",
            label="Reason, shown to everyone",
            value=said.get("reason", ""),
            help="A ticket or one sentence. It is kept in the audit, with your name.",
            required=True,
        )
    )
    at = None if wrong is None else next((one.name for one in fields if one.name == wrong.field), None)
    if wrong is not None and at is not None:
        fields = [replace(one, wrong=sentence(wrong.message)) if one.name == at else one for one in fields]
    facts = {
        "verb": verb,
        "fields": fields,
        "nothing": verb.nothing(found),
        "problem": sentence(wrong.message) if wrong is not None and at is None else "",
        "once_field": forms.FIELD,
        "once": token,
        "reason_most": operate.REASON_MAX_CHARS,
    }
    return answer(
        "harness/pages/operations/verb.html",
        facts,
        viewer,
        title=f"{verb.title} · Operations",
        status=HTTPStatus.OK if wrong is None else HTTPStatus.UNPROCESSABLE_ENTITY,
    )


def _pause_fields(found: Seen, said: Mapping[str, str]) -> list[Field]:
    pools = [name for name in settings.HARNESS_TOPOLOGY.pools if name != SYSTEM]
    return [
        Field(
            name="pool",
            label="Pool",
            kind="choice",
            options=(("", "any"), *((name, name) for name in pools)),
            half=True,
        ),
        Field(
            name="priority",
            label="Priority",
            kind="choice",
            options=(("", "all"), *((key, words.PRIORITIES[n]) for n, key in enumerate(PRIORITY_KEYS))),
            half=True,
        ),
        Field(name="tenant", label="Or a tenant, by its name", half=True),
        Field(name="run", label="Or a run, by its id", half=True),
        Field(name="force", label="P0 too, which people wait for right now", kind="tick"),
    ]


def _pause(connection: Connection, actor: str, said: Mapping[str, str]) -> str:
    scope, named = _scope(said)
    done = operate.pause_scope(
        connection,
        scope,
        named,
        tenant=None,
        actor=actor,
        reason=_reason(said),
        until=_until(said),
        force=bool(said.get("force")),
    )
    return done.outcome


def _resume_fields(found: Seen, said: Mapping[str, str]) -> list[Field]:
    options = tuple(
        (f"{one.scope} {one.key}", f"{_named(one.scope, one.key)}: {words.person(one.author)}, “{one.reason}”")
        for one in found.pauses
        if one.source == OPERATOR
    )
    return [Field(name="pause", label="What is paused", kind="choice", options=options, required=True)]


def _resume(connection: Connection, actor: str, said: Mapping[str, str]) -> str:
    scope, _, named = said.get("pause", "").partition(" ")
    # An unknown scope is refused by the verb.
    done = operate.resume_scope(connection, scope, named, tenant=None, actor=actor, reason=_reason(said))  # type: ignore[arg-type]
    return done.outcome


def _nothing_paused(found: Seen) -> str:
    if any(one.source == OPERATOR for one in found.pauses):
        return ""
    others = len(found.pauses)
    if not others:
        return "Nothing is paused."
    return f"No operator has paused anything; {words.counted(others, 'pause')} of tenants or of pressure in force."


def _override_fields(found: Seen, said: Mapping[str, str]) -> list[Field]:
    named = said.get("resource", "")
    chosen = named if named in found.live else next(iter(found.live), "")
    now = found.live[chosen].resource.capacity if chosen else ""
    return [
        Field(
            name="resource",
            label="Resource",
            kind="choice",
            value=chosen,
            options=tuple((name, name) for name in found.live),
            half=True,
        ),
        Field(
            name="field",
            label="What of it",
            kind="choice",
            value="capacity",
            options=tuple((name, name.replace("_", " ")) for name in FIELDS),
            half=True,
        ),
        Field(
            name="value",
            label="Value",
            value=str(now),
            help="A number, on or off, a limiter’s name, or none: no such limit. capacity 0: nothing uses it.",
            required=True,
            half=True,
        ),
    ]


def _override(connection: Connection, actor: str, said: Mapping[str, str]) -> str:
    done = operate.set_resource(
        connection,
        said.get("resource", ""),
        {said.get("field", ""): read(said.get("value", ""))},
        actor=actor,
        reason=said.get("reason", ""),
        until=_until(said),
    )
    return "overridden" if done.after else "already"


def _drain_fields(found: Seen, said: Mapping[str, str]) -> list[Field]:
    options = tuple(
        (
            str(one.session),
            f"{one.host}:{one.pid}, {'+'.join(sorted(one.pools))}, {words.counted(one.held, 'slot')} in use",
        )
        for one in found.now.sessions
        if not one.draining
    )
    return [Field(name="worker", label="Worker", kind="choice", options=options[:RUNS_LISTED], required=True)]


def _drain(connection: Connection, actor: str, said: Mapping[str, str]) -> str:
    try:
        session = uuid.UUID(said.get("worker", ""))
    except ValueError:
        raise Invalid("worker: choose one of those that live", field="worker") from None
    return operate.drain_worker(connection, session, actor=actor, reason=said.get("reason", "")).outcome


def _nobody_lives(found: Seen) -> str:
    return "" if any(not one.draining for one in found.now.sessions) else "No worker lives that isn’t going already."


def _scope(said: Mapping[str, str]) -> tuple[Scope, str]:
    """Return what is meant by the fields that are filled in. Raises: Invalid."""
    given = {name: said[name] for name in ("pool", "priority", "tenant", "run") if said.get(name)}
    match given:
        case {"tenant": tenant} if len(given) == 1:
            return "tenant", tenant
        case {"run": run} if len(given) == 1:
            return "run", run
        case {"pool": pool, "priority": priority} if len(given) == 2:
            return "pool_priority", f"{pool}.{priority}"
        case {"pool": pool} if len(given) == 1:
            return "pool", pool
        case {"priority": priority} if len(given) == 1:
            return "priority", priority
    raise Invalid(
        "say what to pause: a pool, a priority, both, or a tenant or a run alone",
        field="run" if "run" in given else "tenant" if "tenant" in given else "pool",
    )


def _named(scope: str, key: str) -> str:
    if scope == "pool_priority":
        pool, _, priority = key.rpartition(".")
        return f"{priority.upper()} of {pool}"
    return key.upper() if scope == "priority" else f"{scope} {key}"


def _reason(said: Mapping[str, str]) -> str:
    """Return the reason, which the verbs on scopes would do without. Raises: Invalid."""
    if not said.get("reason"):
        raise Invalid("reason: say why; everybody who waits reads it", field="reason")
    return said["reason"]


def _until(said: Mapping[str, str]) -> datetime | None:
    text = said.get("until", "")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid("until: a moment like 2030-01-31T06:00, in UTC; or leave it out", field="until") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


VERBS: Mapping[str, Verb] = {
    one.name: one
    for one in (
        Verb(
            name="pause",
            right="store.add_pause",
            title="Pause",
            what="Nothing of it starts until somebody resumes it, or until a moment. What runs goes on, and no task is "
            "lost or loses its place.",
            button="Pause",
            fields=_pause_fields,
            act=_pause,
        ),
        Verb(
            name="resume",
            right="store.delete_pause",
            title="Resume",
            what="What has waited begins again little by little, within 20 seconds.",
            button="Resume",
            fields=_resume_fields,
            act=_resume,
            nothing=_nothing_paused,
        ),
        Verb(
            name="override",
            right="store.add_override",
            title="Override a limit",
            what="It acts within seconds, without a restart. What is under way goes on; below what is in use nothing "
            "more starts until enough has ended.",
            button="Override",
            fields=_override_fields,
            act=_override,
            more=("/admin/store/override/", "See and clear what is overridden"),
        ),
        Verb(
            name="drain",
            right="store.operate",
            title="Drain a worker",
            what="It takes nothing new, finishes what it runs, however long that takes, and ends. A supervisor may "
            "start another in its place.",
            button="Drain",
            fields=_drain_fields,
            act=_drain,
            nothing=_nobody_lives,
        ),
    )
}

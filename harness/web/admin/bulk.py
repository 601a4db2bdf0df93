"""Verbs on many tasks from the list: those that were ticked, or all that match the list's filter.

First a page that counts and asks for a reason, then the act, once, in bounded batches; its answer counts what was done
and what was refused, by reason. A person with one tenant acts on that tenant's tasks alone: by the engine's functions,
and by row-level security below them.
"""

import contextlib
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from harness.engine import operate
from harness.engine.operate import Filter, Tally
from harness.policy.errors import Conflict, HarnessError, Invalid, NotFound
from harness.policy.lifecycle import State
from harness.store import staff
from harness.store.models import Run, Task, Tenant
from harness.web.admin import once, verbs
from harness.web.admin.marks import mark
from harness.web.admin.scope import person_of, scope_of

TICKED_MOST = 200
WITHIN_S = 8.0  # of one answer; what is left goes on from there
FILTERS = ("state", "tenant", "priority", "pool", "kind", "q")  # the list's own names


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a bulk page is about. `after`: where an earlier, broken-off act got to."""

    verb: str
    ticked: tuple[int, ...]
    filter: Filter
    said: tuple[tuple[str, str], ...]
    after: int

    def query(self) -> str:
        """Return it as a query string, in one order: the form's token is bound to it."""
        pairs = [("verb", self.verb), *self.said, *(("task", str(task)) for task in self.ticked)]
        return urlencode([*pairs, ("after", str(self.after))] if self.after else pairs)


def offered(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the verbs that the list offers to this person: name and label."""
    if not request.user.has_perm(verbs.PERMISSION):
        return []
    return [(name, verbs.label_of(name)) for name in operate.VERBS]


def view(request: HttpRequest, rows: QuerySet[Task], context: dict[str, Any]) -> HttpResponse:
    """Count and ask (GET), or act (POST), for who may act. `rows`: the tasks that the person may see."""
    back = reverse("admin:store_task_changelist")
    try:
        asked = _asked(request, rows)
        counted = _counted(request, asked, rows)
    except HarnessError as error:
        messages.error(request, error.message)
        return HttpResponseRedirect(back)
    back += f"?{urlencode(asked.said)}" if asked.said else ""
    verb = operate.VERBS[asked.verb]
    purpose = f"bulk {asked.query()}"
    form = _form(verb)(request.POST or None)
    context |= {"back": back, "mark": mark(_after(asked.verb))}
    if request.method == "POST" and form.is_valid():
        fresh = once.answered(request, purpose, form)
        if fresh:
            return _done(request, asked, form.cleaned_data, context)
        if fresh is not None:
            return HttpResponseRedirect(back)
    context |= {
        "title": f"{verbs.label_of(asked.verb)} {counted.text}?" if counted.matching else "There is nothing to do",
        "over": "unfinished" if verb.over == "live" else "ended",
        "verb": verbs.label_of(asked.verb),
        "help": verb.help,
        "count": counted.text,
        "states": [(mark(state), state, n) for state, n in sorted(counted.by_state.items())],
        "matching": counted.matching,
        "said": _in_words(asked),
        "form": form,
        "once_field": once.FIELD,
        "once": once.token(request, purpose),
    }
    return TemplateResponse(request, "harness/admin/bulk.html", context)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Counted:
    matching: int
    more: bool
    by_state: Mapping[str, int]

    @property
    def text(self) -> str:
        number = f"more than {self.matching:,}" if self.more else f"{self.matching:,}"
        return f"{number} task" + ("" if self.matching == 1 and not self.more else "s")


def _asked(request: HttpRequest, rows: QuerySet[Task]) -> Asked:
    """What the address says. Raises: Invalid, NotFound."""
    given = request.GET
    verb = given.get("verb") or ""
    if verb not in operate.VERBS:
        raise Invalid("Choose what to do.", field="verb")
    ticked = tuple(sorted({int(task) for task in given.getlist("task") if is_id(task)}))[:TICKED_MOST]
    if given.get("which") == "ticked" and not ticked:
        raise Invalid("Tick the tasks first.", field="task")
    said = tuple((name, given[name].strip()) for name in FILTERS if (given.get(name) or "").strip())
    after = given.get("after") or ""
    return Asked(
        verb=verb,
        ticked=ticked,
        filter=Filter() if ticked else _filter(request, dict(said)),
        said=said,
        after=int(after) if is_id(after) else 0,
    )


def is_id(text: str) -> bool:
    """Whether a text can be a task's id.

    >>> is_id("17"), is_id("-1"), is_id("9" * 30)
    (True, False, False)
    """
    return text.isascii() and text.isdigit() and len(text) <= 18


def _filter(request: HttpRequest, said: Mapping[str, str]) -> Filter:
    """The list's filter as the engine takes it. Raises: Invalid for what it can't take: a verb must not hit more."""
    scope = scope_of(request)
    tenant: int | None = scope.tenant
    if scope.everything and "tenant" in said:
        number = said["tenant"]
        tenant = int(number) if is_id(number) else None
        if tenant is None or not Tenant.objects.filter(id=min(tenant, 2**31 - 1)).exists():
            raise NotFound("There is no such tenant.")
    run: uuid.UUID | None = None
    if "q" in said:
        found = None
        with contextlib.suppress(ValueError):
            found = Run.objects.filter(public_id=uuid.UUID(said["q"])).values_list("public_id", flat=True).first()
        if found is None:
            raise Invalid("All that match are found by filters, or by a run's id; for another search tick the tasks.")
        run = found
    priority = said.get("priority")
    if priority is not None and priority not in {"0", "1", "2", "3"}:
        raise Invalid("priority: 0 to 3", field="priority")
    state = said.get("state")
    if state is not None and state not in set(State):
        raise Invalid("There is no such state.", field="state")
    return Filter(
        tenant=tenant if scope.everything else None,  # its own, for who has one
        run=run,
        state=None if state is None else State(state),
        kind=said.get("kind"),
        pool=said.get("pool"),
        priority=None if priority is None else int(priority),
    )


def _counted(request: HttpRequest, asked: Asked, rows: QuerySet[Task]) -> _Counted:
    """Count what the verb would look at. Raises: Invalid, NotFound."""
    if asked.ticked:
        states = Counter(rows.filter(id__in=asked.ticked).values_list("state", flat=True))
        return _Counted(matching=states.total(), more=False, by_state=dict(states))
    tenant = scope_of(request).tenant
    with staff.own_connection(tenant) as connection:
        seen = operate.preview(connection, asked.verb, asked.filter, tenant=tenant)
    return _Counted(matching=seen.matching, more=seen.more, by_state=seen.by_state)


def _done(request: HttpRequest, asked: Asked, said: Mapping[str, Any], context: dict[str, Any]) -> HttpResponse:
    try:
        result = _each(request, asked, said) if asked.ticked else _all(request, asked, said)
    except HarnessError as error:
        messages.error(request, error.message)
        return HttpResponseRedirect(context["back"])
    count = result.done.total()
    rest = None
    if result.next is not None:
        going_on = Asked(verb=asked.verb, ticked=(), filter=asked.filter, said=asked.said, after=result.next)
        rest = f"{reverse('admin:store_task_bulk')}?{going_on.query()}"
    context |= {
        "title": f"{verbs.label_of(asked.verb)}: {count:,} task{'' if count == 1 else 's'} done",
        "reason": said["reason"],
        "done": [
            *((verbs.OUTCOMES.get(outcome, outcome), n) for outcome, n in result.done.most_common()),
            (verbs.OUTCOMES["already"], result.already),
        ],
        "refused": [(n, why) for why, n in result.reasons().items()],
        "nothing": not result.matched,
        "stopped": result.stopped,
        "again_url": rest,
    }
    return TemplateResponse(request, "harness/admin/done.html", context)


def _all(request: HttpRequest, asked: Asked, said: Mapping[str, Any]) -> Tally:
    tenant = scope_of(request).tenant
    with staff.own_connection(tenant) as connection:
        return operate.bulk(
            connection,
            asked.verb,
            asked.filter,
            tenant=tenant,
            actor=person_of(request),
            reason=said["reason"],
            priority=said.get("priority"),
            after=asked.after,
            within_s=WITHIN_S,
        )


def _each(request: HttpRequest, asked: Asked, said: Mapping[str, Any]) -> Tally:
    """Do the verb to what was ticked, one task after the other: at most TICKED_MOST."""
    result = Tally(verb=asked.verb)
    tenant = scope_of(request).tenant
    public = dict(Task.objects.filter(id__in=asked.ticked).values_list("id", "public_id"))
    arguments = {"tenant": tenant, "actor": person_of(request), "reason": said["reason"]}
    if "priority" in said:
        arguments["priority"] = said["priority"]
    with staff.own_connection(tenant) as connection:
        for task in asked.ticked:
            result.matched += 1
            if task not in public:
                result.refuse("it is gone")
                continue
            try:
                done = operate.VERBS[asked.verb].run(connection, public[task], **arguments)
            except (Conflict, NotFound) as error:
                result.refuse(error.message.removeprefix("the task "))
            except HarnessError as error:
                result.refuse(error.message)
            else:
                if done.outcome == "already":
                    result.already += 1
                else:
                    result.done[done.outcome] += 1
    return result


def _form(verb: operate.Verb) -> type[forms.Form]:
    """A reason, and what the verb needs of a person; another input is for one task alone."""
    form = verbs.form_of(verb)
    fields = {name: field for name, field in form.base_fields.items() if name in {"reason", "priority"}}
    return type("BulkForm", (forms.Form,), fields)


def _in_words(asked: Asked) -> Sequence[str]:
    if asked.ticked:
        return ("those that were ticked",)
    words = []
    for name, value in asked.said:
        shown: object = value
        if name == "tenant":
            shown = Tenant.objects.filter(id=value).values_list("name", flat=True).first() or value
        if name == "priority":
            shown = f"P{value}"
        words.append(f"{'run' if name == 'q' else name} {shown}")
    return words


def _after(verb: str) -> str:
    return {"cancel": "cancelled", "pause": "paused"}.get(verb, "queued")

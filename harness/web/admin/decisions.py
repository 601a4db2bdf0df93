"""What a task asks people, on its page, and the pages where an operator decides it or asks again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from harness.engine import approve
from harness.policy.approvals import NOTE_MOST_CHARS, waits
from harness.policy.errors import HarnessError
from harness.store import staff
from harness.store.models import Approval, LeaseMember, Task
from harness.web.admin import line, once
from harness.web.admin.marks import mark
from harness.web.admin.scope import person_of, scope_of
from harness.web.admin.verbs import PERMISSION

SHOWN = 20  # questions of a task, the newest ones


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb on a question, as its page says it."""

    label: str
    help: str
    run: Callable[..., approve.Answered]


VERBS: Mapping[str, Verb] = {
    "approve": Verb(
        "Approve", "The task goes on with this answer when a slot is free. It is decided once.", approve.approve
    ),
    "deny": Verb("Deny", "A no ends the task, or is the answer, as its kind wants. It is decided once.", approve.deny),
    "reask": Verb("Ask again", "The task waits for a decision anew, with its whole time.", approve.reask),
}
OUTCOMES = {
    "approved": "It goes on when a slot is free.",
    "denied": "The task is cancelled.",
    "answered": "Its kind gets the no as an answer.",
    "reasked": "It waits for a decision again.",
}


def offered(request: HttpRequest, task: Task, *, released: bool) -> list[dict[str, str]]:
    """Return the verbs that this person may do to what the task asks now, as links."""
    if not request.user.has_perm(PERMISSION):
        return []
    return [
        {
            "label": VERBS[name].label,
            "help": VERBS[name].help,
            "url": reverse("admin:store_task_decide", args=(task.pk, name)),
        }
        for name in approve.offered(task.state, task.holds, decided=task.ready or released)
    ]


def of(task: Task) -> list[dict[str, Any]]:
    """Return a task's questions for its page, the newest first."""
    return [
        {
            "question": one,
            "choices": ", ".join(one.choices),
            "said": _said(one, task),
            "waited": line.duration(one.waited_s) if one.waited_s else "",
        }
        for one in Approval.objects.filter(task_id=task.pk).order_by("-ordinal")[:SHOWN]
    ]


def view(request: HttpRequest, task: Task | None, name: str, context: dict[str, Any]) -> HttpResponse:
    """Confirm a verb on a question (GET) or do it (POST). The caller has checked that the person may see the task."""
    verb = VERBS.get(name)
    if task is None or verb is None or not request.user.has_perm(PERMISSION):
        raise Http404("there is no such task or verb")
    back = reverse("admin:store_task_change", args=(task.pk,))
    question = Approval.objects.filter(task_id=task.pk).order_by("-ordinal").first()
    released = LeaseMember.objects.filter(task_id=task.pk).exists()
    can = approve.offered(task.state, task.holds, decided=task.ready or released)
    if request.method != "POST" and (question is None or name not in can):
        messages.warning(request, f"{verb.label} isn't possible now: the task is {task.state.replace('_', ' ')}.")
        return HttpResponseRedirect(back)
    purpose = f"{name} question {question.pk if question else 0} {question.asks if question else 0} of task {task.pk}"
    form = _form(name, question)(request.POST or None)
    if request.method == "POST" and form.is_valid():
        fresh = once.answered(request, purpose, form)
        if fresh:
            _do(request, task, question, verb, form.cleaned_data)
        if fresh is not None:
            return HttpResponseRedirect(back)
    context |= {
        "title": f"{verb.label}: {question.prompt if question else ''}",
        "task": task,
        "mark": mark(task.state),
        "verb": verb.label,
        "help": verb.help,
        "form": form,
        "once_field": once.FIELD,
        "once": once.token(request, purpose),
        "back": back,
    }
    return TemplateResponse(request, "harness/admin/verb.html", context)


def _form(name: str, question: Approval | None) -> type[forms.Form]:
    fields: dict[str, Any] = {}
    if name == "approve" and question is not None and len(question.choices) > 1:
        choices = [("", "Choose"), *((choice, choice) for choice in question.choices)]
        fields["choice"] = forms.ChoiceField(choices=choices, widget=UnfoldAdminSelectWidget)
    fields["reason"] = forms.CharField(
        max_length=NOTE_MOST_CHARS,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="Kept with the decision and shown to everyone who sees the task, with your name.",
    )
    return type("DecisionForm", (forms.Form,), fields)


def _do(request: HttpRequest, task: Task, question: Approval | None, verb: Verb, said: dict[str, Any]) -> None:
    tenant = scope_of(request).tenant
    given = dict(said)
    if verb.run is not approve.reask and question is not None:
        given["only"] = (question.pk, question.asks)  # what the page showed, no later one
    try:
        with staff.own_connection(tenant) as connection:
            done = verb.run(connection, task.public_id, tenant=tenant, actor=person_of(request), **given)
    except HarnessError as error:
        messages.error(request, f"{verb.label}: {error.message}")
    else:
        messages.success(request, f"{verb.label}: {OUTCOMES[done.outcome]}")


def _said(one: Approval, task: Task) -> str:
    if one.verdict is not None:
        what = f"approved ({one.choice})" if one.verdict == "approve" else "denied"
        return f"{what} by {one.decided_by}, {one.decided_at:%Y-%m-%d %H:%M:%S}" + (f": {one.note}" if one.note else "")
    if waits(task.state, is_open=one.open):
        return "waits for a decision" + (f" until {one.deadline:%Y-%m-%d %H:%M:%S}" if one.deadline else "")
    return "nobody decided in time" if "approval_timeout" in task.holds else "nobody decided"

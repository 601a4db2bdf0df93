"""People's verbs on a task, as pages: what it does, a reason, one button. Listed from engine.operate.VERBS.

A verb that is added there appears here by itself: its parameters beyond the usual ones become fields of the form.
"""

import inspect
import json
import types
import typing
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, Union, get_args, get_origin

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from harness.engine import operate
from harness.policy.errors import HarnessError, Invalid
from harness.store import staff
from harness.store.models import Task
from harness.web.admin import foresee, once
from harness.web.admin.marks import mark
from harness.web.admin.scope import person_of, scope_of

PERMISSION = "store.operate"
GIVEN = {"connection", "task", "tenant", "actor", "reason"}  # what every verb is called with; no field of the form

OUTCOMES = {
    "cancelled": "Cancelled.",
    "paused": "Paused.",
    "resumed": "It goes on.",
    "held": "Your hold is lifted; another's remains.",
    "requeued": "It is tried again now.",
    "reprioritised": "It waits in its new priority.",
    "redriven": "Sent again: it waits in line.",
    "wished": "It runs: it obeys at its next checkpoint.",
    "already": "Nothing was left to do.",
}


def offered(request: HttpRequest, task: Task) -> list[tuple[str, operate.Verb]]:
    """Return the verbs that this person may do to this task now, by name."""
    if not request.user.has_perm(PERMISSION):
        return []
    return [(name, operate.VERBS[name]) for name in _offered(request, task)]


def _offered(request: HttpRequest, task: Task) -> tuple[str, ...]:
    return operate.offered(task.state, task.want, task.holds, hold=operate.hold_of(scope_of(request).tenant))


def label_of(name: str) -> str:
    """Return a verb's name as it stands on a button.

    >>> label_of("move_to_front")
    'Move to front'
    """
    return name.replace("_", " ").capitalize()


def form_of(verb: operate.Verb) -> type[forms.Form]:
    """Return the form of a verb: a reason, and a field for each parameter that only a person can say."""
    fields: dict[str, Any] = {}
    for name, parameter in _parameters(verb.run).items():
        fields[name] = _field(name, parameter)
    fields["reason"] = forms.CharField(
        max_length=operate.REASON_MAX_CHARS,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="Shown to everyone who sees the task, with your name.",
    )
    return type("VerbForm", (forms.Form,), fields)


def view(request: HttpRequest, task: Task | None, name: str, context: dict[str, Any]) -> HttpResponse:
    """Confirm a verb (GET) or do it (POST). The caller has checked that the person may see the task."""
    verb = operate.VERBS.get(name)
    if task is None or verb is None or not request.user.has_perm(PERMISSION):
        raise Http404("there is no such task or verb")
    back = reverse("admin:store_task_change", args=(task.pk,))
    purpose = f"{name} task {task.pk}"
    form = form_of(verb)(request.POST or None, initial=foresee.initial(task, verb))
    if request.method == "POST" and form.is_valid():
        _look(request, task, verb, form, context)
    if request.method == "POST" and form.is_valid() and foresee.LOOK not in request.POST:
        fresh = once.answered(request, purpose, form)
        if fresh:
            _do(request, task.public_id, name, verb, form.cleaned_data)
        if fresh is not None:
            return HttpResponseRedirect(back)
    elif request.method != "POST" and name not in _offered(request, task):
        messages.warning(request, f"{label_of(name)} isn't possible now: the task is {task.state.replace('_', ' ')}.")
        return HttpResponseRedirect(back)
    if "seen" not in context:
        _look(request, task, verb, None, context)
    context |= {
        "title": f"{label_of(name)} this task?",
        "task": task,
        "mark": mark(task.state),
        "verb": label_of(name),
        "help": verb.help,
        "form": form,
        "once_field": once.FIELD,
        "once": once.token(request, purpose),
        "back": back,
    }
    return TemplateResponse(request, "harness/admin/verb.html", context)


def _look(
    request: HttpRequest, task: Task, verb: operate.Verb, form: forms.Form | None, context: dict[str, Any]
) -> None:
    """Note what a verb would do, if that can be foreseen; what it can't do is an error of the form."""
    try:
        context |= foresee.seen(request, task, verb, form.cleaned_data if form is not None else None)
    except Invalid as error:
        if form is not None:
            form.add_error("reason" if error.field == "reason" else "input", error.message)
    except HarnessError as error:
        messages.warning(request, error.message)


def _do(request: HttpRequest, task: uuid.UUID, name: str, verb: operate.Verb, said: dict[str, Any]) -> None:
    accepted = inspect.signature(verb.run).parameters
    given = {key: value for key, value in said.items() if key in accepted and value not in ("", None)}
    tenant = scope_of(request).tenant
    try:
        with staff.own_connection(tenant) as connection:
            done = verb.run(connection, task, tenant=tenant, actor=person_of(request), **given)
    except HarnessError as error:
        messages.error(request, f"{label_of(name)}: {error.message}")
    else:
        messages.success(request, f"{label_of(name)}: {OUTCOMES.get(done.outcome, str(done.outcome))}")


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    hints = typing.get_type_hints(function)
    return {
        name: parameter.replace(annotation=hints.get(name, str))
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in GIVEN and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }


class _Json(forms.JSONField):
    """A JSON value, written so that people can read it."""

    def prepare_value(self, value: Any) -> Any:
        if value is None:  # nothing to begin with
            return ""
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _field(name: str, parameter: inspect.Parameter) -> forms.Field:
    meant = parameter.annotation
    if get_origin(meant) in (Union, types.UnionType):
        meant = next(choice for choice in get_args(meant) if choice is not type(None))
    default = None if parameter.default in (parameter.empty, operate.KEEP) else parameter.default
    common: dict[str, Any] = {
        "label": name.replace("_", " ").capitalize(),
        "required": parameter.default is parameter.empty,
        "initial": default,
    }
    if name == "priority":
        choices = [(number, f"P{number}") for number in range(4)]
        return forms.TypedChoiceField(choices=choices, coerce=int, widget=UnfoldAdminSelectWidget, **common)
    if get_origin(meant) is Literal:
        choices = [(value, str(value)) for value in get_args(meant)]
        by_text = {str(value): value for value, _ in choices}
        return forms.TypedChoiceField(
            choices=choices, coerce=lambda text: by_text[str(text)], widget=UnfoldAdminSelectWidget, **common
        )
    if meant is bool:
        return forms.BooleanField(widget=UnfoldBooleanWidget, **(common | {"required": False}))
    if meant is int:
        return forms.IntegerField(widget=UnfoldAdminIntegerFieldWidget, **common)
    if meant is float:
        return forms.FloatField(widget=UnfoldAdminDecimalFieldWidget, **common)
    if meant is datetime:
        return forms.DateTimeField(widget=UnfoldAdminTextInputWidget, help_text="YYYY-MM-DD HH:MM, UTC", **common)
    if meant is str:
        return forms.CharField(widget=UnfoldAdminTextInputWidget, **common)
    return _Json(
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 10, "class": "h-json", "spellcheck": "false"}),
        help_text=f"JSON. Left empty: as it is; more than {foresee.EDITED_MOST_CHARS:,} characters aren't shown here.",
        **common,
    )

"""A page that asks for a reason before something is done, and does it once."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from harness.engine import operate
from harness.web.admin import once


def confirm(
    model_admin: "admin.ModelAdmin[Any]",
    request: HttpRequest,
    purpose: str,
    *,
    verb: str,
    title: str,
    what: str,
    do: Callable[[str], None],
) -> HttpResponse:
    """Answer with the page (GET), or do it with the reason that was sent (POST) and go back to the model's list.

    `what`: what will happen; `purpose` ties the page's form to the act.
    """
    back = reverse(f"admin:{model_admin.opts.app_label}_{model_admin.opts.model_name}_changelist")
    if request.method == "POST":
        return _act(request, purpose, back, do)
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "title": title,
        "verb": verb,
        "help": what,
        "plain_reason": True,
        "once_field": once.FIELD,
        "once": once.token(request, purpose),
        "back": back,
    }
    return TemplateResponse(request, "harness/admin/verb.html", context)


def _act(request: HttpRequest, purpose: str, back: str, do: Callable[[str], None]) -> HttpResponse:
    """Act on a form that was sent with a reason, once."""
    reason = request.POST.get("reason", "").strip()[: operate.REASON_MAX_CHARS]
    try:
        fresh = bool(reason) and once.take(request, purpose)
    except once.Stale:
        messages.error(request, once.TOO_OLD)
        return HttpResponseRedirect(request.get_full_path())
    if not reason:
        messages.error(request, "Say why: the reason is kept in the log.")
        return HttpResponseRedirect(request.get_full_path())
    if fresh:
        do(reason)
    else:
        messages.info(request, once.ACTED)
    return HttpResponseRedirect(back)

"""What a verb would do to one task, said on its page before it does; and the input that the page begins with."""

import json
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from harness.engine import letters, operate
from harness.policy.letters import reason_of
from harness.store import staff
from harness.store.models import Task, TaskBody
from harness.web.admin import line
from harness.web.admin.scope import scope_of

EDITED_MOST_CHARS = 20_000  # a longer input is not edited in a page
LOOK = "_look"  # the button that only says what would happen


def initial(task: Task, verb: operate.Verb) -> dict[str, Any]:
    """Return what the form begins with: where the input may change, the task's own, unless it is too long."""
    if verb.foresee is None:
        return {}
    value = TaskBody.objects.filter(task_id=task.pk).values_list("input", flat=True).first()
    return {"input": value} if len(json.dumps(value)) <= EDITED_MOST_CHARS else {}


def seen(request: HttpRequest, task: Task, verb: operate.Verb, said: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a verb with this form would do, for the page, if that can be foreseen.

    Raises: Invalid (input), Conflict, NotFound.
    """
    if verb.foresee is None:
        return {}
    value = operate.KEEP if said is None or said.get("input") is None else said["input"]
    tenant = scope_of(request).tenant
    with staff.own_connection(tenant) as connection:
        found = verb.foresee(connection, task.public_id, tenant=tenant, input=value)
    return {
        "seen": found,
        "used": line.duration(found.slot_s),
        "expected": line.duration(found.expected_slot_s),
        "over": found.room is not None and found.room < found.tasks,
        "look": LOOK,
    }


def others(request: HttpRequest, task: Task, error: Mapping[str, str] | None) -> dict[str, Any] | None:
    """Return the reason of a dead letter with a link to all of it; None for other tasks."""
    if task.dead_at is None:
        return None
    told = error or letters.EXPIRED
    reason = reason_of(kind=task.kind, error_class=told["class"], message=told["message"])
    return {"reason": reason, "url": f"{reverse('admin:dead_letters_list')}?{urlencode({'reason': reason.key})}"}

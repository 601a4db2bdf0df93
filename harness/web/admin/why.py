"""Why a task waits, on its page: the same words as over HTTP, and the time that each reason has taken."""

import uuid
from typing import Any

from django.http import HttpRequest

from harness.engine import why as engine_why
from harness.policy.errors import HarnessError
from harness.policy.reasons import Who
from harness.store import queries, staff
from harness.web.admin.line import duration
from harness.web.admin.scope import scope_of

WHO = {Who.YOU: "its tenant", Who.SYSTEM: "the system, by itself", Who.PERSON: "another person"}


def of(request: HttpRequest, public_id: uuid.UUID) -> dict[str, Any]:
    """Return what a task's page says of its waits; nothing, when the database has no time for it."""
    try:
        with staff.own_connection(scope_of(request).tenant) as connection:
            task = queries.task(connection, public_id)
            found = engine_why.why(connection, task) if task is not None else None
    except HarnessError:
        found = None
    if found is None:
        return {"bound": [], "spent": []}
    return {
        "bound": [
            {
                "code": one.reason.code,
                "words": one.told.words,
                "frees": one.told.frees,
                "since": one.since,
                "who": f"{WHO[one.reason.who]} can free it",
            }
            for one in found.bound
        ],
        "spent": [{"label": one.label, "who": WHO[one.who], "took": duration(one.seconds)} for one in found.spent],
        "whole": found.whole,
    }

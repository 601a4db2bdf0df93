"""`manage.py why TASK`: what holds a task, since when, what would free it, and what it has waited for so far."""

import json
import uuid
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.engine import why as engine_why
from harness.engine.why import Bound, Why
from harness.ops.operators import table, told
from harness.store import queries
from harness.store.database import connect
from harness.store.queries import TaskView


class Command(BaseCommand):
    """Say why a task waits."""

    help = "Say what holds a task, since when, what would free it, and how long each reason has held it so far."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the task."""
        parser.add_argument("task", type=uuid.UUID, metavar="TASK")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: object, **options: Any) -> None:
        """Say it. Raises: CommandError."""
        with told(), connect(settings.DATABASE_URL, "staff", application_name="harness-command") as connection:
            task = queries.task(connection, options["task"])
            if task is None:
                raise CommandError(f"there is no task {options['task']}")
            found = engine_why.why(connection, task)
        self.stdout.write(json.dumps(_facts(task, found), default=str) if options["json"] else _words(task, found))


def _words(task: TaskView, found: Why) -> str:
    lines = [f"{task.kind} {task.public_id} is {task.state}"]
    for one in found.bound:
        since = f" (since {one.since:%Y-%m-%d %H:%M:%S} UTC)" if one.since else ""
        lines.append(f"{one.reason.code}: {one.told.words}{since}")
        lines += [f"  {one.told.frees}"] if one.told.frees else []
    if not found.bound:
        lines.append("it waits for nothing")
    if found.spent:
        rows = [(one.label, one.who, f"{one.seconds:,.1f} s") for one in found.spent]
        lines += ["", table(("waited for", "who can free it", "time"), rows)]
    return "\n".join(lines)


def _facts(task: TaskView, found: Why) -> dict[str, Any]:
    return {
        "task_id": task.public_id,
        "state": task.state,
        "reasons": [_reason(one) for one in found.bound],
        "waits_since": found.waits_since,
        "ahead": found.ahead,
        "waited_s": found.waited_s,
        "spent": [
            {"code": one.code, "subject": one.subject, "label": one.label, "who": one.who, "seconds": one.seconds}
            for one in found.spent
        ],
        "whole": found.whole,
    }


def _reason(one: Bound) -> dict[str, Any]:
    return {
        "code": one.reason.code,
        "subject": one.reason.subject,
        "who": one.reason.who,
        "words": one.told.words,
        "frees": one.told.frees,
        "since": one.since,
        "facts": one.reason.facts or {},
    }

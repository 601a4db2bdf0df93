"""`manage.py ingest_folder DIR --tenant NAME`: ingest the documents of a folder as a run, and watch it."""

import json
import time
import uuid
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.engine import ingest_folder, submit
from harness.kinds import folders, registry
from harness.ops.operators import table, told
from harness.policy.errors import NotFound
from harness.policy.lifecycle import LIVE, State
from harness.store import queries
from harness.store.database import Connection, connect

LOOK_EVERY_S = 1.0
FAILURES_PAGE = 200


class Command(BaseCommand):
    """Ingest a folder."""

    help = "Ingest the documents below a folder (one that HARNESS_DOCUMENT_ROOTS allows) as a run of a tenant."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("folder", type=Path)
        parser.add_argument("--tenant", required=True)
        parser.add_argument("--name", default="", help="of the run (default: the folder's)")
        parser.add_argument("--tag", action="append", default=[], help="for the filters of rag.search; may be repeated")
        parser.add_argument("--priority", type=int, choices=(0, 1, 2, 3))
        parser.add_argument("--fanout-cap", type=int, help="most of its tasks in flight")
        parser.add_argument("--wait", action="store_true", help="show the progress, then the failures; exit 1 if any")
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON")

    def handle(self, *args: object, **options: Any) -> None:
        """Submit the run. Raises: CommandError."""
        registry.discover(*settings.HARNESS_TASK_PACKAGES)
        with told(), connect(settings.DATABASE_URL, "engine", application_name="harness-ingest-folder") as connection:
            number = queries.tenant_named(connection, options["tenant"])
            tenant = None if number is None else queries.tenant_facts(connection, number)
            if tenant is None:
                raise NotFound(f"--tenant: there is no tenant {options['tenant']!r}; `manage.py tenant list` shows all")
            planned = ingest_folder.plan(
                folders.roots_of(settings.HARNESS_DOCUMENT_ROOTS, tenant.id),
                # Made absolute without following links: those are judged where the path is walked.
                str(options["folder"].absolute()),
                most=settings.HARNESS_RUN_MAX_TASKS,
                name=options["name"],
                tags=options["tag"],
                priority=options["priority"],
                fanout_cap=options["fanout_cap"],
            )
            door = submit.Door(
                body_max_bytes=settings.HARNESS_BODY_MAX_BYTES,
                run_max_tasks=settings.HARNESS_RUN_MAX_TASKS,
                ttl_s=settings.HARNESS_TTL_S,
            )
            accepted = submit.submit_run(door, connection, tenant, planned.run, actor="command")
            assert accepted.run_id is not None  # a run was asked for
            outcome: dict[str, Any] = {
                "run_id": str(accepted.run_id),
                "size": len(planned.run.nodes),
                "left_out": [{"name": name, "reason": reason} for name, reason in planned.left_out],
            }
            if not options["json"]:
                self.stdout.write(f"run {accepted.run_id}: {len(planned.run.nodes)} documents")
                for name, reason in planned.left_out:
                    self.stdout.write(f"  left out {name}: {reason}")
            if options["wait"]:
                outcome |= self._watch(connection, tenant.id, accepted.run_id, quiet=options["json"])
        if options["json"]:
            self.stdout.write(json.dumps(outcome, indent=1))
        elif outcome.get("failures"):
            rows = [(one["name"], one["class"], one["message"]) for one in outcome["failures"]]
            self.stdout.write(table(("document", "class", "why"), rows))
        if outcome.get("failures"):
            raise CommandError(f"{len(outcome['failures'])} of {outcome['size']} documents failed")

    def _watch(self, connection: Connection, tenant: int, run_id: uuid.UUID, *, quiet: bool) -> dict[str, Any]:
        """Wait until no task of the run is live; return its states and failures."""
        said = ""
        while True:
            with queries.as_tenant(connection, tenant):
                run = queries.run(connection, run_id)
            assert run is not None  # it was made above
            line = ", ".join(f"{n} {state}" for state, n in sorted(run.states.items()))
            if not quiet and line != said:
                self.stdout.write(line)
                said = line
            if not LIVE.intersection(run.states):
                return {"states": run.states, "failures": _failures(connection, tenant, run_id)}
            time.sleep(LOOK_EVERY_S)


def _failures(connection: Connection, tenant: int, run_id: uuid.UUID) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    before: int | None = queries.LAST_ID
    while before is not None:
        with queries.as_tenant(connection, tenant):
            page, before = queries.tasks(
                connection, tenant=tenant, run=run_id, state=State.FAILED_TERMINAL, before=before, most=FAILURES_PAGE
            )
        for task in page:
            error = task.error if isinstance(task.error, dict) else {}
            found.append(
                {
                    "task_id": str(task.public_id),
                    "name": task.title or "",
                    "class": str(error.get("class", "")),
                    "message": str(error.get("message", "")),
                }
            )
    return found

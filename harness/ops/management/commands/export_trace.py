"""`manage.py export_trace FILE --run ID | --since TIME [--until TIME]`: what happened, as a file for the simulator."""

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from harness.kinds import registry
from harness.ops.operators import told
from harness.ops.traces import export
from harness.policy.errors import Invalid
from harness.sim import trace as traces
from harness.store.database import connect


class Command(BaseCommand):
    """Export a trace."""

    help = "Write the trace of a run, or of a time window, to a file that `manage.py simulate` replays."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("file", type=Path, help="written anew; compressed if its name ends in .gz")
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--run", help="the id of a run")
        what.add_argument("--since", help="ISO time (UTC unless it says): what was submitted from then on")
        parser.add_argument("--until", help="ISO time: .. and before then")

    def handle(self, *args: object, **options: Any) -> None:
        """Export. Raises: CommandError."""
        registry.discover(*settings.HARNESS_TASK_PACKAGES)
        with told():
            run = _run(options["run"])
            since, until = _time("--since", options["since"]), _time("--until", options["until"])
            if options["file"].suffix == ".toml":
                raise Invalid(f"{options['file']}: a trace isn't TOML; name it .jsonl or .jsonl.gz", field="file")
            with connect(settings.DATABASE_URL, "engine", application_name="harness-export-trace") as connection:
                trace = export(connection, settings.HARNESS_TOPOLOGY, run=run, since=since, until=until)
            try:
                traces.write(trace, options["file"])
            except OSError as error:
                raise Invalid(f"{options['file']}: can't be written: {error.strerror}", field="file") from error
        attempts = sum(len(task.attempts) for task in trace.tasks)
        self.stdout.write(
            f"{options['file']}: {len(trace.tasks):,} tasks of {len(trace.tenants)} tenants, {attempts:,} attempts, "
            f"{trace.tasks[-1].submit_s:,.1f} s"
        )


def _run(text: str | None) -> uuid.UUID | None:
    try:
        return uuid.UUID(text) if text else None
    except ValueError:
        raise Invalid(f"--run: must be the id of a run (a UUID), not {text!r}", field="run") from None


def _time(option: str, text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{option}: must be an ISO time such as 2026-11-29T14:00, not {text!r}", field=option) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)

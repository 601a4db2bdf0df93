"""`manage.py retention`: removes what is older than the settings keep. Run it daily; any number may run."""

import json
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from harness.engine import housekeeping
from harness.ops.operators import told
from harness.store.housekeeping import as_owner


class Command(BaseCommand):
    """Removes ended tasks, their trace, expired keys and artifacts."""

    help = (
        "Remove what is older than HARNESS_KEEP_DAYS (dead letters: HARNESS_DEAD_KEEP_DAYS), and artifacts that have "
        "expired; in small batches."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--keep-days", type=float, help="instead of HARNESS_KEEP_DAYS; at least 1")
        parser.add_argument(
            "--dead-keep-days", type=float, help="instead of HARNESS_DEAD_KEEP_DAYS; at least as many as the others"
        )
        parser.add_argument("--json", action="store_true", help="what was done, as JSON alone")

    def handle(self, *args: object, **options: Any) -> None:
        """Do it and print what was done. Raises: CommandError."""
        keep_days = settings.HARNESS_KEEP_DAYS if options["keep_days"] is None else options["keep_days"]
        dead_keep_days = options["dead_keep_days"]
        if dead_keep_days is None:  # a longer --keep-days takes the dead letters along
            dead_keep_days = max(settings.HARNESS_DEAD_KEEP_DAYS, options["keep_days"] or 0.0)
        say = (lambda line: None) if options["json"] else (lambda line: self.stdout.write(f"  {line}"))
        with (
            told(after="what was done stays done"),
            as_owner(settings.DATABASE_URL, application_name="harness-retention") as connection,
        ):
            done = housekeeping.retain(connection, keep_days=keep_days, dead_keep_days=dead_keep_days, say=say)
        if options["json"]:
            self.stdout.write(json.dumps(asdict(done)))
            return
        rows = ", ".join(f"{n:,} of {table}" for table, n in sorted(done.rows.items())) or "none"
        self.stdout.write(f"older than {keep_days:g} days (dead letters: {dead_keep_days:g}): rows removed: {rows}")
        self.stdout.write(f"days of the trace dropped: {len(done.days)}; artifacts removed: {done.artifacts:,}")
        if done.spools:
            self.stdout.write(f"spool files of killed processes removed: {done.spools:,}")

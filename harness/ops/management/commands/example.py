"""`manage.py example [NAME]`: plays a workload on a stack of its own. Needs no database."""

import json
import signal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.ops.examples import catalogue, run
from harness.ops.local.interruption import interrupt_on
from harness.ops.local.stack import Stack
from harness.ops.operators import table
from harness.policy.errors import HarnessError


class Command(BaseCommand):
    """Play a workload from end to end."""

    help = (
        "Play a workload on a stack of its own, with an emulated model, or the endpoint that LLM_BASE_URL, "
        "LLM_MODEL and LLM_API_KEY name. Without a name: list the workloads."
    )
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the name and its options."""
        parser.add_argument("name", nargs="?")
        parser.add_argument("--json", action="store_true", help="print what came of it as JSON")
        parser.add_argument("--stay", action="store_true", help="keep the stack running afterwards; Ctrl-C stops it")

    def handle(self, *args: object, **options: Any) -> None:
        """Play it, or list. Raises: CommandError with the error's message."""
        try:
            if options["name"] is None:
                rows = [(one.name, one.about, one.missing() or "yes") for one in catalogue.all_examples()]
                self.stdout.write(table(("name", "what it does", "runs here"), rows))
                return
            example = catalogue.find(options["name"])
            interrupt_on(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            outcome = run.run(example, settings.BASE_DIR, say=self._say, stay=self._stay if options["stay"] else None)
        except HarnessError as error:
            raise CommandError(error.message) from None
        except KeyboardInterrupt:
            raise CommandError("stopped") from None
        if options["json"]:
            files = [str(path) for path in outcome.files]
            self.stdout.write(json.dumps({**outcome.figures, "files": files}, indent=2))
            return
        for line in outcome.lines:
            self.stdout.write(line)
        for path in outcome.files:
            self.stdout.write(f"  {_near(path)}")

    def _say(self, line: str) -> None:
        self.stderr.write(line)
        self.stderr.flush()

    def _stay(self, stack: Stack) -> None:
        for name, value in sorted(stack.addresses.items()):
            if name.endswith("WEB_URL"):
                self._say(f"{name}: {value}")
        self._say("Ctrl-C stops it all.")
        try:
            stack.run()
        except KeyboardInterrupt:
            return


def _near(path: Path) -> Path:
    """Return the path as a person in the checkout would type it."""
    return path.relative_to(settings.BASE_DIR) if path.is_relative_to(settings.BASE_DIR) else path

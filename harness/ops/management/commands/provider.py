"""`manage.py provider`: the emulator of a model provider. Needs no database."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from harness.ops.emulator import cli
from harness.policy.errors import HarnessError


class Command(BaseCommand):
    """Serve the emulator until told to stop."""

    help = cli.HELP
    requires_system_checks = []  # noqa: RUF012  # Django's own way to say "none"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        cli.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            cli.run(options, say=self._say)
        except HarnessError as error:
            raise CommandError(error.message) from None

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

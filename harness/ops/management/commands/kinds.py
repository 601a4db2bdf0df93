"""`manage.py kinds`: the registered kinds of work, checked against resources.toml. It needs no database."""

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from harness.kinds import registry
from harness.ops.operators import table, told


class Command(BaseCommand):
    """The kinds there are."""

    help = "List the registered kinds of work."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--json", action="store_true", help="with the schemas of input and output")

    def handle(self, *args: object, **options: Any) -> None:
        """List them. Raises: CommandError when one of them names a pool or resource that isn't there."""
        with told():
            registry.discover(*settings.HARNESS_TASK_PACKAGES)
            registry.check_against(settings.HARNESS_TOPOLOGY)
        kinds = registry.all_kinds()
        if options["json"]:
            self.stdout.write(
                json.dumps(
                    [
                        {
                            "name": kind.name,
                            "version": kind.version,
                            "pool": kind.pool,
                            "resources": kind.may_need(),
                            "timeout_s": kind.timeout_s,
                            "max_attempts": kind.max_attempts,
                            "bundle": kind.bundle,
                            "cheaper_forms": [form.name for form in kind.degrade],
                            "input": kind.input.model_json_schema(),
                            "output": kind.output.model_json_schema() if kind.output else None,
                        }
                        for kind in kinds
                    ],
                    indent=1,
                )
            )
            return
        rows = [
            (
                kind.name,
                kind.version,
                kind.pool,
                " or ".join(sorted(kind.signatures)) or "-",
                f"{kind.timeout_s:g}",
                kind.max_attempts,
                "yes" if kind.bundle else "no",
                ", ".join(form.name for form in kind.degrade) or "-",
                ", ".join(kind.input.model_fields),
            )
            for kind in kinds
        ]
        self.stdout.write(
            table(("kind", "version", "pool", "resources", "timeout s", "attempts", "bundle", "cheaper", "input"), rows)
        )

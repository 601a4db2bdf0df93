"""`manage.py forecasts [--now] [--json]`: when forecasts were made, and how earlier ones were borne out."""

import json
from random import Random
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from harness.engine import expect, foresee
from harness.kinds import registry
from harness.ops.operators import told
from harness.store import forecasts
from harness.store.database import connect


class Command(BaseCommand):
    """How far forecasts of starts and ends hold."""

    help = (
        "Show when forecasts were made last, and which share of earlier ones was borne out; --now makes a pass first."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--now", action="store_true", help="make a pass first, whenever the last one was")
        parser.add_argument("--json", action="store_true", help="as JSON alone")

    def handle(self, *args: object, **options: Any) -> None:
        """Show it. Raises: CommandError."""
        with told():
            if options["now"]:
                registry.discover(*settings.HARNESS_TASK_PACKAGES)
                with connect(settings.DATABASE_URL, "engine", application_name="harness-command") as connection:
                    foresee.foresee(connection, settings.HARNESS_TOPOLOGY, Random(), again=True)
            with connect(settings.DATABASE_URL, "staff", application_name="harness-command") as connection:
                found = expect.published(forecasts.last_pass(connection))
        self.stdout.write(json.dumps(found, default=str, indent=1) if options["json"] else _words(found))


def _words(found: dict[str, Any]) -> str:
    if found["at"] is None:
        return expect.WORDS[expect.NONE]
    seen = f"{found['looked_at']:,} tasks ({found['waiting']:,} wait)"
    lines = [f"made {found['age_s']:,.0f} s ago of {seen} in {found['took_s']:.2f} s of a core"]
    if found["stale"]:
        lines.append(expect.WORDS[expect.STALE])
    lines.append(f"{found['trust']}: {found['words']}")
    if found["p90_covers"] is not None:
        covered = f"the P50 covered {found['p50_covers']:.0%} and the P90 {found['p90_covers']:.0%}"
        lines.append(f"of the last {found['n']:,} {covered}; median P90/P50 {_figure(found['spread'])}")
        loss = f"pinball loss {_figure(found['pinball_s'])} s"
        lines.append(f"{loss}, {_figure(found['pinball_ratio'])} of that of backlog over rate")
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"

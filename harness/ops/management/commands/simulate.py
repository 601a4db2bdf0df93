"""`manage.py simulate SCENARIO.toml|TRACE [--json] [--seed N]`: what would come of it, in virtual time. No database."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.ops.operators import told
from harness.sim import SCENARIOS
from harness.sim.parse import load_all
from harness.sim.plans import FIRST_COME, PLANS
from harness.sim.report import simulate
from harness.sim.text import render


class Command(BaseCommand):
    """Simulate."""

    help = "Play a scenario or a recorded trace with this version's policy. Exits 1 when an asserted range is missed."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("scenario", type=Path, help=f"a file, or the name of one in {SCENARIOS}")
        parser.add_argument("--json", action="store_true", help="print all figures as JSON")
        parser.add_argument("--seed", type=int, help="other dice than the scenario's")
        parser.add_argument("--plan", choices=(*PLANS, FIRST_COME), help="another plan than the scenario's")

    def handle(self, *args: object, **options: Any) -> None:
        """Play it. Raises: CommandError."""
        path: Path = options["scenario"]
        known = SCENARIOS / f"{path}.toml"
        with told():
            scenarios = load_all(known if not path.exists() and known.exists() else path)
            if options["plan"]:
                scenarios = [replace(scenario, plan=options["plan"]) for scenario in scenarios]
            reports = []
            for scenario in scenarios:
                reports.append(simulate(scenario, seed=options["seed"]))
                if not options["json"]:
                    self.stdout.write(render(reports[-1].figures) + "\n")
        if options["json"]:
            every = [report.figures | {"missed": report.missed} for report in reports]
            self.stdout.write(json.dumps(every[0] if len(every) == 1 else every, indent=1))
        many = len(reports) > 1
        missed = [
            f"  {report.figures['title']}: {one}" if many else f"  {one}" for report in reports for one in report.missed
        ]
        if missed:
            raise CommandError("\n".join(("missed:", *missed)))

"""`manage.py simulate SCENARIO.toml|TRACE [--json] [--seed N]`: what would come of it, in virtual time. No database."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.ops.operators import told
from harness.sim import SCENARIOS
from harness.sim.parse import load
from harness.sim.report import simulate
from harness.sim.text import render
from harness.sim.world import FIRST_COME, PLANS


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
            scenario = load(known if not path.exists() and known.exists() else path)
            if options["plan"]:
                scenario = replace(scenario, plan=options["plan"])
            report = simulate(scenario, seed=options["seed"])
        if options["json"]:
            self.stdout.write(json.dumps(report.figures | {"missed": report.missed}, indent=1))
        else:
            self.stdout.write(render(report.figures))
        if report.missed:
            raise CommandError("\n".join(("missed:", *(f"  {one}" for one in report.missed))))

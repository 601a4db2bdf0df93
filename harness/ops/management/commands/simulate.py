"""`manage.py simulate SCENARIO.toml|TRACE [--compare OTHER.toml] [--chart FILE.svg] [--json] [--seed N]`.

What would come of it, in virtual time; and, with another file, what would be different under its limits, weights,
workers or plan. No database.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.ops.operators import told
from harness.policy.errors import Invalid
from harness.sim import SCENARIOS
from harness.sim.chart import chart
from harness.sim.compare import differences
from harness.sim.parse import load_all, load_other
from harness.sim.plans import FIRST_COME, PLANS
from harness.sim.report import Report, simulate
from harness.sim.scenario import Scenario
from harness.sim.text import render, render_differences


class Command(BaseCommand):
    """Simulate."""

    help = "Play a scenario or a recorded trace with this version's policy. Exits 1 when an asserted range is missed."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("scenario", type=Path, help=f"a file, or the name of one in {SCENARIOS}")
        parser.add_argument(
            "--compare",
            type=Path,
            metavar="OTHER.toml",
            help="what is other: limits, weights, workers, plan; the same traffic is played with both",
        )
        parser.add_argument("--chart", type=Path, metavar="FILE.svg", help="draw how it went over time")
        parser.add_argument("--json", action="store_true", help="print all figures as JSON")
        parser.add_argument("--seed", type=int, help="other dice than the scenario's")
        parser.add_argument("--plan", choices=(*PLANS, FIRST_COME), help="another plan than the scenario's")

    def handle(self, *args: object, **options: Any) -> None:
        """Play it. Raises: CommandError."""
        path, other = _found(options["scenario"]), options["compare"]
        with told():
            scenarios = load_all(path)
            if options["plan"]:
                scenarios = [replace(scenario, plan=options["plan"]) for scenario in scenarios]
            if options["chart"] and len(scenarios) > 1:
                raise Invalid(
                    f"{path.name}: vary makes {len(scenarios)} scenarios of it; a chart is of one", field="vary"
                )
            if other is None:
                reports = self._play(scenarios, options)
            else:
                reports = self._compare(scenarios, load_other(path, _found(other)), options)
        many = len(reports) > 1
        missed = [
            f"  {report.figures['title']}: {one}" if many else f"  {one}" for report in reports for one in report.missed
        ]
        if missed:
            raise CommandError("\n".join(("missed:", *missed)))

    def _play(self, scenarios: list[Scenario], options: dict[str, Any]) -> list[Report]:
        """Play each by itself."""
        reports = []
        for scenario in scenarios:
            reports.append(simulate(scenario, seed=options["seed"], tracked=bool(options["chart"])))
            if not options["json"]:
                self.stdout.write(render(reports[-1].figures) + "\n")
        if options["json"]:
            every = [report.figures | {"missed": report.missed} for report in reports]
            self.stdout.write(json.dumps(every[0] if len(every) == 1 else every, indent=1))
        self._draw(options["chart"], scenarios[0].title, {"it": reports[0]})
        return reports

    def _compare(self, scenarios: list[Scenario], others: list[Scenario], options: dict[str, Any]) -> list[Report]:
        """Play each as it is and as the other file has it, with tasks that take the same in both."""
        reports, found = [], []
        for scenario, other in zip(scenarios, others, strict=True):
            first, then = (
                simulate(one, seed=options["seed"], alike=True, tracked=bool(options["chart"]))
                for one in (scenario, other)
            )
            reports += [first, then]
            told = differences(first.figures, then.figures)
            if options["json"]:
                figures = {one.figure: [one.first, one.other] for one in told}
                found.append({"first": scenario.title, "other": other.title, "figures": figures})
            else:
                self.stdout.write(render_differences(scenario.title, other.title, told) + "\n")
        if options["json"]:
            self.stdout.write(json.dumps(found[0] if len(found) == 1 else found, indent=1))
        self._draw(options["chart"], scenarios[0].title, {scenarios[0].title: reports[0], others[0].title: reports[1]})
        return reports

    def _draw(self, path: Path | None, title: str, reports: dict[str, Report]) -> None:
        if path is None:
            return
        tracks = {name: report.track for name, report in reports.items() if report.track is not None}
        try:
            path.write_text(chart(title, tracks), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"--chart: {path} can't be written: {error.strerror}") from error
        self.stderr.write(f"drawn: {path}")


def _found(path: Path) -> Path:
    """Return the file, or the one of that name that comes with Harness. Raises: CommandError where it is neither."""
    known = SCENARIOS / f"{path}.toml"
    if path.exists() or path.suffix:
        return path
    if not known.exists():
        names = ", ".join(sorted(one.stem for one in SCENARIOS.glob("*.toml")))
        raise CommandError(f"scenario: there is no file {path}, and no scenario of that name; there are {names}")
    return known

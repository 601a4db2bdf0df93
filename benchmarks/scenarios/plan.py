"""plan: the figures that the plan must reach, in the simulator, over seeds that nothing was tuned on.

Plays every variation of the scenarios about who goes next (CI plays some, with one seed) and tells each asserted figure
with its range. Needs no server; virtual time, so that the machine's speed changes nothing.
"""

from typing import Any

from benchmarks.bench import Bench
from harness.sim import SCENARIOS
from harness.sim.parse import load_all
from harness.sim.report import find, simulate
from harness.sim.scenario import Scenario

NAMES = (
    "elephant",
    "first_come",
    "classes",
    "p0_light",
    "p0_endless",
    "changing_slots",
    "weights",
    "singles",
    "scarce",
    "starve",
    "blocked",
    "returning",
    "changing_terms",
    "together",
)
FIRST_SEED = 100  # times --seed; scenarios and policy were tried on smaller ones


def run(bench: Bench) -> dict[str, Any]:
    """Play each scenario with a seed for each round and return the JSON: each figure, and how many missed."""
    seeds = [FIRST_SEED * bench.seed + number for number in range(bench.pairs)]
    found: dict[str, dict[str, Any]] = {}
    rows: list[tuple[str, ...]] = []
    for name in NAMES:
        if bench.only and name not in bench.only:
            continue
        for scenario in load_all(SCENARIOS / f"{name}.toml"):
            if bench.quick and not scenario.ci:
                continue
            found[f"{name}: {scenario.title}"] = figures = _played(scenario, seeds)
            rows += [
                (scenario.title, figure, f"{one['min']:.4g} - {one['max']:.4g}", _range(one), one["missed"] or "")
                for figure, one in figures.items()
            ]
    bench.table(f"the plan, seeds {seeds}", ("scenario", "figure", "found", "wanted", "missed"), rows)
    missed = sum(one["missed"] for figures in found.values() for one in figures.values())
    bench.say(f"{sum(map(len, found.values())):,} figures over {len(seeds)} seeds, {missed} missed")
    return {"seeds": seeds, "figures": found, "missed": missed}


def _played(scenario: Scenario, seeds: list[int]) -> dict[str, Any]:
    reports = [simulate(scenario, seed=seed).figures for seed in seeds]
    figures = {}
    for one in scenario.expect:
        values = [value for report in reports if (value := find(report, one.figure)) is not None]
        kept = sum(one.least <= value <= one.most for value in values)
        figures[one.figure] = {
            "values": values,
            "min": min(values, default=float("nan")),
            "max": max(values, default=float("nan")),
            "wanted": [one.least, one.most],
            "missed": len(seeds) - kept,
        }
    return figures


def _range(one: dict[str, Any]) -> str:
    least, most = one["wanted"]
    return f"{least:.4g} - {most:.4g}"

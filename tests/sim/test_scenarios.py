"""The scenarios that come with Harness keep their ranges, and one that doesn't says which it missed."""

import pytest

from harness.sim import SCENARIOS
from harness.sim.parse import load_all
from harness.sim.report import simulate
from harness.sim.scenario import Scenario
from tests.sim.scenes import played

EVERY = [(path.stem, scenario) for path in sorted(SCENARIOS.glob("*.toml")) for scenario in load_all(path)]
IN_CI = [pytest.param(one, id=one.title.replace(" ", "_")) for _, one in EVERY if one.ci]
ALL = dict(EVERY)


@pytest.mark.parametrize("scenario", IN_CI)
def test_a_scenario_keeps_its_ranges(scenario: Scenario) -> None:
    assert simulate(scenario).missed == ()


def test_every_scenario_asserts_something_and_all_but_the_longest_are_in_ci() -> None:
    assert {"elephant", "two_tenants", "unequal", "blocked", "faults", "fanout", "classes", "internet"} <= set(ALL)
    assert all(scenario.expect for _, scenario in EVERY)
    assert set(ALL) - {name for name, scenario in EVERY if scenario.ci} == {"internet", "eta"}


def test_the_plan_serves_a_victim_thirty_times_sooner_than_first_come_first_served_at_no_cost() -> None:
    ours, theirs = (simulate(ALL[name]).figures for name in ("elephant", "first_come"))
    assert theirs["waits"]["victims"]["p2"]["p50_s"] >= 30 * ours["waits"]["victims"]["p2"]["p50_s"]
    assert ours["makespan_s"] <= 1.05 * theirs["makespan_s"]


def test_a_range_that_is_missed_and_a_figure_that_is_not_there_are_named() -> None:
    report = played(expect={"counts.succeed": [11, 12], "makespan_s": [0, 100], "pools.gpu.use": [0, 1]})
    first, second = report.missed
    assert first == "counts.succeed: 10 is not in [11, 12]"
    assert second.startswith("pools.gpu.use: the report has no such figure")

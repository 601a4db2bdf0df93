"""The scenarios that come with Harness keep their ranges, and one that doesn't says which it missed."""

import pytest

from harness.sim import SCENARIOS
from harness.sim.parse import load
from harness.sim.report import simulate
from tests.sim.scenes import played

ALL = {path.stem: load(path) for path in sorted(SCENARIOS.glob("*.toml"))}


@pytest.mark.parametrize("name", [name for name, scenario in ALL.items() if scenario.ci])
def test_a_scenario_keeps_its_ranges(name: str) -> None:
    assert simulate(ALL[name]).missed == ()


def test_every_scenario_asserts_something_and_those_of_ci_stay_short() -> None:
    assert {"elephant", "two_tenants", "unequal", "blocked", "faults", "fanout", "small_pools", "internet"} <= set(ALL)
    assert all(scenario.expect for scenario in ALL.values())
    assert [name for name, scenario in ALL.items() if not scenario.ci] == ["internet"]


def test_the_plan_serves_a_victim_thirty_times_sooner_than_first_come_first_served() -> None:
    ours, theirs = (simulate(ALL[name]).figures["waits"]["victims"]["p2"] for name in ("elephant", "first_come"))
    assert theirs["p50_s"] >= 30 * ours["p50_s"]


def test_a_range_that_is_missed_and_a_figure_that_is_not_there_are_named() -> None:
    report = played(expect={"counts.succeed": [11, 12], "makespan_s": [0, 100], "pools.gpu.use": [0, 1]})
    first, second = report.missed
    assert first == "counts.succeed: 10 is not in [11, 12]"
    assert second.startswith("pools.gpu.use: the report has no such figure")

"""How the scenario eta judges forecasts: planted ones are told for what they are."""

import doctest

import pytest

from benchmarks.fairness.score import Part
from benchmarks.foretold import judge, load
from benchmarks.foretold.judge import Told


def told(p50_s: float, p90_s: float, actual_s: float, plain_s: float = 10.0, priority: int = 2) -> Told:
    return Told(p50_s=p50_s, p90_s=p90_s, actual_s=actual_s, plain_s=plain_s, priority=priority)


def test_coverage_is_the_share_of_starts_no_later_than_was_said() -> None:
    some = [told(10.0, 20.0, actual_s) for actual_s in (5.0, 10.0, 15.0, 25.0)]
    assert (judge.coverage(some, "p50_s"), judge.coverage(some, "p90_s")) == (0.5, 0.75)
    assert judge.coverage([], "p90_s") is None


def test_the_loss_of_a_true_forecast_is_less_than_that_of_a_number_that_is_off() -> None:
    some = [told(10.0, 12.0, actual_s, plain_s=30.0) for actual_s in (9.0, 10.0, 11.0)]
    ours_s, plain_s = judge.loss_s(some), judge.loss_s(some, plain=True)
    assert ours_s is not None and plain_s is not None and ours_s < plain_s / 5
    assert judge.figures(some)["pinball_vs_plain"] == pytest.approx(ours_s / plain_s, abs=1e-3)


def test_the_width_leaves_out_what_hardly_waited() -> None:
    assert judge.width([told(0.01, 9.0, 1.0), told(10.0, 25.0, 1.0)]) == 2.5
    assert judge.width([told(0.01, 9.0, 1.0)]) is None


def test_no_forecast_at_all_is_no_figure() -> None:
    found = judge.figures([])
    assert (found["n"], found["p90_coverage"], found["pinball_vs_plain"], found["by_priority"]) == (0, None, None, {})


def test_every_task_of_the_load_has_a_number_and_each_pool_its_share_of_work() -> None:
    for_s = 1200.0
    arrivals = load.arrivals(for_s, seed=3)
    assert arrivals == load.arrivals(for_s, seed=3) != load.arrivals(for_s, seed=4)
    parts: list[Part] = [part for arrival in arrivals for part in arrival.parts]
    assert sorted(part.first for part in parts) == list(range(1, len(parts) + 1))
    for pool, slots in load.SLOTS.items():
        work_s = sum(part.duration_s for part in parts if part.kind.endswith(f".{pool}"))
        assert work_s / (slots * for_s) == pytest.approx(load.STEADY_RATIO + load.RUN_RATIO, rel=0.15)
    assert {arrival.tenant for arrival in arrivals} == set(load.TENANTS)
    assert all(part.duration_s > 0 for part in parts), "a body that doesn't last leaves no line when it begins"


def test_the_examples_hold() -> None:
    assert doctest.testmod(judge).failed == 0

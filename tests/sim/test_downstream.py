"""Providers behind permits in the simulated world: the limit learns the quota, and what it refuses costs no attempt."""

from typing import Any

import pytest

from harness.policy.errors import Invalid
from tests.sim.scenes import played, scene

MODEL: dict[str, Any] = {
    "pools": {"llm": {"slots": 16}},
    "providers": {"model": {"quota": 10}},
    "kinds": {"step": {"pool": "llm", "mean_s": 2.0, "law": "lognormal", "sigma": 0.5, "calls": "model"}},
    "work": [{"tenants": "a", "kind": "step", "arrivals": "at", "batch": 1500}],
    "duration_s": 200.0,
    "drain": False,
    "measure": {"from_s": 60.0},
}


def test_a_quota_that_nobody_told_is_found_used_and_hardly_ever_exceeded() -> None:
    figures = played(**MODEL).figures
    found = figures["calls"]["model"]
    assert found["use"] >= 0.93
    assert found["rate_429"] <= 0.015
    assert found["most_in_flight"] == 10
    assert figures["counts"]["bury"] == figures["counts"]["fail"] == 0, "a refusal costs no attempt"
    assert found["goodput"] == pytest.approx(found["use"], abs=0.02)


def test_a_quota_that_falls_is_found_again_and_all_work_gets_done() -> None:
    more = {"providers": {"model": {"quota": [[0, 10], [60, 4]]}}, "measure": {"from_s": 90.0}}
    found = played(**(MODEL | more)).figures["calls"]["model"]
    assert found["use"] >= 0.9 and found["rate_429"] <= 0.03
    assert found["most_in_flight"] == 4


def test_a_fixed_limit_below_the_quota_is_never_refused_and_one_above_often() -> None:
    careful = MODEL | {"providers": {"model": {"quota": 10, "limiter": "fixed", "capacity": 8}}}
    careless = MODEL | {"providers": {"model": {"quota": 10, "limiter": "fixed", "capacity": 16}}}
    few, many = (played(**one).figures["calls"]["model"] for one in (careful, careless))
    assert few["rate_429"] == 0 and few["most_in_flight"] == 8
    assert many["rate_429"] > 0.2


def test_while_a_provider_is_down_its_breaker_keeps_calls_away_and_no_task_is_lost() -> None:
    more = {"providers": {"model": {"quota": 10, "down": [[30, 90]]}}, "drain": True, "measure": {"from_s": 0.0}}
    work = [{"tenants": "a", "kind": "step", "arrivals": "at", "batch": 600}]
    figures = played(**(MODEL | more | {"work": work})).figures
    assert figures["counts"]["succeed"] + figures["counts"]["bury"] == 600
    assert figures["counts"]["bury"] <= 6
    assert figures["calls"]["model"]["failed"] <= 100, "of 60 s x 5/s and more, as failures come back fast"


def test_only_a_part_of_a_tasks_time_may_be_its_call() -> None:
    kinds = {"step": {"pool": "llm", "mean_s": 2.0, "calls": "model", "call_ratio": 0.5}}
    figures = played(**(MODEL | {"kinds": kinds, "pools": {"llm": {"slots": 12}}})).figures
    assert figures["calls"]["model"]["use"] == pytest.approx(0.6, abs=0.1), "12 slots, half of each in calls, of 10"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"providers": {"model": {"quota": 10, "limiter": "magic"}}}, "providers.model.limiter"),
        ({"providers": {"model": {"quota": 10, "floor": 41}}}, "providers.model.floor"),
        ({"providers": {"model": {"quota": 10, "down": [[5, 1]]}}}, "providers.model.down"),
        ({"providers": {"other": {"quota": 10}}}, "kinds.step.calls"),
        ({"cells": {"number": 2}, "tenants": {"a": {"number": 2}}}, "providers"),
        ({"admission": True}, "admission"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_key(more: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        scene(**(MODEL | more))
    assert refused.value.field == field

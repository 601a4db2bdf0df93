"""The simulator tells the truth where the truth is known: queueing theory, conservation of work, repetition."""

from math import factorial

import pytest

from harness.sim.report import simulate
from tests.sim.scenes import played, scene

IDEAL = {"coalesce_s": 0, "hop_s": 0}


def erlang_c_wait_s(rate: float, mean_s: float, servers: int) -> float:
    """The mean wait in M/M/c."""
    load = rate * mean_s
    rho = load / servers
    last = load**servers / (factorial(servers) * (1 - rho))
    waits = last / (sum(load**k / factorial(k) for k in range(servers)) + last)
    return waits * mean_s / (servers * (1 - rho))


@pytest.mark.parametrize(
    ("servers", "rho", "seed"), [(1, 0.6, 1), (1, 0.6, 2), (4, 0.75, 1), (4, 0.75, 2), (10, 0.85, 1)]
)
def test_waits_are_those_of_erlang(servers: int, rho: float, seed: int) -> None:
    rate, tasks = rho * servers, 30_000
    scenario = scene(
        duration_s=tasks / rate,
        pools={"llm": {"slots": servers}},
        kinds={"step": {"pool": "llm", "mean_s": 1.0, "law": "exponential"}},
        work=[{"tenants": "a", "kind": "step", "arrivals": "poisson", "rate_per_s": rate}],
        measure={"from_s": 50},
        dispatcher=IDEAL,
    )
    figures = simulate(scenario, seed=seed).figures
    assert figures["waits"]["a"]["p2"]["mean_s"] == pytest.approx(erlang_c_wait_s(rate, 1.0, servers), rel=0.08)
    assert figures["pools"]["llm"]["use"] == pytest.approx(rho, rel=0.03)


def test_no_slot_idles_while_something_waits_and_no_work_is_lost() -> None:
    kinds = {"step": {"pool": "llm", "mean_s": 0.7, "law": "lognormal", "sigma": 1.0}}
    work = [{"tenants": "a", "kind": "step", "arrivals": "poisson", "rate_per_s": 3.0, "batch": 3}]
    figures = played(kinds=kinds, work=work, pools={"llm": {"slots": 7}}, dispatcher=IDEAL).figures
    assert figures["pools"]["llm"]["use_while_wanted"] == pytest.approx(1.0, abs=1e-9)
    counts = figures["counts"]
    assert counts["submitted"] == counts["starts"] == counts["succeed"]


def test_the_makespan_of_fixed_work_is_its_sum_over_the_slots() -> None:
    figures = played(work=[{"tenants": "a", "kind": "step", "arrivals": "at", "batch": 40}], dispatcher=IDEAL).figures
    assert figures["makespan_s"] == pytest.approx(20.0)
    assert figures["classes"]["p2"]["slot_s"] == pytest.approx(40.0)


def test_the_same_seed_gives_the_same_report_and_another_seed_another() -> None:
    kinds = {
        "step": {"pool": "llm", "mean_s": 1.0, "law": "lognormal", "sigma": 1.0, "failures": {"server_error": 0.2}}
    }
    work = [{"tenants": "a", "kind": "step", "arrivals": "poisson", "rate_per_s": 1.5}]
    losses = [{"at_s": 30, "pool": "llm", "slots": 1}]
    scenario = scene(kinds=kinds, work=work, losses=losses)
    first, again, other = (simulate(scenario, seed=seed).figures for seed in (1, 1, 2))
    for figures in (first, again, other):
        del figures["cost"], figures["seed"]
    assert first == again
    assert first != other


def test_one_work_more_changes_nothing_of_what_another_brings() -> None:
    one = {"tenants": "a", "kind": "step", "arrivals": "poisson", "rate_per_s": 0.5}
    alone = played(work=[one], pools={"llm": {"slots": 1000}}).figures
    beside = played(work=[one, one | {"priority": "p1"}], pools={"llm": {"slots": 1000}}).figures
    assert alone["waits"]["a"]["p2"]["n"] == beside["waits"]["a"]["p2"]["n"]


def test_first_come_is_first_served() -> None:
    tenants = {"a": {"cap": 1}, "b": {}}
    work = [
        {"tenants": "a", "kind": "step", "arrivals": "at", "batch": 10, "priority": "p3"},
        {"tenants": "b", "kind": "step", "arrivals": "at", "at_s": 0.5, "priority": "p0"},
    ]
    figures = played(plan="first_come", tenants=tenants, work=work, dispatcher=IDEAL).figures
    assert figures["waits"]["b"]["p0"]["max_s"] == pytest.approx(4.5)
    assert played(tenants=tenants, work=work, dispatcher=IDEAL).figures["waits"]["b"]["p0"]["max_s"] == 0.0


def test_cells_share_out_tenants_and_slots_and_nothing_is_counted_twice() -> None:
    tenants = {"a": {"number": 10}}
    figures = played(tenants=tenants, cells={"number": 4}, pools={"llm": {"slots": 10}}).figures
    assert figures["counts"]["succeed"] == 100
    assert len(figures["by_cell"]) == 4
    assert figures["groups"]["a"]["tenants"] == 10
    assert figures["groups"]["a"]["most_in_flight"] == 3

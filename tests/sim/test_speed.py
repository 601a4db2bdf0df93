"""Speed by ratios, which a busy machine doesn't change; the figures themselves are `script/bench simulator`'s."""

from harness.sim.report import simulate
from tests.sim.scenes import scene

TASKS = 4000


def cpu_s(flows: int, *, backlog: int = 0) -> float:
    """What so many tasks cost with so many flows waiting, beside an elephant's backlog."""
    work = [{"tenants": "many", "kind": "step", "arrivals": "at", "batch": -(-TASKS // flows)}]
    if backlog:
        work.append({"tenants": "a", "kind": "step", "arrivals": "at", "batch": backlog})
    scenario = scene(
        duration_s=TASKS / 50,
        drain=False,
        pools={"llm": {"slots": 50}},
        kinds={"step": {"pool": "llm", "mean_s": 1.0, "law": "lognormal", "sigma": 1.0}},
        tenants={"many": {"number": flows}, "a": {}},
        work=work,
    )
    cost = simulate(scenario).figures["cost"]
    return float(cost["tick_mean_ms"])


def test_a_tick_over_ten_thousand_flows_costs_little_more_than_over_a_hundred() -> None:
    assert cpu_s(10_000) <= 5 * cpu_s(100)


def test_a_tick_does_not_know_the_backlog() -> None:
    assert cpu_s(100, backlog=50_000) <= 3 * cpu_s(100, backlog=500)

"""simulator: how many tasks a second of one core it plays, over few and many flows, and what a tick's planning costs.

Needs no server. The figures are of CPU time of this process, so that a neighbour disturbs them little; the waits that
come out are no figures of Harness.
"""

from typing import Any

from benchmarks.bench import Bench
from benchmarks.statistics_of_runs import spread
from harness.sim.parse import parse
from harness.sim.report import simulate

TASKS, QUICK_TASKS = 40_000, 4_000
# flows, slots, load: an underload, an overload in which all flows wait, many slots, and the same over 10,000 flows
SHAPES = (
    ("flows_100_load_09", 100, 50, 0.9),
    ("flows_100_load_12", 100, 50, 1.2),
    ("flows_100_slots_1000", 100, 1000, 1.5),
    ("flows_10000_load_50", 10_000, 50, 50.0),
    ("flows_10000_slots_1000", 10_000, 1000, 3.0),
)


def run(bench: Bench) -> dict[str, Any]:
    """Play each shape once a round and return the JSON: tasks a second and a tick's ms, by shape."""
    tasks = QUICK_TASKS if bench.quick else TASKS
    rates: dict[str, list[float]] = {name: [] for name, *_ in SHAPES}
    ticks: dict[str, list[float]] = {name: [] for name, *_ in SHAPES}
    for number in range(bench.pairs):
        for name, flows, slots, load in SHAPES:
            cost = simulate(_scenario(tasks, flows, slots, load), seed=number).figures["cost"]
            rates[name].append(cost["tasks_per_s"])
            ticks[name].append(cost["tick_mean_ms"])
    found = {name: (spread(rates[name]), spread(ticks[name])) for name in rates}
    rows = [(name, str(rate), str(tick)) for name, (rate, tick) in found.items()]
    bench.table(f"simulator, {tasks:,} tasks, one core", ("shape", "tasks/s", "ms a tick"), rows)
    return {
        "tasks": tasks,
        "tasks_per_s": {name: rate.as_json() for name, (rate, _) in found.items() if rate},
        "tick_ms": {name: tick.as_json() for name, (_, tick) in found.items() if tick},
    }


def _scenario(tasks: int, flows: int, slots: int, load: float) -> Any:
    step = {"pool": "llm", "mean_s": 1.0, "law": "lognormal", "sigma": 1.0}
    rate = load * slots / flows
    return parse(
        {
            "title": "speed",
            "duration_s": tasks / (load * slots),
            "pools": {"llm": {"slots": slots}},
            "kinds": {"step": step},
            "tenants": {"tenants": {"number": flows}},
            "work": [{"tenants": "tenants", "kind": "step", "arrivals": "poisson", "rate_per_s": rate}],
        },
        name="simulator",
    )

"""guards: what trigger, trace and audit cost: the same drains with and without them, in turn.

CPU of all processes for 1,000 tasks of the drain. The audit looks every 30 s in daily use; here it looks as often, so
that a drain of some seconds has at most one round of it.
"""

from collections import defaultdict
from dataclasses import asdict
from typing import Any

from benchmarks import bare, product
from benchmarks.bench import Bench, in_turn
from benchmarks.scenarios.throughput import QUICK_TASKS, Drain, drain
from benchmarks.statistics_of_runs import pairwise, spread

FORMS = ("bundled", "unbundled")
WHOLE = {
    "bundled": product.arm("harness_bundled", kind="noop", drain=40_000),
    "unbundled": product.arm("harness_unbundled", kind="noop.single", drain=6_000),
}
BARE = {
    "bundled": product.arm("bare_bundled", kind="noop", drain=40_000, environment=bare.ENVIRONMENT),
    "unbundled": product.arm("bare_unbundled", kind="noop.single", drain=6_000, environment=bare.ENVIRONMENT),
}


def run(bench: Bench) -> dict[str, Any]:
    """Measure both forms with and without guards and return the JSON: `guards_cpu_ratio` by form (1.10 = 10 % more)."""
    arms, skipped = bench.choose((*WHOLE.values(), *BARE.values()))
    drains = [
        drain(bench, arm, number, QUICK_TASKS if bench.quick else arm.drain)
        for number in range(bench.pairs)
        for arm in in_turn(arms, number)
    ]
    cpu: dict[str, dict[int, float]] = defaultdict(dict)
    for one in drains:
        if one.cpu_s_per_1000 is not None:
            cpu[one.arm][one.round] = one.cpu_s_per_1000
    report: dict[str, Any] = {
        "drains": [asdict(one) for one in drains],
        "skipped": [asdict(one) for one in skipped],
        "cpu_s_per_1000": {name: _median(list(found.values())) for name, found in cpu.items()},
        "row_writes_per_task": {arm.name: _writes(drains, arm.name) for arm in arms},
        "guards_cpu_ratio": {},
    }
    rows = []
    for form in FORMS:
        ratio = pairwise(cpu[WHOLE[form].name], cpu[BARE[form].name])
        report["guards_cpu_ratio"][form] = ratio and ratio.as_json()
        rows.append([form, ratio, *(report["cpu_s_per_1000"].get(of[form].name) for of in (WHOLE, BARE))])
    bench.table("trigger, trace and audit", ["form", "CPU with / without", "s per 1,000", "without"], rows)
    return report


def _median(values: list[float]) -> float | None:
    found = spread(values)
    return round(found.median, 3) if found else None


def _writes(drains: list[Drain], arm: str) -> float | None:
    return _median(
        [one.row_writes_per_task for one in drains if one.arm == arm and one.row_writes_per_task is not None]
    )

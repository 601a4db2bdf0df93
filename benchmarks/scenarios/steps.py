"""steps: what a step costs by itself: its begin and its finish, both committed, around a function that does nothing.

Measured by the kind that takes the steps: one task alone, then all slots of a worker at once.
"""

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import machine, product
from benchmarks.bench import Bench
from benchmarks.kinds.stepping.kind import STEPS
from benchmarks.statistics_of_runs import quantile, spread

POOL = "tool_read"
ALONE, BUSY = "alone", "busy"
TASKS = {ALONE: 5, BUSY: 24}
QUICK_TASKS = {ALONE: 1, BUSY: 8}
PATIENCE_S = 120.0
ARM = product.arm("harness_steps", kind="bench.stepping", pools=(POOL,))


@dataclass(frozen=True, kw_only=True, slots=True)
class Stepped:
    """One run; times in milliseconds a step."""

    round: int
    steps: int
    alone_p50_ms: float
    alone_p95_ms: float
    busy_p50_ms: float
    busy_p95_ms: float
    busy_steps_per_s: float
    idle_before: float


def run(bench: Bench) -> dict[str, Any]:
    """Measure and return the JSON."""
    arms, skipped = bench.choose((ARM,))
    runs = [measure(bench, number) for number in range(bench.pairs) if arms]
    report: dict[str, Any] = {"runs": [asdict(one) for one in runs], "skipped": [asdict(one) for one in skipped]}
    for key in ("alone_p50_ms", "alone_p95_ms", "busy_p50_ms", "busy_p95_ms", "busy_steps_per_s"):
        found = spread([getattr(one, key) for one in runs])
        report[key] = found and round(found.median, 2)
        report[f"{key}_spread"] = found and found.as_json()
    bench.table(
        "A step, ms",
        ["round", "alone p50", "p95", "all slots p50", "p95", "steps/s", "idle before"],
        [
            [
                *(one.round, one.alone_p50_ms, one.alone_p95_ms, one.busy_p50_ms, one.busy_p95_ms),
                *(one.busy_steps_per_s, one.idle_before),
            ]
            for one in runs
        ],
    )
    return report


def measure(bench: Bench, number: int) -> Stepped:
    """Measure one run."""
    tasks = QUICK_TASKS if bench.quick else TASKS
    with bench.stage(ARM) as stage:
        stage.drive("reset")
        stage.start()
        stage.drive("submit", tag="warm", n=1)
        stage.wait("warm", 1, PATIENCE_S)
        idle = machine.await_quiet(bench.patience_s)
        for n in range(tasks[ALONE]):
            stage.drive("submit", tag=f"{ALONE}{n}", n=1)
            stage.wait(f"{ALONE}{n}", 1, PATIENCE_S)
        stage.drive("submit", tag=BUSY, n=tasks[BUSY], many=True)
        stage.wait(BUSY, tasks[BUSY], PATIENCE_S)
        lines = stage.log.read(BUSY)
        alone: list[float] = stage.drive("step_times", tags=[f"{ALONE}{n}" for n in range(tasks[ALONE])])["ms"]
        busy: list[float] = stage.drive("step_times", tags=[BUSY])["ms"]
    took_s = max(one.ended_s for one in lines) - min(one.started_s for one in lines)
    measured = Stepped(
        round=number,
        steps=len(alone) + len(busy),
        alone_p50_ms=round(quantile(alone, 0.5), 2),
        alone_p95_ms=round(quantile(alone, 0.95), 2),
        busy_p50_ms=round(quantile(busy, 0.5), 2),
        busy_p95_ms=round(quantile(busy, 0.95), 2),
        busy_steps_per_s=round(len(lines) * STEPS / took_s, 1),
        idle_before=idle,
    )
    bench.say(f"alone p50 {measured.alone_p50_ms} ms, all slots p50 {measured.busy_p50_ms} ms, idle before {idle}")
    return measured

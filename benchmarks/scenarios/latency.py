"""latency: pick-up at 20 tasks a second on an idle system, Celery beside it.

A pick-up lasts from the return of the submit (for Harness: its commit) to the first line of the body. Celery's
message is out before its submit returns, which flatters it here; `from_call_p50_ms` counts from the call instead.
"""

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import machine, product
from benchmarks.arms import CELERY, Arm
from benchmarks.bench import Bench, in_turn
from benchmarks.effects import Effect
from benchmarks.statistics_of_runs import pairwise, quantile, spread

RATE_PER_S = 20.0
TASKS, QUICK_TASKS = 300, 40
WARM_TASKS = 8  # the first message opens channels and connections, which is start-up and not pick-up
PATIENCE_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PickUp:
    """One run of one arm; times in milliseconds."""

    arm: str
    round: int
    n: int
    done: int
    done_twice: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    from_call_p50_ms: float
    idle_before: float


def run(bench: Bench) -> dict[str, Any]:
    """Measure both arms in turn and return the JSON."""
    ours = product.UNBUNDLED
    arms, skipped = bench.choose((CELERY, ours))
    runs = [pick_up(bench, arm, number) for number in range(bench.pairs) for arm in in_turn(arms, number)]
    report: dict[str, Any] = {"runs": [asdict(one) for one in runs], "skipped": [asdict(one) for one in skipped]}
    for arm in arms:
        mine = [one for one in runs if one.arm == arm.name]
        figures: dict[str, Any] = {}
        for key in ("p50_ms", "p95_ms", "p99_ms", "max_ms", "from_call_p50_ms"):
            summary = spread([getattr(one, key) for one in mine])
            figures[key] = summary and round(summary.median, 2)
            figures[key + "_spread"] = summary and summary.as_json()
        if arm.name == ours.name:
            report |= figures
        else:
            report[arm.name] = figures
    for name, key in (("p50_vs_celery", "p50_ms"), ("from_call_p50_vs_celery", "from_call_p50_ms")):
        ratio = pairwise(_by_round(runs, ours, key), _by_round(runs, CELERY, key))
        report[name] = ratio and round(ratio.median, 2)
        report[f"{name}_spread"] = ratio and ratio.as_json()
    bench.table(
        f"Pick-up at {RATE_PER_S:.0f}/s, ms",
        ["arm", "round", "p50", "p95", "p99", "max", "p50 from call", "done", "idle before"],
        [
            [
                *(one.arm, one.round, one.p50_ms, one.p95_ms, one.p99_ms, one.max_ms, one.from_call_p50_ms),
                *(f"{one.done}/{one.n}", one.idle_before),
            ]
            for one in runs
        ],
    )
    return report


def pick_up(bench: Bench, arm: Arm, number: int) -> PickUp:
    """Measure one run of one arm."""
    n = QUICK_TASKS if bench.quick else TASKS
    with bench.stage(arm) as stage:
        stage.drive("reset")
        stage.start()
        stage.drive("submit", tag="warm", n=WARM_TASKS)
        stage.wait("warm", WARM_TASKS, PATIENCE_S)
        idle = machine.await_quiet(bench.patience_s)
        returned_s: list[float] = stage.drive("pace", tag="paced", n=n, rate_per_s=RATE_PER_S)["returned_s"]
        stage.wait("paced", n, PATIENCE_S)
        found = stage.log.read("paced")
    first: dict[int, Effect] = {}
    for effect in found:  # ordered by start
        first.setdefault(effect.i, effect)
    waits_ms = [1000 * (one.started_s - returned_s[one.i]) for one in first.values()] or [float("nan")]
    whole_ms = [1000 * (one.started_s - one.submitted_s) for one in first.values()] or [float("nan")]
    measured = PickUp(
        arm=arm.name,
        round=number,
        n=n,
        done=len(first),
        done_twice=len(found) - len(first),
        p50_ms=round(quantile(waits_ms, 0.5), 2),
        p95_ms=round(quantile(waits_ms, 0.95), 2),
        p99_ms=round(quantile(waits_ms, 0.99), 2),
        max_ms=round(max(waits_ms), 2),
        from_call_p50_ms=round(quantile(whole_ms, 0.5), 2),
        idle_before=idle,
    )
    bench.say(f"{arm.name}: p50 {measured.p50_ms} ms, p95 {measured.p95_ms} ms, idle before {idle}")
    return measured


def _by_round(runs: list[PickUp], arm: Arm, key: str) -> dict[int, float]:
    return {one.round: getattr(one, key) for one in runs if one.arm == arm.name}

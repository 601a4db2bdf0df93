"""slots: 50 slots kept full by work that waits; the makespan against the ideal, Celery's threads beside it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks import machine, product
from benchmarks.arms import CELERY_THREADS, Arm
from benchmarks.bench import Bench, in_turn
from benchmarks.stage import Stage
from benchmarks.statistics_of_runs import spread

SLOTS = 50
POOL = "tool_read"  # threads, and where the kind noop.sleep runs
SHAPES = {"500 x 1 s": (500, 1.0), "2000 x 100 ms": (2000, 0.1)}
QUICK_SHAPES = {"100 x 1 s": (100, 1.0), "200 x 100 ms": (200, 0.1)}
WARM_TASKS = SLOTS

OURS = product.arm(
    "harness_slots",
    kind="noop.sleep",
    pools=(POOL,),
    environment={"HARNESS_BENCH_SLOTS": json.dumps({POOL: SLOTS})},
)
# The same slots on two processes: a core, and an interpreter, for each.
OURS_TWO = product.arm(
    "harness_slots_2x25",
    kind="noop.sleep",
    pools=(POOL, POOL),
    environment={"HARNESS_BENCH_SLOTS": json.dumps({POOL: SLOTS // 2})},
)
THEIRS = replace(
    CELERY_THREADS, workers=tuple(command.replace("-c 10", f"-c {SLOTS}") for command in CELERY_THREADS.workers)
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Makespan:
    """One run: seconds from the first start to the last end, against n * duration / slots."""

    arm: str
    shape: str
    round: int
    n: int
    done: int
    done_twice: int
    at_once_max: int
    makespan_s: float
    vs_ideal: float
    idle_before: float


def run(bench: Bench) -> dict[str, Any]:
    """Measure both shapes on both arms in turn and return the JSON."""
    arms, skipped = bench.choose((THEIRS, OURS, OURS_TWO))
    shapes = QUICK_SHAPES if bench.quick else SHAPES
    runs = [
        one
        for number in range(bench.pairs)
        for arm in in_turn(arms, number)
        for one in makespans(bench, arm, number, shapes)
    ]
    report: dict[str, Any] = {
        "slots": SLOTS,
        "runs": [asdict(one) for one in runs],
        "skipped": [asdict(one) for one in skipped],
        "vs_ideal": {},
    }
    rows = []
    for arm in arms:
        report["vs_ideal"][arm.name] = {}
        for shape in shapes:
            mine = [one for one in runs if (one.arm, one.shape) == (arm.name, shape)]
            summary = spread([one.vs_ideal for one in mine])
            report["vs_ideal"][arm.name][shape] = summary and summary.as_json()
            rows.append(
                [arm.name, shape, summary, max(one.at_once_max for one in mine), min(o.idle_before for o in mine)]
            )
    bench.table(f"{SLOTS} slots: makespan / ideal", ["arm", "shape", "ratio", "at once", "idle before"], rows)
    return report


def makespans(bench: Bench, arm: Arm, number: int, shapes: Mapping[str, tuple[int, float]]) -> list[Makespan]:
    """Measure every shape on one arm: a warm worker, then n tasks at once."""
    with bench.stage(arm) as stage:
        stage.drive("reset")
        stage.start()
        stage.drive("submit", tag="warm", n=WARM_TASKS, duration_s=0.01, many=True)
        stage.wait("warm", WARM_TASKS, 30.0)
        return [_makespan(bench, stage, shape, number, index, *shapes[shape]) for index, shape in enumerate(shapes)]


def _makespan(bench: Bench, stage: Stage, shape: str, number: int, index: int, n: int, duration_s: float) -> Makespan:
    idle = machine.await_quiet(bench.patience_s)
    tag = f"slots{index}"
    stage.drive("submit", tag=tag, n=n, duration_s=duration_s, many=True)
    stage.wait(tag, n, 60.0)
    found = stage.log.read(tag)
    steps = sorted([(one.started_s, 1) for one in found] + [(one.ended_s, -1) for one in found])
    at_once = most = 0
    for _, step in steps:
        at_once += step
        most = max(most, at_once)
    took_s = max(one.ended_s for one in found) - found[0].started_s if found else float("nan")
    measured = Makespan(
        arm=stage.arm.name,
        shape=shape,
        round=number,
        n=n,
        done=len({one.i for one in found}),
        done_twice=len(found) - len({one.i for one in found}),
        at_once_max=most,
        makespan_s=round(took_s, 3),
        vs_ideal=round(took_s / (n * duration_s / SLOTS), 3),
        idle_before=idle,
    )
    bench.say(f"{stage.arm.name}, {shape}: {measured.vs_ideal} x ideal, idle before {idle}")
    return measured

"""eta: under a mixed load the API is asked all the time when tasks will start; then it is judged by when they did.

Three tenants, four priorities, two pools, tasks of 0.2 to 60 s, runs in bursts. The first forecast that a task was
given counts, so each task counts once; a start is the first line of its body. Beside it stands what others show,
backlog / rate: what waits in its pool over what has ended there in the last minute.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.drive import endless
from benchmarks.effects import BEGUN, DONE, Effect
from benchmarks.fairness.score import Arrival
from benchmarks.foretold import judge, load
from benchmarks.foretold.judge import Told
from benchmarks.foretold.reading import Forecast, Reader, forecast_of
from benchmarks.limits import arms
from benchmarks.scenarios.submit import Client
from benchmarks.storm.arms import web
from harness.ops.local.ports import free_port

PAIRS = 1
MINUTES, WARM_RATIO = 15.0, 0.3  # forecasts made before have had nothing to learn from
END_S = 120.0  # that those who wait may take after the last submission, to be judged
POLL_S, PAGES = 3.0, 3
RATE_OVER_S = 60.0  # of backlog / rate
MODULE = "benchmarks.product_eta"


def run(bench: Bench) -> dict[str, Any]:
    """Play it and return the JSON."""
    minutes = bench.minutes or MINUTES
    for_s, end_s, faster = (20.0, 10.0, 4.0) if bench.quick else (60 * minutes, min(END_S, 20 * minutes), 1.0)
    port = free_port()
    arm = arms.harness("harness_eta", slots=load.SLOTS, beat=str(bench.folder / "beat-eta"))
    with bench.stage(replace(arm, module=MODULE)) as stage:
        stage.drive("reset")
        stage.start()
        stage.start([web(port)])
        keys = stage.drive("make_tenants")
        readers = {name: Reader(port, key) for name, key in keys.items()}
        Client(port, next(iter(keys.values()))).wait_ready(stage)
        idle = machine.await_quiet(bench.patience_s)
        bench.say(f"{for_s:.0f} s of load, {end_s:.0f} s to end")
        began_s = time.time()
        stage.start([endless(MODULE, "blow", for_s=for_s, seed=bench.seed, faster=faster)])
        seen = _Seen()
        while time.time() < began_s + for_s + end_s:
            stage.check_alive()
            seen.look(readers)
            time.sleep(1.0 if bench.quick else POLL_S)
        numbers: dict[str, int] = stage.drive("numbers")["numbers"]
        begun, done = stage.log.read(load.TAG, BEGUN), stage.log.read(load.TAG, DONE)
        published = next(iter(readers.values())).get("/api/v1/forecasts")
    told, never = _judged(
        seen.first, numbers, begun, done, load.arrivals(for_s, seed=bench.seed, faster=faster),
        since_s=began_s + WARM_RATIO * for_s, now_s=time.time(),
    )  # fmt: skip
    report = judge.figures(told) | {
        "still_waiting": never,
        "forecasts": len(seen.first),
        "asked_of": len(seen.asked),
        "withheld": len(seen.asked - seen.first.keys()),
        "withheld_for": dict(Counter(why for task, why in seen.why.items() if task not in seen.first)),
        "published": published,
        "looks": seen.looks,
        "started": len({one.i for one in begun}),
        "submitted": len(numbers),
        "idle_before": idle,
    }
    keys_told = ("n", "p50_coverage", "p90_coverage", "p90_over_p50", "pinball_vs_plain", "withheld", "age_p95_s")
    bench.table("when tasks were said to start, and did", keys_told, [[report[key] for key in keys_told]])
    rows = [(name, *one.values()) for name, one in report["by_priority"].items()]
    bench.table("by priority", ("priority", "n", "p50", "p90"), rows)
    return report


class _Seen:
    """The first forecast of each task, and of which tasks one was asked for."""

    def __init__(self) -> None:
        self.first: dict[str, Forecast] = {}
        self.asked: set[str] = set()
        self.why: dict[str, str] = {}  # the last reason that stood instead of a range
        self.looks = 0

    def look(self, readers: Mapping[str, Reader]) -> None:
        """Ask once for all that wait."""
        self.looks += 1
        for reader in readers.values():
            read_s = time.time()
            for item in reader.waiting(PAGES):
                task = str(item["task_id"])
                if item["released"]:
                    continue
                self.asked.add(task)
                if task in self.first:
                    continue
                if (found := forecast_of(item, read_s)) is not None:
                    self.first[task] = found
                else:
                    self.why[task] = str((item.get("eta") or {}).get("reason"))


def _judged(
    first: Mapping[str, Forecast],
    numbers: Mapping[str, int],
    begun: Sequence[Effect],
    done: Sequence[Effect],
    arrivals: Sequence[Arrival],
    *,
    since_s: float,
    now_s: float,
) -> tuple[list[Told], int]:
    """Return the forecasts made since `since_s` with the truth, and how many still wait within their P90."""
    kinds = {part.first: part.kind for arrival in arrivals for part in arrival.parts}
    submitted_s = {one.i: one.submitted_s for one in begun}
    started_s: dict[int, float] = {}
    for one in begun:
        started_s[one.i] = min(started_s.get(one.i, math.inf), one.started_s)
    by_kind = {kind: {i for i, found in kinds.items() if found == kind} for kind in set(kinds.values())}
    ended_s = {kind: [one.ended_s for one in done if one.i in some] for kind, some in by_kind.items()}
    told, never = [], 0
    for one_forecast in first.values():
        i = numbers[one_forecast.task]
        if one_forecast.read_s < since_s:
            continue
        # One that still waits has waited at least until now: a miss if that is beyond its P90, else nothing is known.
        actual_s = started_s.get(i, now_s)
        if i not in started_s and now_s <= one_forecast.p90_s:
            never += 1
            continue
        some = by_kind[kinds[i]]
        plain_s = judge.plain_s(
            one_forecast.read_s,
            {n: at_s for n, at_s in submitted_s.items() if n in some},
            started_s,
            ended_s[kinds[i]],
            RATE_OVER_S,
        )
        if plain_s is None:
            continue
        read_s = one_forecast.read_s
        told.append(
            Told(
                p50_s=max(0.0, one_forecast.p50_s - read_s),
                p90_s=max(0.0, one_forecast.p90_s - read_s),
                actual_s=max(0.0, actual_s - read_s),
                plain_s=plain_s,
                priority=one_forecast.priority,
                age_s=max(0.0, read_s - one_forecast.made_s),
            )
        )
    return told, never

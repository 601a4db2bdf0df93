"""autoscale: a backlog grows while the provider answers 429 to everything, then there is room, then a square wave.

Harness's workers are started and drained as `manage.py autoscale` advises, Celery's as its expert would have it: by the
length of its queue. Then the sweep: workers are added one by one beside an endless backlog, and throughput is what the
provider answers.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from benchmarks import machine, product
from benchmarks.arms import Arm
from benchmarks.bench import Bench
from benchmarks.drive import endless
from benchmarks.limits import arms
from benchmarks.limits import judge as provider_judge
from benchmarks.limits.provider import Provider
from benchmarks.scaling import judge, rules
from benchmarks.scaling.fleet import Fleet
from benchmarks.scaling.rules import Advice
from benchmarks.stage import Stage

PAIRS = 1
QUOTA, CALL_S, SLOTS = 20, 2.0, 8  # so that three workers are enough
MOST = 8  # workers
MINUTES = 10.0  # of the square wave
SATURATED_S, ROOM_S = 120.0, 120.0
WITHIN_S = 60.0  # of room, until the count must be near the best
WAVES = 2
HIGH_RATIO, LOW_RATIO, BACKLOG_RATIO = 0.9, 0.1, 1.2  # of what the provider can do
SWEEP, SETTLE_S, MEASURE_S = (1, 2, 3, 4), 15.0, 40.0
KEYS = ("added_under_429", "workers", "best_workers", "near_after_s", "direction_changes")

Scaler = Callable[[Stage], Advice]


def run(bench: Bench) -> dict[str, Any]:
    """Play both arms at once, each on its own stack, then sweep; return the JSON."""
    names = [name for name in ("harness", "celery") if not bench.only or name in bench.only]
    idle = machine.await_quiet(bench.patience_s)
    swept = _sweep(bench)
    bench.say(f"sweep: {swept}")
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        futures = {name: pool.submit(_play, bench, name, judge.best(swept)) for name in names}
        found = {name: future.result() for name, future in futures.items()}
    report: dict[str, Any] = {"arms": found, "sweep_per_s": swept, "best_workers": judge.best(swept)}
    for name, prefix in (("harness", ""), ("celery", "celery_")):
        for key in KEYS:
            if key != "best_workers":
                report[prefix + key] = found.get(name, {}).get(key)
    report["idle_before"] = idle
    rows = [(name, *[one[key] for key in KEYS if key != "best_workers"]) for name, one in found.items()]
    bench.table(
        f"workers; {report['best_workers']} are enough", ("arm", *[k for k in KEYS if k != "best_workers"]), rows
    )
    for name, one in found.items():
        told = [(f"{at_s:.0f}", n, "held" if holds else "", why) for at_s, n, holds, _, why in one["advice"]]
        bench.table(f"{name}: advice", ("s", "workers", "", "why"), told)
    return report


def _arm(bench: Bench, name: str, provider: Provider) -> tuple[Arm, Callable[[int], str], str]:
    """Return an arm without workers of calls, the command line of its worker n, and the module that submits."""
    if name == "harness":
        arm = arms.harness("harness_autoscale", provider, slots={"llm": SLOTS}, processes=0, beat=_beat(bench))
        return arm, lambda n: product.worker("llm", n), arm.module
    arm = arms.celery("celery_autoscale", provider, threads={}, turn=1)
    return arm, lambda n: arms.celery_worker("call", SLOTS, str(n)), arm.module


def _beat(bench: Bench) -> str:
    return str(bench.folder / "beat-autoscale")


def _play(bench: Bench, name: str, best: int) -> dict[str, Any]:
    provider = Provider()
    arm, command, module = _arm(bench, name, provider)
    saturated_s, room_s, half_s = _spans(bench)
    per_s = QUOTA / CALL_S
    with bench.stage(arm) as stage:
        stage.drive("reset")
        provider.start(stage, quota=0, latency_s=CALL_S, retry_after_s=1.0, refusal_latency_s=0.05)
        stage.start()
        fleet = Fleet(stage, command)
        fleet.set(1)
        scaling = _Scaling(stage, fleet, _scaler(name), 3.0 if bench.quick else rules.EVERY_S)
        try:
            began_s = time.time()
            with _flowing(stage, fleet, module, "backlog", BACKLOG_RATIO * per_s):
                scaling.until(began_s + saturated_s)
                provider.change(quota=QUOTA)
                room_at_s = time.time()
                scaling.until(room_at_s + room_s)
            wave_at_s = time.time()
            for wave in range(WAVES):
                for ratio in (HIGH_RATIO, LOW_RATIO):
                    with _flowing(stage, fleet, module, f"wave{wave}{ratio}", ratio * per_s):
                        scaling.until(time.time() + half_s)
            end_s = time.time()
            told = provider.timeline()
        finally:
            fleet.close()
    rows = provider_judge.rows_of(told)
    counts = fleet.counts
    near_s = judge.near_after_s(counts, best, room_at_s, wave_at_s)
    return {
        "added_under_429": judge.added(counts, began_s, room_at_s),
        "workers": judge.at(counts, room_at_s + min(WITHIN_S, room_s)),
        "workers_max": max(count for _, count in counts),
        "near_after_s": near_s,
        "direction_changes": judge.direction_changes(counts, wave_at_s, end_s),
        "counts": [(round(at_s - began_s, 1), count) for at_s, count in counts],
        "advice": [
            (round(at_s - began_s, 1), one.desired, one.holds, one.binds, one.why) for at_s, one in scaling.told
        ],
        "rate_429": provider_judge.rate_429(rows),
        "answered": sum(row.answered for row in rows),
    }


class _Scaling:
    """Asks every so often, and has so many workers."""

    def __init__(self, stage: Stage, fleet: Fleet, scaler: Scaler, every_s: float) -> None:
        self._stage, self._fleet, self._scaler, self._every_s = stage, fleet, scaler, every_s
        self._due_s = time.time() + every_s
        self.told: list[tuple[float, Advice]] = []

    def until(self, at_s: float) -> None:
        """Go on until a moment."""
        while (now_s := time.time()) < at_s:
            self._stage.check_alive()
            if now_s >= self._due_s:
                self._due_s += self._every_s
                advice = self._scaler(self._stage)
                if not self.told or not advice.same(self.told[-1][1]):
                    self.told.append((time.time(), advice))
                here = self._fleet.count
                # Of no advice at all nothing follows; while it holds, nobody comes.
                wanted = max(1, min(MOST, advice.desired)) if advice.desired else here
                self._fleet.set(min(here, wanted) if advice.holds else wanted)
            time.sleep(max(0.0, min(0.25, at_s - now_s)))


def _scaler(name: str) -> Scaler:
    if name == "harness":
        return lambda stage: rules.harness(stage, "llm")
    rule = rules.ByLength(least=1, most=MOST)
    return lambda stage: rule.desired(rules.queue_length(stage.broker_url, "call"), time.time())


@contextmanager
def _flowing(stage: Stage, fleet: Fleet, module: str, tag: str, rate_per_s: float) -> Iterator[None]:
    """Submit calls at a rate meanwhile."""
    (process,) = stage.start([endless(module, "flow", of="call", tag=tag, rate_per_s=rate_per_s)])
    try:
        yield
    finally:
        fleet.release(process)


def _spans(bench: Bench) -> tuple[float, float, float]:
    """Return the seconds of 429, of room, and of half a wave. A wave of a few minutes has shorter ones before it."""
    if bench.quick:
        return 8.0, 10.0, 4.0
    minutes = bench.minutes or MINUTES
    shorter = 0.5 if minutes < 5 else 1.0
    return SATURATED_S * shorter, max(WITHIN_S + rules.EVERY_S, ROOM_S * shorter), 60 * minutes / (2 * WAVES)


def _sweep(bench: Bench) -> dict[int, float]:
    """Return what the provider answers a second beside so many workers, with an endless backlog."""
    provider = Provider()
    arm, command, module = _arm(bench, "harness", provider)
    sweep, settle_s, measure_s = ((1, 2), 2.0, 3.0) if bench.quick else (SWEEP, SETTLE_S, MEASURE_S)
    if bench.minutes and bench.minutes < 5:
        settle_s, measure_s = settle_s / 1.5, measure_s / 2
    found: dict[int, float] = {}
    with bench.stage(arm) as stage:
        stage.drive("reset")
        provider.start(stage, quota=QUOTA, latency_s=CALL_S, retry_after_s=1.0, refusal_latency_s=0.05)
        stage.start([endless(module, "feed", of="call", tag="sweep", keep=200)])
        stage.start()
        fleet = Fleet(stage, command)
        try:
            fleet.set(sweep[0])
            provider.await_calls(stage, 1)
            for count in sweep:
                fleet.set(count)
                since_s = float(provider.timeline()["passed_s"]) + settle_s
                _sleep(stage, settle_s + measure_s)
                told = provider.timeline()
                rows = provider_judge.between(provider_judge.rows_of(told), since_s, since_s + measure_s)
                found[count] = provider_judge.per_s(rows, told["every_s"], lambda row: row.answered)
        finally:
            fleet.close()
    return found


def _sleep(stage: Stage, for_s: float) -> None:
    until_s = time.monotonic() + for_s
    while (left_s := until_s - time.monotonic()) > 0:
        stage.check_alive()
        time.sleep(min(left_s, 1.0))

"""quota: a provider whose quota falls from 50 to 20 and comes back, with endless work; then one that refuses all.

Three columns: nothing but 429 is told (plain), the quota wanders by 10 % every 15 s (noise), a 429 asks to wait 2 s
(retry_after). Harness knows only a ceiling of 200; Celery's expert gave it as many threads as the quota has. All
figures are the provider's own, quarter by quarter of a second. Answers take 5 s on average (lognormal, sigma 1).
"""

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import machine
from benchmarks.arms import Arm
from benchmarks.bench import Bench
from benchmarks.drive import endless
from benchmarks.limits import arms, chart, judge
from benchmarks.limits.provider import Provider
from benchmarks.stage import Stage
from harness.policy.limits.csl import EPSILON

PAIRS = 1
SLOTS = 64
COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "plain": {"retry_after": "none"},
    "noise": {"retry_after": "none", "noise_ratio": 0.1, "noise_every_s": 15.0},
    "retry_after": {"retry_after": "seconds", "retry_after_s": 2.0},
}
SIGMA = 1.0
REFUSAL_S = 0.2
BEFORE_S, UNDER_S, AFTER_S = 60.0, 150.0, 60.0  # of the play in which all calls are refused
REACHED_S = 30.0  # after which the calls under a sustained 429 are counted
FLOOR_PER_S = 0.2  # what probing costs then: a call every 5 s
KEEP = 200  # tasks that wait, at least


def run(bench: Bench) -> dict[str, Any]:
    """Measure both arms in every column, then under a sustained 429, and return the JSON."""
    phases_s = _phases(bench)
    names = [name for name in COLUMNS if not bench.columns or name in bench.columns]
    report: dict[str, Any] = {"phases_s": phases_s, "quotas": _quotas(bench), "columns": {}, "sustained": {}}
    idle = machine.await_quiet(bench.patience_s)
    for who in ("harness", "celery"):
        if bench.only and who not in bench.only:
            continue
        bench.say(f"{who}: {', '.join(names)} at once, {sum(phases_s):.0f} s")
        for name, found in zip(names, _together(bench, who, names, phases_s), strict=True):
            report["columns"].setdefault(name, {})[who] = found
        if "sustained" in bench.columns or not bench.columns:
            bench.say(f"{who}: 429 to everything")
            report["sustained"][who] = _sustained(bench, who)
    report["idle_before"] = idle
    _headline(report, names)
    _print(bench, report)
    return report


def _together(bench: Bench, who: str, names: Sequence[str], phases_s: Sequence[float]) -> list[dict[str, Any]]:
    """Play several columns at the same time, each on a stack of its own: all of them wait nearly all the time."""
    plays = [(Provider(), name, turn) for turn, name in enumerate(names)]
    stages = [bench.stage(_arm(bench, who, provider, name, turn)) for provider, name, turn in plays]
    for stage in stages:  # one after the other: a fresh database is migrated
        stage.__enter__()
        stage.drive("reset")
    try:
        with ThreadPoolExecutor(len(plays)) as pool:
            futures = [
                pool.submit(_play, bench, stage, provider, name, phases_s)
                for stage, (provider, name, _) in zip(stages, plays, strict=True)
            ]
            return [future.result() for future in futures]
    finally:
        for stage in stages:
            stage.stop()


def _arm(bench: Bench, who: str, provider: Provider, name: str, turn: int) -> Arm:
    quota = _quotas(bench)[0]
    if who == "celery":
        return arms.celery(f"celery_{name}", provider, threads={"call": quota}, turn=turn)
    slots = round(quota * SLOTS / 50)
    beat = str(bench.folder / f"beat-{name}")
    return arms.harness(f"harness_{name}", provider, slots={"llm": slots}, beat=beat, turn=turn)


def _begin(bench: Bench, stage: Stage, provider: Provider, **behaviour: Any) -> None:
    """Start the provider, the work and the workers; the provider counts from the first call on."""
    mean_s, sigma = _service(bench)
    law = {"latency_s": mean_s / math.exp(sigma * sigma / 2), "sigma": sigma, "refusal_latency_s": REFUSAL_S}
    provider.start(stage, seed=bench.seed, quota=_quotas(bench)[0], **law, **behaviour)
    stage.start([endless(stage.arm.module, "feed", of="call", tag="q", keep=KEEP)])
    stage.start()
    provider.await_calls(stage)


def _play(bench: Bench, stage: Stage, provider: Provider, name: str, phases_s: Sequence[float]) -> dict[str, Any]:
    _begin(bench, stage, provider, **COLUMNS[name])
    began_s, at_s, steps = time.monotonic(), 0.0, []
    for quota, phase_s in zip(_quotas(bench), phases_s, strict=True):
        provider.change(quota=quota)
        steps.append(at_s)
        at_s += phase_s
        _sleep_until(stage, began_s + at_s)
    told, stats = provider.timeline(), provider.stats()
    rows, every_s = judge.between(judge.rows_of(told), 0.0, at_s), told["every_s"]
    mean_s, _ = _service(bench)
    return {
        "utilisation": judge.utilisation(rows),
        "rate_429": judge.rate_429(rows),
        **{
            f"{what}_{name}_s": measure(rows, every_s, since_s, until_s)
            for what, measure in (("t95", judge.followed_s), ("settled", judge.settled_s))
            for name, since_s, until_s in (
                ("start", 0.0, steps[1]),
                ("down", steps[1], steps[2]),
                ("up", steps[2], at_s),
            )
        },
        "t95_down_allowed_s": 1.5 * mean_s + 10,
        "t95_up_allowed_s": 2 * mean_s / (EPSILON * _quotas(bench)[1]) + 20,
        "by_phase": [
            {
                "quota": quota,
                "utilisation": judge.utilisation(judge.between(rows, since_s, since_s + phase_s)),
                "rate_429": judge.rate_429(judge.between(rows, since_s, since_s + phase_s)),
            }
            for quota, since_s, phase_s in zip(_quotas(bench), steps, phases_s, strict=True)
        ],
        "calls": sum(row.calls for row in rows),
        "answered": sum(row.answered for row in rows),
        "rejected_429": sum(row.rejected_429 for row in rows),
        "in_flight_max": stats["in_flight_max"],
    }


def _sustained(bench: Bench, who: str) -> dict[str, Any]:
    """Let the provider refuse everything for a while. `workers`: processes of the arm before and at its end."""
    provider = Provider()
    before_s, under_s, after_s = (4.0, 12.0, 4.0) if bench.quick else (BEFORE_S, UNDER_S, AFTER_S)
    reached_s = 6.0 if bench.quick else REACHED_S
    with bench.stage(_arm(bench, who, provider, "sustained", 0)) as stage:
        stage.drive("reset")
        _begin(bench, stage, provider, retry_after="none")
        began_s = time.monotonic()
        _sleep_until(stage, began_s + before_s)
        provider.change(quota=0)
        workers, postponed = [len(machine.descendants(stage.pids()))], [_postponed(stage, who)]
        _sleep_until(stage, began_s + before_s + under_s)
        workers.append(len(machine.descendants(stage.pids())))
        postponed.append(_postponed(stage, who))
        provider.change(quota=_quotas(bench)[0])
        _sleep_until(stage, began_s + before_s + under_s + after_s)
        told = provider.timeline()
    rows, every_s = judge.rows_of(told), told["every_s"]
    late = judge.between(rows, before_s + reached_s, before_s + under_s)
    up_s = before_s + under_s
    return {
        "calls_per_s_before": judge.per_s(judge.between(rows, 0.0, before_s), every_s, lambda row: row.calls),
        "calls_per_s_under_429": judge.per_s(late, every_s, lambda row: row.calls),
        "falls_after_s": judge.falls_below_s(rows, every_s, before_s, up_s, 1.2 * FLOOR_PER_S, reached_s),
        "in_flight_under_429": judge.per_s(late, every_s, lambda row: row.busy_s),
        "workers": workers,
        "postponed_per_s": round((postponed[1] - postponed[0]) / under_s, 2),
        "back_after_s": judge.settled_s(rows, every_s, up_s, up_s + after_s),
        "refused_at_s": [before_s, up_s],
        "calls_by_s": judge.by_second(rows, every_s, lambda row: row.calls),
        "in_flight_by_s": judge.by_second(rows, every_s, lambda row: row.busy_s),
    }


def _postponed(stage: Stage, who: str) -> int:
    """Return how often tasks have gone back in line so far; Celery's retries are seen by the provider."""
    return int(stage.drive("ends", of="call")["postponements"]) if who == "harness" else 0


def _phases(bench: Bench) -> list[float]:
    if bench.quick:
        return [10.0, 10.0, 10.0]
    return list(bench.phases_s) or [180.0, 180.0, 180.0]


def _quotas(bench: Bench) -> list[int]:
    return [10, 4, 10] if bench.quick else [50, 20, 50]


def _service(bench: Bench) -> tuple[float, float]:
    """Return mean and sigma of the provider's latency."""
    return (0.5, 0.3) if bench.quick else (5.0, SIGMA)


def _sleep_until(stage: Stage, at_s: float) -> None:
    while (left_s := at_s - time.monotonic()) > 0:
        stage.check_alive()
        time.sleep(min(left_s, 1.0))


def _headline(report: dict[str, Any], names: Sequence[str]) -> None:
    """Put what the issue asks for on top: the first column, Celery's with its prefix."""
    for who, prefix in (("harness", ""), ("celery", "celery_")):
        found = report["columns"].get(names[0], {}).get(who) if names else None
        for key in ("utilisation", "rate_429", "t95_down_s", "t95_up_s"):
            report[prefix + key] = found[key] if found else None
        report[f"{prefix}calls_per_s_under_429"] = report["sustained"].get(who, {}).get("calls_per_s_under_429")


def _print(bench: Bench, report: dict[str, Any]) -> None:
    keys = ("utilisation", "rate_429", "t95_start_s", "t95_down_s", "t95_up_s", "settled_down_s", "settled_up_s")
    rows = [
        (f"{name} {who}", *[found[key] for key in keys])
        for name, by_arm in report["columns"].items()
        for who, found in by_arm.items()
    ]
    title = f"quota {' -> '.join(map(str, report['quotas']))}, {' / '.join(f'{s:g}' for s in report['phases_s'])} s"
    bench.table(title, ("column", *keys), rows)
    columns = {
        "calls_per_s_before": "calls/s before",
        "calls_per_s_under_429": "under 429",
        "falls_after_s": "after s",
        "in_flight_under_429": "in flight",
        "postponed_per_s": "postponed/s",
        "back_after_s": "back s",
    }
    under = [(who, *[found[key] for key in columns]) for who, found in report["sustained"].items()]
    bench.table("429 to everything", ("arm", *columns.values()), under)
    if report["sustained"] and bench.history_path:
        path = bench.history_path.with_name(bench.history_path.name.replace(".history.json", ".svg"))
        path.write_text(chart.sustained(report["sustained"]), encoding="utf-8")
        bench.say(f"chart: {path}")

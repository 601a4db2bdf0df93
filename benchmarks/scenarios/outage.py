"""outage: a provider that is down for a minute while twice the work comes that it can take.

Retries are counted from the lines that each call leaves before it is sent (its task, its moment), calls and errors by
the provider itself, ends and attempts from the trace. `recovery_s` lasts from the provider's return until it answers
95 % of what it answered before, over 10 s.
"""

import time
from collections.abc import Sequence
from typing import Any

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.drive import endless
from benchmarks.effects import BEGUN, DONE, Effect
from benchmarks.limits import arms, judge
from benchmarks.limits.provider import Provider
from benchmarks.peers import FAILED
from benchmarks.stage import Stage

PAIRS = 1
QUOTA, CALL_S = 20, 2.0
LOAD = 2.0  # times what the provider can take
BEFORE_S, DOWN_S, AFTER_S = 60.0, 60.0, 240.0
FLOOR_PER_S = 0.5  # of the retry budget
OPEN_MOST_S = 120.0 * 1.2  # the longest that a breaker stays open
TAG = "calls"


def run(bench: Bench) -> dict[str, Any]:
    """Measure both arms and return the JSON."""
    found: dict[str, dict[str, Any]] = {}
    for name in ("harness", "celery"):
        if not bench.only or name in bench.only:
            bench.say(name)
            found[name] = _play(bench, name)
    report: dict[str, Any] = {"arms": found}
    for name, prefix in (("harness", ""), ("celery", "celery_")):
        for key in ("retry_ratio", "recovery_s"):
            report[prefix + key] = found[name][key] if name in found else None
    keys = ("retry_ratio", "retries", "retries_allowed", "recovery_s", "goodput_before", "goodput_after", "failed")
    bench.table("60 s without a provider", ("arm", *keys), [(k, *[v[key] for key in keys]) for k, v in found.items()])
    return report


def _play(bench: Bench, name: str) -> dict[str, Any]:
    provider = Provider()
    quota = 6 if bench.quick else QUOTA
    call_s = 0.3 if bench.quick else CALL_S
    before_s, down_s, after_s = (4.0, 5.0, 15.0) if bench.quick else (BEFORE_S, DOWN_S, AFTER_S)
    if name == "harness":
        arm = arms.harness("harness_outage", provider, slots={"llm": 2 * quota})
    else:
        arm = arms.celery("celery_outage", provider, threads={"call": quota})
    with bench.stage(arm) as stage:
        stage.drive("reset")
        idle = machine.await_quiet(bench.patience_s)
        provider.start(
            stage, quota=quota, latency_s=call_s, retry_after="none", error_status=503, refusal_latency_s=0.05
        )
        rate_per_s = LOAD * quota / call_s
        stage.start([endless(arm.module, "flow", of="call", tag=TAG, rate_per_s=rate_per_s)])
        stage.start()
        provider.await_calls(stage, quota)
        began_s, wall_s = time.monotonic(), time.time()
        _until(stage, began_s + before_s)
        provider.change(down=True)
        _until(stage, began_s + before_s + down_s)
        provider.change(down=False)
        _until(stage, began_s + before_s + down_s + after_s)
        told, stats = provider.timeline(), provider.stats()
        ends = stage.drive("ends", of="call") if name == "harness" else {}
        sent, done, failed = (stage.log.read(TAG, mark) for mark in (BEGUN, DONE, FAILED))
    up_s = before_s + down_s
    found = _figures(told, sent, (wall_s + before_s, wall_s + up_s), (before_s, up_s, up_s + after_s))
    errors = stats["errors"]
    found |= {
        "failed": ends["states"].get("failed_terminal", 0) if ends else len({one.i for one in failed}),
        "done": len({one.i for one in done}),
        "errors_seen": errors,
        "attempts_spent": ends.get("attempts_used"),
        # An attempt is spent by a call that failed, and by nothing else: not by a refusal, not by an open breaker.
        "attempts_without_a_call": max(0, ends["attempts_used"] - errors) if ends else None,
        "rate_429": round(stats["rejected_429"] / max(1, stats["calls"]), 4),
        "retries_allowed": round(0.1 * found["first_attempts"] + FLOOR_PER_S * (up_s + after_s), 1),
        "recovery_allowed_s": 60.0 + OPEN_MOST_S,
        "idle_before": idle,
    }
    return found


def _figures(
    told: dict[str, Any], sent: Sequence[Effect], down_s: tuple[float, float], phases_s: tuple[float, float, float]
) -> dict[str, Any]:
    """Return retries and goodput. `down_s`: epoch seconds; `phases_s`: when it went, came back, and the end."""
    rows, every_s = judge.rows_of(told), told["every_s"]
    gone_s, back_s, end_s = phases_s
    calls: dict[int, int] = {}
    for one in sent:
        calls[one.i] = calls.get(one.i, 0) + 1
    first = len(calls)
    retries = len(sent) - first
    before = judge.per_s(judge.between(rows, gone_s / 4, gone_s), every_s, lambda row: row.answered)
    after = judge.between(rows, back_s, end_s)
    width = round(min(judge.SETTLED_S, (end_s - back_s) / 2) / every_s)
    recovery_s = None
    for n in range(max(0, len(after) - width + 1)):
        if judge.per_s(after[n : n + width], every_s, lambda row: row.answered) >= 0.95 * before:
            recovery_s = round(after[n].begin_s - back_s, 2)
            break
    return {
        "first_attempts": first,
        "retries": retries,
        "retry_ratio": round(retries / max(1, first), 4),
        "recovery_s": recovery_s,
        "goodput_before": before,
        "goodput_after": judge.per_s(after[-width:], every_s, lambda row: row.answered),
        "calls_while_down": sum(down_s[0] <= one.started_s < down_s[1] for one in sent),
    }


def _until(stage: Stage, at_s: float) -> None:
    while (left_s := at_s - time.monotonic()) > 0:
        stage.check_alive()
        time.sleep(min(left_s, 1.0))

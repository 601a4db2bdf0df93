"""ratelimit: requests and tokens a minute, with estimates that are twice too high or twice too low, call by call.

The provider's buckets hold a minute's worth, so that a client without limits could send twice the rate in one: the
worst 60 s of what it let in are the client's doing. Harness knows the provider's RPM and TPM; Celery's expert charges
the same estimates to a leaky bucket in Redis.
"""

import json
import time
from typing import Any

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.drive import endless
from benchmarks.limits import arms, judge
from benchmarks.limits.provider import Provider

PAIRS = 1
QUOTA, CALL_S, SLOTS = 200, 1.0, 48
FOR_S = 180.0
RPM = 600
TPM, TOKENS, SPREAD = 600_000, 1000, 0.7
FREE = 1_000_000_000
KEEP = 200
# What binds: requests, or tokens. Estimates are right on average by their logarithm, 1.25 times too high by their sum.
PLAYS: dict[str, dict[str, Any]] = {"rpm": {"rpm": RPM}, "tpm": {"tpm": TPM}}


def run(bench: Bench) -> dict[str, Any]:
    """Measure both arms under each rate and return the JSON."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in ("harness", "celery"):
        if not bench.only or name in bench.only:
            for what in PLAYS:
                bench.say(f"{name}: {what}")
                found.setdefault(name, {})[what] = _play(bench, name, what)
    report: dict[str, Any] = {"arms": found}
    for name, prefix in (("harness", ""), ("celery", "celery_")):
        by_what = found.get(name)
        for what in PLAYS:
            report[f"{prefix}use_{what}"] = by_what[what]["use"] if by_what else None
        report[f"{prefix}worst_window"] = max(one["worst_window"] for one in by_what.values()) if by_what else None
        report[f"{prefix}rate_429"] = max(one["rate_429"] for one in by_what.values()) if by_what else None
    keys = ("use", "worst_window", "rate_429", "calls", "answered")
    rows = [(f"{name} {what}", *[one[key] for key in keys]) for name, by in found.items() for what, one in by.items()]
    bench.table("a rate a minute", ("arm", *keys), rows)
    return report


def _play(bench: Bench, name: str, what: str) -> dict[str, Any]:
    provider = Provider()
    for_s = 8.0 if bench.quick else FOR_S
    limits = PLAYS[what]
    if name == "harness":
        table = {"limiter": "fixed", "capacity": QUOTA} | limits
        arm = arms.harness(
            f"harness_{what}", provider, slots={"llm": SLOTS}, resource=table, tokens=TOKENS, spread=SPREAD, wrong=2.0
        )
    else:
        arm = arms.celery(
            f"celery_{what}",
            provider,
            threads={"call": SLOTS},
            environment={"HARNESS_BENCH_RATE": json.dumps(limits)},
            tokens=TOKENS,
            spread=SPREAD,
            wrong=2.0,
        )
    with bench.stage(arm) as stage:
        stage.drive("reset")
        idle = machine.await_quiet(bench.patience_s)
        provider.start(stage, quota=QUOTA, latency_s=CALL_S, burst_s=60.0, **({"rpm": FREE, "tpm": FREE} | limits))
        stage.start([endless(arm.module, "feed", of="call", tag="calls", keep=KEEP)])
        stage.start()
        provider.await_calls(stage)
        began_s = time.monotonic()
        while (left_s := began_s + for_s - time.monotonic()) > 0:
            stage.check_alive()
            time.sleep(min(left_s, 1.0))
        told, stats = provider.timeline(), provider.stats()
    rows, every_s = judge.rows_of(told), told["every_s"]
    tokens = stats["prompt_tokens"] + stats["completion_tokens"]
    amount, rate = (stats["accepted"], RPM) if what == "rpm" else (tokens, TPM)
    worst = stats["worst_minute_requests" if what == "rpm" else "worst_minute_tokens"]
    return {
        "use": round(amount / (rate * len(rows) * every_s / 60), 4),
        "worst_window": round(worst / rate, 4),
        "rate_429": round(stats["rejected_429"] / max(1, stats["calls"]), 4),
        "calls": stats["calls"],
        "answered": stats["answered"],
        "idle_before": idle,
    }

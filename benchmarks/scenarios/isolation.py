"""isolation: short local tasks beside a saturated provider. They wait from the submit to the first line of the body.

The provider takes 10 calls at a time of 2 s each, and endless calls wait. Local tasks of 10 ms come 10 a second.
Harness has its pools llm and tool_read; Celery has the same threads, once with one queue for all, once with two.
"""

import time
from typing import Any

from benchmarks import machine
from benchmarks.arms import Arm
from benchmarks.bench import Bench
from benchmarks.drive import endless
from benchmarks.limits import arms
from benchmarks.limits.provider import Provider
from benchmarks.statistics_of_runs import quantile

PAIRS = 1
QUOTA, CALL_S, REFUSAL_S = 10, 2.0, 0.2
CALL_SLOTS, LOCAL_SLOTS = 16, 8
PER_S, LOCAL_S = 10.0, 0.01
SATURATED_S, FOR_S = 20.0, 60.0
END_S = 30.0  # that the last local tasks may take
KEEP = 200
ARMS = ("harness", "celery_one_queue", "celery_two_queues")


def run(bench: Bench) -> dict[str, Any]:
    """Measure every arm and return the JSON."""
    found: dict[str, dict[str, Any]] = {}
    for name in ARMS:
        if not bench.only or name in bench.only:
            bench.say(name)
            found[name] = _play(bench, name)
    report: dict[str, Any] = {"arms": found}
    for name, key in zip(
        ARMS, ("local_wait_p95_s", "celery_one_queue_local_wait_p95_s", "celery_local_wait_p95_s"), strict=True
    ):
        report[key] = found[name]["wait_p95_s"] if name in found else None
    keys = ("wait_p50_s", "wait_p95_s", "started", "submitted", "calls_answered", "rate_429", "quota_used")
    rows = [(name, *[one[key] for key in keys]) for name, one in found.items()]
    bench.table("local tasks beside a saturated provider", ("arm", *keys), rows)
    return report


def _arm(name: str, provider: Provider) -> Arm:
    if name == "harness":
        return arms.harness("harness_isolation", provider, slots={"llm": CALL_SLOTS, "tool_read": LOCAL_SLOTS})
    if name == "celery_one_queue":
        threads = {"celery": CALL_SLOTS + LOCAL_SLOTS}
        return arms.celery(name, provider, threads=threads, environment={"HARNESS_BENCH_ONE_QUEUE": "1"})
    return arms.celery(name, provider, threads={"call": CALL_SLOTS, "local": LOCAL_SLOTS})


def _play(bench: Bench, name: str) -> dict[str, Any]:
    provider = Provider()
    saturated_s, for_s = (3.0, 5.0) if bench.quick else (SATURATED_S, FOR_S)
    n = round(for_s * PER_S)
    with bench.stage(_arm(name, provider)) as stage:
        stage.drive("reset")
        idle = machine.await_quiet(bench.patience_s)
        provider.start(stage, quota=QUOTA, latency_s=CALL_S, retry_after_s=1.0, refusal_latency_s=REFUSAL_S)
        stage.start([endless(stage.arm.module, "feed", of="call", tag="calls", keep=KEEP)])
        stage.start()
        provider.await_calls(stage, QUOTA)
        time.sleep(saturated_s)
        stage.start(
            [endless(stage.arm.module, "flow", of="local", tag="local", rate_per_s=PER_S, n=n, duration_s=LOCAL_S)]
        )
        stage.wait("local", n, for_s + (5.0 if bench.quick else END_S))
        told, stats = provider.timeline(), provider.stats()
        # What never began waited at least until now; the flow submits in order, so its latest number says how many.
        began = stage.log.read("local", "S")
        now_s = time.time()
    waits_s = [max(0.0, one.started_s - one.submitted_s) for one in began]
    first_s = min((one.submitted_s for one in began), default=now_s)
    seen = {one.i for one in began}
    waits_s += [max(0.0, now_s - first_s - i / PER_S) for i in range(n) if i not in seen]
    busy_s = sum(row[told["columns"].index("busy_s")] for row in told["rows"])
    quota_s = sum(row[told["columns"].index("quota_s")] for row in told["rows"])
    return {
        "wait_p50_s": round(quantile(waits_s, 0.5), 3),
        "wait_p95_s": round(quantile(waits_s, 0.95), 3),
        "started": len(seen),
        "submitted": n,
        "calls_answered": stats["answered"],
        "rate_429": round(stats["rejected_429"] / max(1, stats["calls"]), 4),
        "quota_used": round(busy_s / quota_s, 3) if quota_s else 0.0,
        "idle_before": idle,
    }

"""permits: what a permit costs when many are asked for, and that no more calls are under way than there are permits.

`load`: four processes of 16 threads take 2,000 permits a second together and hold each for 10 ms; a wait counts from
the moment at which the permit was due. The time of the scripts is Redis's own (commandstats). `tight`: the same with
fewer permits than wanted at peaks, so that some wait. `calls`: a real stack with a fixed limit of 20, 48 slots and a
provider that would take 1,000; in the middle a worker is killed with -9, whose calls the provider goes on with.
"""

import json
import subprocess
import sys
import time
from typing import Any

import redis

from benchmarks import machine, product, servers
from benchmarks.bench import Bench
from benchmarks.drive import endless
from benchmarks.limits import arms, judge
from benchmarks.limits.provider import Provider
from benchmarks.permits_load import WARM_S
from benchmarks.stage import CHECKOUT
from benchmarks.statistics_of_runs import quantile
from harness.policy.errors import Unavailable

PAIRS = 1
PROCESSES, RATE_PER_S, FOR_S, HOLD_S = 4, 2000.0, 15.0, 0.01
PLENTY, TIGHT = 200, 24  # permits; 20 are held on average
LIMIT, SLOTS, CALL_S = 20, 24, 1.0
CALLS_S = 15.0  # before and after the kill


def run(bench: Bench) -> dict[str, Any]:
    """Measure and return the JSON."""
    idle = machine.await_quiet(bench.patience_s)
    report: dict[str, Any] = {"idle_before": idle}
    for name, capacity in (("load", PLENTY), ("tight", TIGHT)):
        bench.say(name)
        report[name] = _load(bench, capacity)
    bench.say("calls")
    report["calls"] = _calls(bench)
    report |= {key: report["load"][key] for key in ("permits_per_s", "p50_ms", "p95_ms", "script_us")}
    report |= {key: report["calls"][key] for key in ("in_flight_max", "in_flight_allowed")}
    keys = ("permits_per_s", "p50_ms", "p95_ms", "p99_ms", "script_us", "held_max", "capacity", "refused_first")
    bench.table("permits", ("load", *keys), [(n, *[report[n][key] for key in keys]) for n in ("load", "tight")])
    names = ("in_flight_max", "in_flight_allowed", "limit", "abandoned", "answered", "rejected_429")
    bench.table("calls under a fixed limit", names, [[report["calls"][name] for name in names]])
    return report


def _load(bench: Bench, capacity: int) -> dict[str, Any]:
    url = bench.servers.broker(2)
    servers.flush_broker(url)
    rate_per_s, for_s = (200.0, 3.0) if bench.quick else (RATE_PER_S, FOR_S)
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.permits_load",
                json.dumps(
                    {
                        "url": url,
                        "number": n,
                        "capacity": capacity,
                        "rate_per_s": rate_per_s / PROCESSES,
                        "for_s": for_s,
                        "hold_s": HOLD_S,
                    }
                ),
            ],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
    began_s = time.time() + 0.5
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{began_s}\n")
        process.stdin.flush()
    with redis.Redis.from_url(url) as client:
        time.sleep(max(0.0, began_s + WARM_S - time.time()))
        before = _scripts(client)
        answers = [process.communicate()[0] for process in processes]
        after = _scripts(client)
    if any(process.returncode for process in processes):
        raise Unavailable("permits: a process of the load failed; its error stands above")
    found = [json.loads(answer) for answer in answers]
    waits_ms = [wait for one in found for wait in one["waits_ms"]]
    spans = [(begin_s, end_s) for one in found for begin_s, end_s in one["spans"]]
    took_s = max(end_s for _, end_s in spans) - min(begin_s for begin_s, _ in spans)
    return {
        "permits_per_s": round(len(spans) / took_s, 1),
        "p50_ms": round(quantile(waits_ms, 0.5), 2),
        "p95_ms": round(quantile(waits_ms, 0.95), 2),
        "p99_ms": round(quantile(waits_ms, 0.99), 2),
        "script_us": round((after[1] - before[1]) / max(1, after[0] - before[0]), 1),
        "scripts": after[0] - before[0],
        "held_max": judge.at_once(spans),
        "capacity": capacity,
        "refused_first": sum(one["refused"] for one in found),
    }


def _scripts(client: "redis.Redis") -> tuple[int, int]:
    """Return how many scripts have run so far, and their microseconds."""
    stats: dict[str, Any] = client.info("commandstats").get("cmdstat_evalsha", {})
    return int(stats.get("calls", 0)), int(stats.get("usec", 0))


def _calls(bench: Bench) -> dict[str, Any]:
    provider = Provider()
    for_s = 6.0 if bench.quick else CALLS_S
    arm = arms.harness(
        "harness_permits",
        provider,
        slots={"llm": SLOTS},
        processes=2,
        resource={"limiter": "fixed", "capacity": LIMIT},
    )
    with bench.stage(arm) as stage:
        stage.drive("reset")
        provider.start(stage, quota=1000, latency_s=CALL_S)
        stage.start([endless(arm.module, "feed", of="call", tag="calls", keep=4 * SLOTS)])
        first = stage.start()[1]
        provider.await_calls(stage, LIMIT)
        time.sleep(for_s)
        before = provider.stats()
        stage.kill([first])
        stage.start([product.worker("llm", 2)])
        time.sleep(for_s + 10.0)  # its tasks come back after some 8 s
        stats = provider.stats()
    return {
        "limit": LIMIT,
        # A killed worker's calls go on at the provider: zombies, which it counts as abandoned when they end.
        "in_flight_allowed": LIMIT + stats["abandoned"],
        "in_flight_max": stats["in_flight_max"],
        "in_flight_max_before_kill": before["in_flight_max"],
        "abandoned": stats["abandoned"],
        "answered": stats["answered"],
        "rejected_429": stats["rejected_429"],
    }

"""backlog: what a tick of the dispatcher costs with 1k, 100k and 1M tasks waiting, and with 10,000 active tenants.

And with 100k waiting beside 10,000 tasks that wait for an approval, and beside 1M that are finished: what a tick
costs, and a whole audit.

The flows are the same 100 at every size, so only the length of the line differs. Buffers are PostgreSQL's own count of
blocks touched (hit or read), which a noisy neighbour can't change; times are medians.
"""

from dataclasses import asdict, replace
from typing import Any

from benchmarks import machine, product
from benchmarks.bench import Bench

FLOWS = 100
SIZES = {"1k": 1000, "100k": 100_000, "1m": 1_000_000}
QUICK_SIZES = {"1k": 1000, "1m": 10_000}  # the keys stay those of the full form; `waiting` says what stood in line
AUDITED, AUDITED_QUICK = 100_000, 1000  # waiting, while the others are over
ASKED, ASKED_QUICK = 10_000, 1000
FINISHED, FINISHED_QUICK = 1_000_000, 5000
TENANTS, QUICK_TENANTS = 10_000, 300
TICKS, QUICK_TICKS = 60, 20

ARM = replace(
    product.arm("harness_backlog", kind="noop.sleep", pools=()), module="benchmarks.product_backlog", workers=()
)


def run(bench: Bench) -> dict[str, Any]:
    """Measure ticks over each line and return the JSON."""
    sizes = QUICK_SIZES if bench.quick else SIZES
    tenants = QUICK_TENANTS if bench.quick else TENANTS
    lines: dict[str, dict[str, Any]] = {}
    _, skipped = bench.choose((ARM,))
    with bench.stage(ARM) as stage:
        stage.drive("reset")
        for name, size in sizes.items():  # one line that grows: the flows and their tenants stay the same rows
            filled = stage.drive("fill", tenants=FLOWS, tasks=size)
            bench.say(f"{size} waiting: {filled['submitted']} submitted in {filled['took_s']:.1f} s")
            lines[name] = _ticks(bench, stage, waiting=size, flows=FLOWS)
        # What is over must cost a tick nothing; then the audit, with all of it there.
        stage.drive("reset")
        stage.drive("fill", tenants=FLOWS, tasks=AUDITED_QUICK if bench.quick else AUDITED)
        lines["0_finished"] = _ticks(bench, stage, waiting=AUDITED_QUICK if bench.quick else AUDITED, flows=FLOWS)
        asked = stage.drive("ask", tasks=ASKED_QUICK if bench.quick else ASKED)
        bench.say(f"{asked['asked']} tasks that wait for an approval in {asked['took_s']:.1f} s")
        lines["10000_approvals"] = _ticks(bench, stage, waiting=AUDITED_QUICK if bench.quick else AUDITED, flows=FLOWS)
        finished = stage.drive("finish", tasks=FINISHED_QUICK if bench.quick else FINISHED)
        bench.say(f"{finished['finished']} finished tasks in {finished['took_s']:.1f} s")
        lines["1m_finished"] = _ticks(bench, stage, waiting=AUDITED_QUICK if bench.quick else AUDITED, flows=FLOWS)
        audit: dict[str, dict[str, float]] = stage.drive("audit")
        stage.drive("reset")
        stage.drive("fill", tenants=tenants, tasks=2 * tenants)
        lines["10000_tenants"] = _ticks(bench, stage, waiting=2 * tenants, flows=tenants)
    bench.table(
        "One tick of the dispatcher",
        ["line", "waiting", "flows", "median ms", "p95 ms", "CPU ms", "buffers", "released", "idle before"],
        [
            [
                name,
                *(f"{line[key]:,}" for key in ("waiting", "flows")),
                *(line[key] for key in ("tick_ms", "tick_p95_ms", "tick_cpu_ms", "buffers", "released", "idle_before")),
            ]
            for name, line in lines.items()
        ],
    )
    bench.table(
        "One whole audit",
        ["look", "statements", "ms", "most ms of one", "cpu ms", "buffers"],
        [
            [look, *(cost.get(key, "-") for key in ("statements", "ms", "most_ms", "cpu_ms", "buffers"))]
            for look, cost in audit.items()
        ],
    )
    return {
        "buffers_1m_finished_vs_0": round(lines["1m_finished"]["buffers"] / lines["0_finished"]["buffers"], 3),
        "buffers_approvals_vs_0": round(lines["10000_approvals"]["buffers"] / lines["0_finished"]["buffers"], 3),
        "tick_ms_approvals_vs_0": round(lines["10000_approvals"]["tick_ms"] / lines["0_finished"]["tick_ms"], 2),
        "audit": audit,
        "buffers_1m_vs_1k": round(lines["1m"]["buffers"] / lines["1k"]["buffers"], 3),
        "tick_ms_1m_vs_1k": round(lines["1m"]["tick_ms"] / lines["1k"]["tick_ms"], 2),
        **{f"tick_ms_{name}": line["tick_ms"] for name, line in lines.items()},
        "lines": lines,
        "skipped": [asdict(one) for one in skipped],
    }


def _ticks(bench: Bench, stage: Any, *, waiting: int, flows: int) -> dict[str, Any]:
    idle = machine.await_quiet(bench.patience_s)
    measured: dict[str, Any] = stage.drive("ticks", number=QUICK_TICKS if bench.quick else TICKS)
    return measured | {"waiting": waiting, "flows": flows, "idle_before": idle}

"""submit: through the engine in bulk, over HTTP one by one, and a run of 1,000 nodes over HTTP.

The web process runs beside a dispatcher that leads, without workers: the door is measured, doorbell included, not the
work. One client, one kept-alive connection. Every task is a row with its payload and trace event when the answer comes;
the scenario counts them. What admission adds to a submit is the difference to a door that predicts nothing, in turn.
"""

import http.client
import json
import time
from dataclasses import asdict, replace
from typing import Any

from benchmarks import machine, product
from benchmarks.bench import Bench
from benchmarks.stage import Stage
from benchmarks.statistics_of_runs import quantile, spread
from harness.ops.local.ports import LOOPBACK, free_port
from harness.policy.errors import Unavailable

BULK, QUICK_BULK = 10_000, 2_000
RUN_NODES = 1000
SINGLES, QUICK_SINGLES = 300, 40
DOORS, QUICK_DOORS = 1_000, 30
WARM_REQUESTS = 20
READY_S = 30.0

ARM = replace(product.arm("harness_submit", kind="noop", pools=()), workers=(product.DISPATCHER,))


def run(bench: Bench) -> dict[str, Any]:
    """Measure the three ways in and return the JSON."""
    bulk, singles = (QUICK_BULK, QUICK_SINGLES) if bench.quick else (BULK, SINGLES)
    _, skipped = bench.choose((ARM,))
    port = free_port()
    web = f"{{python}} -m uvicorn config.asgi:application --host {LOOPBACK} --port {port} --no-access-log"
    with bench.stage(ARM) as stage:
        stage.drive("reset")
        stage.start((product.DISPATCHER, web))
        key: str = stage.drive("make_key")["key"]
        client = Client(port, key)
        client.wait_ready(stage)
        idle = machine.await_quiet(bench.patience_s)
        engine = stage.drive("bulk", n=bulk, calls=max(2, bench.pairs))
        client.wait_ready(stage)  # the server has closed a connection that was idle so long
        for i in range(WARM_REQUESTS):
            client.post("/api/v1/tasks", _node("warm", i))
        before = stage.drive("counts")
        single_ms = [client.post("/api/v1/tasks", _node("single", i)) for i in range(singles)]
        nodes = [_node("run", i) for i in range(RUN_NODES)]
        client.post("/api/v1/runs", {"nodes": nodes[:10]})
        run_ms = [client.post("/api/v1/runs", {"nodes": nodes}) for _ in range(max(2, bench.pairs))]
        after = stage.drive("counts")
        doors_ms = stage.drive("admission", n=QUICK_DOORS if bench.quick else DOORS)
    per_s = spread(engine["per_s"])
    assert per_s is not None
    runs = spread(run_ms)
    assert runs is not None
    blind_ms = quantile(doors_ms["blind"], 0.5)
    expected = singles + 10 + RUN_NODES * len(run_ms)
    report = {
        "engine_per_s": round(per_s.median),
        "run_1000_ms": round(runs.median, 1),
        "single_p50_ms": round(quantile(single_ms, 0.5), 2),
        "single_p95_ms": round(quantile(single_ms, 0.95), 2),
        "admission_adds_ms": round(quantile(doors_ms["usual"], 0.5) - blind_ms, 2),
        "admission_look_adds_ms": round(quantile(doors_ms["looking"], 0.5) - blind_ms, 2),
        "engine_per_s_spread": per_s.as_json(),
        "run_1000_ms_spread": runs.as_json(),
        "bulk": bulk,
        "singles": singles,
        "rows_over_http": {name: after[name] - before[name] for name in after},
        "tasks_expected_over_http": expected,
        "engine_rows": {name: engine[name] for name in ("tasks", "bodies", "events")},
        "idle_before": idle,
        "skipped": [asdict(one) for one in skipped],
    }
    bench.table(
        "Submit",
        ["way", "figure", "spread"],
        [
            [f"engine, {bulk} in one call", f"{report['engine_per_s']:,} tasks/s", per_s],
            [f"HTTP, run of {RUN_NODES} nodes", f"{report['run_1000_ms']} ms", runs],
            ["HTTP, one by one", f"p50 {report['single_p50_ms']} ms", f"p95 {report['single_p95_ms']} ms"],
            [
                "admission adds",
                f"p50 {report['admission_adds_ms']} ms",
                f"with its look {report['admission_look_adds_ms']} ms",
            ],
        ],
    )
    return report


class Client:
    """One API client on one kept-alive connection."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def wait_ready(self, stage: Stage) -> None:
        """Wait until the web process answers. Raises: Unavailable with its output when it doesn't."""
        give_up_s = time.monotonic() + READY_S
        while time.monotonic() < give_up_s:
            stage.check_alive()
            try:
                self._connection.request("GET", "/health/live")
                answer = self._connection.getresponse()
                answer.read()
                if answer.status == http.client.OK:
                    return
            except OSError:
                self._connection.close()
            time.sleep(0.05)
        raise Unavailable(f"the web process doesn't answer:\n{stage.output(1)}")

    def post(self, path: str, body: object) -> float:
        """Send a request that must be accepted; return the milliseconds until its answer was read.

        Raises: Unavailable with the answer when it isn't 202.
        """
        text = json.dumps(body)
        began_s = time.perf_counter()
        self._connection.request("POST", path, text, self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        took_ms = 1000 * (time.perf_counter() - began_s)
        if answer.status != http.client.ACCEPTED:
            raise Unavailable(f"POST {path} was answered {answer.status}: {content[:500]!r}")
        return took_ms


def _node(tag: str, i: int) -> dict[str, Any]:
    return {"kind": "noop", "input": {"tag": tag, "i": i, "ts": time.time()}}

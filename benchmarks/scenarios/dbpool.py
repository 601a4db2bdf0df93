"""dbpool: a target database with a pool of 20, and more and more workers of 20 threads each.

Each task holds a connection for 0.4 s. In the middle a foreign client takes 10 of the 20. In flight is counted twice:
by the target's own list of what it executes, 20 times a second, and from the lines that each task leaves when it has
and gives back its connection. `uncapped` is Harness with the limit taken away, `celery` a client of its own for each
task; there the target itself refuses beyond 20.
"""

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

import psycopg
from psycopg import sql

from benchmarks import machine, product, servers
from benchmarks.arms import Arm
from benchmarks.bench import Bench
from benchmarks.drive import endless
from benchmarks.limits import arms, judge
from benchmarks.peers import GOT
from benchmarks.stage import Stage
from benchmarks.statistics_of_runs import quantile
from harness.policy.errors import Unavailable

PAIRS = 1
DATABASE = "bench_target"
TARGET = "db:main"
POOL, FOREIGN, THREADS, HOLD_S = 20, 10, 20, 0.4
SPARE = 1  # beyond the pool, for who looks and for newcomers to be seen: the capped arm's target has one more
WORKERS: Sequence[int] = (1, 2, 4, 8)
FOREIGN_AT = 4  # workers
SETTLE_S, FOR_S = 8.0, 20.0
YIELD_S = 5.0  # from the foreign client's coming until no more than the rest is in flight
KEEP = 400
SAMPLE_EVERY_S = 0.05
CONNECT_S = 30.0
ARMS = ("harness", "uncapped", "celery")

_ACTIVE = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND state = 'active' AND query ILIKE '%%pg_sleep(%%'"
)


def run(bench: Bench) -> dict[str, Any]:
    """Measure every arm with every number of workers and return the JSON."""
    found: dict[str, dict[str, Any]] = {}
    for name in ARMS:
        if bench.quick and name == "uncapped":
            continue
        if not bench.only or name in bench.only:
            bench.say(name)
            found[name] = _play(bench, name)
    report: dict[str, Any] = {"arms": found}
    for name, prefix in (("harness", ""), ("uncapped", "uncapped_"), ("celery", "celery_")):
        by_workers = found.get(name, {}).get("by_workers", {})
        for key in ("db_wait_p95_s", "in_flight_max", "per_s"):
            report[prefix + key] = {n: one[key] for n, one in by_workers.items()} or None
        beside = found.get(name, {}).get("beside_foreign")
        report[f"{prefix}in_flight_max_beside_foreign"] = beside["in_flight_max"] if beside else None
    keys = ("in_flight_max", "seen_active_max", "db_wait_p50_s", "db_wait_p95_s", "per_s")
    rows = [
        (f"{name} {n}", *[one[key] for key in keys])
        for name, arm in found.items()
        for n, one in [*arm["by_workers"].items(), ("beside 10 others", arm["beside_foreign"])]
    ]
    bench.table("a pool of 20, and workers of 20 threads", ("arm, workers", *keys), rows)
    return report


def _play(bench: Bench, name: str) -> dict[str, Any]:
    url = bench.servers.database(DATABASE)
    numbers = (1, 2) if bench.quick else WORKERS
    settle_s, for_s = (3.0, 4.0) if bench.quick else (SETTLE_S, FOR_S)
    foreign_at = numbers[-1] if bench.quick else FOREIGN_AT
    servers.recreate_database(url)
    _limit(url, POOL + SPARE if name == "harness" else POOL)
    arm, worker = _arm(name, url)
    by_workers: dict[str, dict[str, Any]] = {}
    beside: dict[str, Any] | None = None
    running = 0
    with bench.stage(arm) as stage, _Watch(url) as watch:
        stage.drive("reset")
        idle = machine.await_quiet(bench.patience_s)
        stage.start([*arm.workers, endless(arm.module, "feed", of="target", tag="t", keep=KEEP, duration_s=HOLD_S)])
        for number in numbers:
            stage.start([worker.format(number=n, python="{python}") for n in range(running, number)])
            running = number
            if not stage.wait("t", 1, CONNECT_S):
                raise Unavailable(f"{arm.name}: nothing was done in {CONNECT_S:.0f} s")
            _sleep(stage, settle_s)
            by_workers[str(number)] = _measure(stage, watch, for_s)
            if number == foreign_at:
                with _foreign(url, FOREIGN):
                    _sleep(stage, YIELD_S)
                    beside = _measure(stage, watch, for_s)
                _sleep(stage, settle_s)
    return {"by_workers": by_workers, "beside_foreign": beside, "idle_before": idle}


def _arm(name: str, url: str) -> tuple[Arm, str]:
    """Return the arm, and the command line of a worker with its {number}."""
    if name == "celery":
        arm = arms.celery("celery_dbpool", threads={}, environment={"HARNESS_BENCH_TARGET": url})
        return arm, arms.celery_worker("target", THREADS, "{number}")
    capped = name == "harness"
    capacity = POOL if capped else THREADS * max(WORKERS)
    arm = arms.harness(
        f"{name}_dbpool",
        slots={"target": THREADS},
        processes=0,
        environment={
            "HARNESS_TARGET_MAIN_URL": url,
            "HARNESS_BENCH_CONNECTIONS": "110",
            "HARNESS_BENCH_RESOURCES": json.dumps({TARGET: {"held": "task", "capacity": capacity}}),
            "HARNESS_BENCH_TARGETS": json.dumps({TARGET: {"pool": capacity, "follow": capped}}),
        },
    )
    return arm, product.worker("target").replace("target@bench", "target{number}@bench")


def _measure(stage: Stage, watch: "_Watch", for_s: float) -> dict[str, Any]:
    """Watch for a while; return waits for a connection, most in flight at once, and tasks a second."""
    since_s = time.time()
    watch.most = 0
    _sleep(stage, for_s)
    until_s = time.time()
    time.sleep(2 * HOLD_S)  # those under way write their line when they end
    held = stage.log.read("t", GOT)
    waits_s = [one.started_s - one.submitted_s for one in held if since_s <= one.started_s < until_s]
    # What still waits for a connection, or gave up and began again, has no line yet: its wait is counted when it ends.
    return {
        "db_wait_p50_s": round(quantile(waits_s, 0.5), 4) if waits_s else None,
        "db_wait_p95_s": round(quantile(waits_s, 0.95), 4) if waits_s else None,
        "in_flight_max": judge.at_once([(one.started_s, one.ended_s) for one in held], since_s, until_s),
        "seen_active_max": watch.most,
        "per_s": round(sum(since_s <= one.ended_s < until_s for one in held) / for_s, 2),
    }


def _sleep(stage: Stage, seconds: float) -> None:
    stage.check_alive()
    time.sleep(seconds)
    stage.check_alive()


def _limit(url: str, most: int) -> None:
    """Let the target refuse the connection that is one too many."""
    with servers.maintenance(url) as connection:
        name = sql.Identifier(servers.database_name(url))
        connection.execute(sql.SQL("ALTER DATABASE {} CONNECTION LIMIT {}").format(name, sql.Literal(most)))


@contextlib.contextmanager
def _foreign(url: str, n: int) -> Iterator[None]:
    """Hold n connections of the target while the block runs, as a client that tries until it gets them."""
    held: list[psycopg.Connection[Any]] = []
    give_up_s = time.monotonic() + CONNECT_S
    try:
        while len(held) < n:
            try:
                held.append(psycopg.connect(url, application_name="foreign", autocommit=True))
            except psycopg.OperationalError:
                if time.monotonic() > give_up_s:
                    raise Unavailable(f"the foreign client got {len(held)} of {n} connections") from None
                time.sleep(random.uniform(0.02, 0.1))
        yield
    finally:
        for connection in held:
            connection.close()


class _Watch:
    """Counts, from another database of the server, what the target executes. `most` may be set back at any time."""

    def __init__(self, url: str) -> None:
        self.most = 0
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        name = servers.database_name(self._url)
        with servers.maintenance(self._url) as connection:
            while not self._over.wait(SAMPLE_EVERY_S):
                row = connection.execute(_ACTIVE, (name,)).fetchone()
                self.most = max(self.most, int(row[0]) if row else 0)

"""The client of a storm, in a process of its own: `python -m benchmarks.storm.client JSON`. Then it waits to be ended.

JSON: `path` of the answers, `phases` ([[rate_per_s, for_s], ..]), `seed`, `mix`, and `http` (port and key) with
`deadline_s` (Harness over HTTP, one kept-alive connection a thread) or `expires_s` (Celery's expert, in this process).
It is an open loop: who is refused doesn't come again, and a slow answer delays nobody else.
"""

import http.client
import importlib
import itertools
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from benchmarks.storm import answers
from benchmarks.storm.answers import TAG, Answer, Door, Outcome
from benchmarks.storm.arrivals import MIX, Arrival, Phase, poisson
from harness.ops.local.ports import LOOPBACK

THREADS = 24  # answers of 50 ms leave room for 480 a second
IDLE_S = 2.0  # the web process closes what has been idle for 5 s, perhaps just as something is sent
KIND = "bench.call"


class HttpDoor:
    """Submits to Harness over HTTP."""

    def __init__(self, port: int, key: str, deadline_s: float) -> None:
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._deadline_s = deadline_s
        self._used_s = 0.0

    def send(self, arrival: Arrival, due_s: float) -> Answer:
        """Submit once. Raises: OSError, http.client.HTTPException when the web process is gone."""
        sent_s = time.time()
        body = {
            "kind": KIND,
            "input": {"tag": TAG, "i": arrival.i, "ts": sent_s},
            "priority": arrival.priority,
            "deadline": datetime.fromtimestamp(sent_s + self._deadline_s, UTC).isoformat(),
        }
        if time.monotonic() - self._used_s > IDLE_S:
            self._connection.close()  # it is opened again by itself
        began_s = time.perf_counter()
        self._connection.request("POST", "/api/v1/tasks", json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        took_s = time.perf_counter() - began_s
        self._used_s = time.monotonic()
        told = json.loads(content)
        after = answer.headers.get("Retry-After", "")
        return Answer(
            i=arrival.i,
            priority=arrival.priority,
            due_s=due_s,
            sent_s=sent_s,
            took_s=round(took_s, 5),
            outcome=outcome_of(answer.status, told),
            status=answer.status,
            why=" ".join(str(told[name]) for name in ("code", "reason") if told.get(name)),
            retry_after_s=float(after) if after.isdigit() else None,
            task=str(told.get("task_id") or ""),
        )


def outcome_of(status: int, told: Mapping[str, Any]) -> Outcome:
    """Return what an answer of the API means.

    >>> outcome_of(202, {"admission": "deferred"}), outcome_of(202, {}), outcome_of(503, {})
    ('deferred', 'accepted', 'rejected')
    """
    if status in (200, 202):
        return "deferred" if told.get("admission") == "deferred" else "accepted"
    return "rejected"


def blow(make: Callable[[], Door], arrivals: Iterator[Arrival], path: str, *, threads: int = THREADS) -> None:
    """Submit every arrival at its moment and write what came back. Raises: what a door raised, when all have ended."""
    lock, gone = threading.Lock(), threading.Event()
    began_s = time.time()
    with open(path, "w", buffering=1) as file, ThreadPoolExecutor(threads) as pool:

        def work() -> None:
            try:
                door = make()
                while not gone.is_set():
                    with lock:
                        arrival = next(arrivals, None)
                    if arrival is None:
                        return
                    due_s = began_s + arrival.at_s
                    time.sleep(max(0.0, due_s - time.time()))
                    answer = door.send(arrival, due_s)
                    with lock:
                        answers.write(file, answer)
            except BaseException:
                gone.set()
                raise

        futures = [pool.submit(work) for _ in range(threads)]
    for future in futures:
        future.result()


def main() -> None:
    """Blow, then wait."""
    wanted = json.loads(sys.argv[1])
    phases = [Phase(rate_per_s=rate_per_s, for_s=for_s) for rate_per_s, for_s in wanted["phases"]]
    arrivals = poisson(phases, seed=wanted["seed"], mix=wanted.get("mix") or MIX)
    if over := wanted.get("http"):
        blow(lambda: HttpDoor(over["port"], over["key"], float(wanted["deadline_s"])), arrivals, wanted["path"])
    else:
        expert = importlib.import_module("benchmarks.peers.celery_expert")  # only here is a broker to be had
        # One connection is enough: a push takes a fraction of a millisecond, and the product's pool isn't measured.
        blow(lambda: expert.door(float(wanted["expires_s"])), arrivals, wanted["path"], threads=4)
    for _ in itertools.count():
        signal.pause()


if __name__ == "__main__":
    main()

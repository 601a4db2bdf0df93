"""What tests of permits work with: resources that change, calls, and processes that call beside each other."""

import os
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, count
from typing import Any

import redis

from harness.policy.permits import PREFIX, RENEW_S, Ask, Granted, Report, Want
from harness.policy.resources import Live, Resource
from harness.store.permits import Permits

SUCCESS = Report(outcome="success", latency_s=0.1)


class Resources:
    """The resources of all processes of a test, as the database would tell them."""

    def __init__(self, **resources: Mapping[str, Any]) -> None:
        self.now = {
            name: Live(resource=Resource(name=name, held="call", **{"capacity": 10, **values}))
            for name, values in resources.items()
        }

    def __call__(self) -> Mapping[str, Live]:
        return self.now

    def override(self, name: str, **values: Any) -> None:
        live = self.now[name]
        self.now = self.now | {name: replace(live, resource=replace(live.resource, **values))}

    def proven(self, name: str, number: int) -> None:
        self.now = self.now | {name: replace(self.now[name], proven=number)}


def ask(
    number: int,
    *wants: str | Want,
    tenant: int = 1,
    priority: int = 1,
    calls_done: int = 0,
    since_s: float = 1_790_000_000.0,
    waits: bool = True,
) -> Ask:
    return Ask(
        member=f"{number}:1:1",
        tenant=tenant,
        priority=priority,
        calls_done=calls_done,
        since_s=since_s,
        wants=tuple(Want(want) if isinstance(want, str) else want for want in wants),
        waits=waits,
    )


def granted(permits: Permits, question: Ask) -> Granted:
    found = permits.acquire(question)
    assert isinstance(found, Granted), found
    return found


@contextmanager
def process(url: str, resources: Resources, processes: int = 1) -> Iterator[Permits]:
    permits = Permits(url, resources, lambda: processes)
    try:
        yield permits
    finally:
        permits.close()


def forget_all(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"{PREFIX}*"):
            client.delete(key)


class Caller:
    """Threads of one process that make one call after the other. `calls`: (begin, end) of each, CLOCK_MONOTONIC."""

    def __init__(self, permits: Permits, resource: str, *, threads: int, call_s: float) -> None:
        self.calls: list[tuple[float, float]] = []
        self._permits, self._resource, self._call_s = permits, resource, call_s
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(threads)]
        self._renewer = threading.Thread(target=self._renew, daemon=True)

    def start(self) -> None:
        for thread in (*self._threads, self._renewer):
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in (*self._threads, self._renewer):
            thread.join(10)

    def _work(self, thread: int) -> None:
        for number in count(1):
            since_s = time.time()
            question = replace(ask(0, self._resource, since_s=since_s), member=f"{os.getpid()}:{thread}:{number}")
            found = self._permits.acquire(question)
            while not isinstance(found, Granted):
                if self._stopped.is_set():
                    return self._permits.give_up(question)
                self._permits.wait(question, 0.5)
                found = self._permits.acquire(question)
            began = time.monotonic()
            time.sleep(self._call_s * random.uniform(0.5, 1.5))
            self.calls.append((began, time.monotonic()))
            self._permits.finish(found, SUCCESS)
            if self._stopped.is_set():
                return None
        return None

    def _renew(self) -> None:
        while not self._stopped.wait(RENEW_S):
            self._permits.renew()


def most_at_once(calls: Iterable[tuple[float, float]]) -> int:
    """Return how many calls were under way at once, at most."""
    steps = sorted(step for began, ended in calls for step in ((began, 1), (ended, -1)))
    return max(accumulate(step for _, step in steps), default=0)

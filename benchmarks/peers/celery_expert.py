"""Celery as someone would set it up who knows it well, for work that calls a provider with a quota.

Own queues for calls and for local work; no more threads than the provider's quota; late ack, one message at a time.
A 429 or a 5xx is tried again through the broker (`Task.retry`): Retry-After is honoured, with full jitter on top of
it; without one, exponential back-off with full jitter; at most RETRIES times. HARNESS_BENCH_ONE_QUEUE=1 puts all work
in one queue, HARNESS_BENCH_RATE is a rate a minute of all calls together, {"rpm": n} or {"tpm": n}: a leaky bucket
in Redis is charged with the estimates (Celery's own `rate_limit` of 600/m let 2 calls a second pass, measured with
this worker). HARNESS_BENCH_TARGET is the database of `target` tasks, each with a connection of its own.
In a storm of submissions calls have a queue for each priority, which the worker empties in this order, and `expires`.
"""

import json
import os
import random
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import httpx
import psycopg
import redis
from celery import Celery, Task

from benchmarks import asking, effects, servers
from benchmarks.peers import FAILED, GOT
from benchmarks.storm.answers import TAG, Answer
from benchmarks.storm.arrivals import Arrival
from benchmarks.submission import Item, Submitter

RETRIES = 10
BASE_S, CAP_S = 1.0, 60.0  # of the back-off
CONNECT_BASE_S, CONNECT_CAP_S = 0.1, 1.0  # of the same for a connection

_one_queue = bool(os.environ.get("HARNESS_BENCH_ONE_QUEUE"))
_queues = {name: "celery" if _one_queue else name for name in ("call", "local", "target")}

app = Celery("bench", broker=os.environ["BROKER_URL"])
app.conf.update(
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_default_queue="celery",
    task_routes={f"expert.{name}": {"queue": queue} for name, queue in _queues.items()},
    # Of several queues the first named goes first, where it isn't empty; by default they take turns.
    broker_transport_options={"queue_order_strategy": "priority"},
)


@app.task(name="expert.call", bind=True, max_retries=RETRIES)
def call(self: "Task[Any, Any]", tag: str, i: int, submitted_s: float, duration_s: float) -> None:
    """Ask the provider; try again later when it refuses or fails."""
    started_s = time.time()
    _await_rate(i)
    try:
        asking.ask(tag, i, submitted_s)
    except httpx.HTTPError as error:
        if self.request.retries >= RETRIES:
            effects.write(FAILED, tag, i, submitted_s, started_s, time.time())
        raise self.retry(exc=error, countdown=_countdown_s(error, self.request.retries)) from error
    if duration_s:
        time.sleep(duration_s)
    effects.write(effects.DONE, tag, i, submitted_s, started_s, time.time())


local = app.task(name="expert.local")(effects.body)


@app.task(name="expert.target")
def target(tag: str, i: int, submitted_s: float, duration_s: float) -> None:
    """Hold a connection of the target for `duration_s`; GOT tells when it was asked for, had and given back."""
    asked_s = time.time()
    with _connection() as connection:
        got_s = time.time()
        connection.execute("SELECT pg_sleep(%s)", (duration_s,))
    effects.write(GOT, tag, i, asked_s, got_s, time.time())
    effects.write(effects.DONE, tag, i, submitted_s, asked_s, time.time())


def _connection() -> "psycopg.Connection[Any]":
    """Open a connection, as Django does for each task; while the target refuses, try again with back-off and jitter."""
    tries = 0
    while True:
        try:
            return psycopg.connect(os.environ["HARNESS_BENCH_TARGET"], application_name="celery", autocommit=True)
        except psycopg.OperationalError:
            time.sleep(random.uniform(0, min(CONNECT_CAP_S, CONNECT_BASE_S * 2**tries)))
            tries += 1


_LEAKY = """
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
redis.call('SET', KEYS[1], string.format('%.6f', at + ARGV[1]), 'EX', 600)
return string.format('%.6f', at - now)
"""


@cache
def _bucket() -> "tuple[redis.Redis, dict[str, float]]":
    return redis.Redis.from_url(os.environ["BROKER_URL"]), json.loads(os.environ.get("HARNESS_BENCH_RATE") or "{}")


def _await_rate(i: int) -> None:
    """Take a turn for call number `i`, and wait until it has come: calls leave the bucket evenly."""
    client, rate = _bucket()
    for name, per_minute in rate.items():
        amount = asking.estimate_of(i) if name == "tpm" else 1
        wait_s = float(client.eval(_LEAKY, 1, f"expert:{name}", amount * 60 / per_minute))  # type: ignore[arg-type]
        time.sleep(wait_s)


def _countdown_s(error: httpx.HTTPError, retries: int) -> float:
    jitter_s = random.uniform(0, min(CAP_S, BASE_S * 2**retries))
    if isinstance(error, httpx.HTTPStatusError):
        told = error.response.headers.get("retry-after", "")
        if told.isdigit():
            return int(told) + jitter_s
    return jitter_s


class _Expert(Submitter):
    def __init__(self, name: str) -> None:
        self._task = {"call": call, "local": local, "target": target}[name]
        self._queue = _queues[name]
        self._redis = redis.Redis.from_url(os.environ["BROKER_URL"])

    def one(self, item: Item) -> None:
        self._task.apply_async(item)

    def many(self, items: Sequence[Item]) -> None:
        for item in items:
            self.one(item)

    def waiting(self) -> int:
        return int(self._redis.llen(self._queue))  # type: ignore[arg-type]  # not awaitable: the client is sync

    def close(self) -> None:
        self._redis.close()


class _StormDoor:
    """Every push is taken; what hasn't begun after `expires_s` is thrown away by the worker that meets it."""

    def __init__(self, expires_s: float) -> None:
        self._expires_s = expires_s

    def send(self, arrival: Arrival, due_s: float) -> Answer:
        sent_s = time.time()
        began_s = time.perf_counter()
        call.apply_async((TAG, arrival.i, sent_s, 0.0), queue=f"p{arrival.priority}", expires=self._expires_s)
        took_s = round(time.perf_counter() - began_s, 5)
        return Answer(
            i=arrival.i, priority=arrival.priority, due_s=due_s, sent_s=sent_s, took_s=took_s, outcome="accepted"
        )


def door(expires_s: float) -> _StormDoor:
    """Return an open client for a storm."""
    return _StormDoor(expires_s)


def reset() -> None:
    """Empty the broker."""
    servers.flush_broker(os.environ["BROKER_URL"])


def submitter() -> Submitter:
    """Return an open client for calls."""
    return submitter_of("call")


def submitter_of(name: str) -> Submitter:
    """Return an open client for `call`, `local` or `target` tasks."""
    return _Expert(name)

"""One call to the provider emulator, the same for every arm: what it asks, and what it leaves in the effect log.

HARNESS_BENCH_CALL is a JSON object: `url` of the provider's /v1, `tokens` (mean of a call, prompt and answer), `spread`
(sigma of a lognormal around it; 0: all alike), `wrong` (the estimate is so many times too high for even numbers, too
low for odd ones; 1: it is true). Each call leaves a line BEGUN when it is sent, so calls can be counted by task.
Standard library and httpx only: peers and kinds share it.
"""

import json
import os
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx

from benchmarks import effects

VARIABLE = "HARNESS_BENCH_CALL"
TIMEOUT_S = 290.0  # a latency of 5 s with sigma 1 goes beyond 60 s now and then, and the provider would go on alone
ANSWER_TOKENS = 16
CHARS_PER_TOKEN = 4  # the emulator's own measure
SMALLEST, LARGEST = 40, 8_000  # tokens of one call
CONNECTIONS = 256  # of one process: more than any arm has slots

_clients: dict[int, httpx.Client] = {}
_clients_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came back: the tokens that the provider counted, and its headers."""

    tokens: int
    headers: Mapping[str, str]


@cache
def _wanted() -> dict[str, Any]:
    given: dict[str, Any] = json.loads(os.environ[VARIABLE])
    return {"tokens": 100, "spread": 0.0, "wrong": 1.0} | given


def tokens_of(i: int) -> int:
    """Return the tokens that call number `i` will use, prompt and answer; always the same for one number."""
    mean, spread = float(_wanted()["tokens"]), float(_wanted()["spread"])
    if not spread:
        return round(mean)
    drawn = random.Random(i).lognormvariate(-spread * spread / 2, spread)
    return min(LARGEST, max(SMALLEST, round(mean * drawn)))


def estimate_of(i: int) -> int:
    """Return what a client believes that call number `i` will use."""
    wrong = float(_wanted()["wrong"])
    return max(1, round(tokens_of(i) * (wrong if i % 2 == 0 else 1 / wrong)))


def ask(tag: str, i: int, submitted_s: float) -> Answer:
    """Call once. Raises: httpx.HTTPStatusError for any status but 200, httpx.TransportError."""
    now_s = time.time()
    effects.write(effects.BEGUN, tag, i, submitted_s, now_s, now_s)
    prompt = ("1234 " * tokens_of(i))[: (tokens_of(i) - ANSWER_TOKENS) * CHARS_PER_TOKEN - 1] + "5"
    body = {
        "model": "emulator-1",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": ANSWER_TOKENS,
    }
    answer = _client().post(f"{_wanted()['url']}/chat/completions", json=body)
    answer.raise_for_status()
    return Answer(tokens=int(answer.json()["usage"]["total_tokens"]), headers=dict(answer.headers))


def _client() -> httpx.Client:
    # By process: a child that was forked must not write to its parent's connections.
    with _clients_lock:
        found = _clients.get(os.getpid())
        if found is None:
            _clients.clear()
            limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
            found = _clients[os.getpid()] = httpx.Client(timeout=TIMEOUT_S, limits=limits, trust_env=False)
        return found

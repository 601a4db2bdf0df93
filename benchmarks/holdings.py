"""What workers of a pool hold, seen from outside: the broker's queue lengths, Celery's inspect, and the effect log.

A watcher thread samples all pools while a scenario goes on. Harness's own tables and counters are not asked.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from benchmarks import effects

INSPECT_S = 1.0  # how long an answer to inspect may take


@dataclass(slots=True)
class Holding:
    """The most that was seen of one pool."""

    held_max: int = 0
    queued_max: int = 0
    unacked_max: int = 0
    samples: int = 0


@dataclass(slots=True)
class Watch:
    """Samples pools until it is stopped. `tags` maps a pool to the tag of its tasks in the effect log."""

    broker_url: str
    log: effects.EffectLog
    pools: Sequence[str]
    tags: Mapping[str, str]
    every_s: float = 0.1
    found: dict[str, Holding] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.found = {pool: Holding() for pool in self.pools}
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        app = Celery("bench-watch", broker=self.broker_url)
        with redis.Redis.from_url(self.broker_url) as client:
            while not self._stop.is_set():
                try:
                    self._sample(app, client)
                except (OSError, redis.RedisError, OperationalError):
                    continue  # the broker is being restarted; the next look counts
                finally:
                    time.sleep(self.every_s)
        app.close()

    def _sample(self, app: Celery, client: redis.Redis) -> None:
        # With the names known it returns when all have answered, a few ms apart. Reserved first: what begins between
        # the two answers is one id in both, and no task here is so short that it could end between them.
        inspect = app.control.inspect(destination=[f"{pool}@bench" for pool in self.pools], timeout=INSPECT_S)
        reserved, active = inspect.reserved() or {}, inspect.active() or {}
        for pool in self.pools:
            holding = self.found[pool]
            told = _told(reserved, pool) | _told(active, pool)
            begun = self.log.count(self.tags[pool], effects.BEGUN) - self.log.count(self.tags[pool])
            queued = sum(int(client.llen(f"{pool}.p{priority}")) for priority in range(4))
            holding.held_max = max(holding.held_max, len(told), begun)
            holding.queued_max = max(holding.queued_max, queued)
            holding.samples += bool(told)
        unacked = int(client.hlen("unacked"))
        for holding in self.found.values():
            holding.unacked_max = max(holding.unacked_max, unacked)


def _told(answer: Mapping[str, Sequence[Mapping[str, Any]]], pool: str) -> set[str]:
    prefix = f"{pool}."
    return {
        str(message["id"])
        for messages in answer.values()
        for message in messages
        if str((message.get("delivery_info") or {}).get("routing_key", "")).startswith(prefix)
    }

"""How an arm takes tasks: the protocol of a submitter, for queues with a plain and with an asyncio interface."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from benchmarks.fairness.score import Arrival

Item = tuple[str, int, float, float]  # tag, i, submitted_s (epoch), duration_s: the arguments of effects.body
T = TypeVar("T")


class Submitter(ABC):
    """An open client of one queue. `one` returns when the queue has the task for good."""

    @abstractmethod
    def one(self, item: Item) -> None:
        """Submit one task."""

    def many(self, items: Sequence[Item]) -> None:
        """Submit many, the quickest way that the queue documents."""
        for item in items:
            self.one(item)

    def waiting(self) -> int:
        """Return how many tasks wait for a worker, as the queue itself counts them."""
        raise NotImplementedError("this queue isn't asked")

    def arrive(self, arrival: Arrival) -> None:
        """Submit what an arrival of a score brings: for a queue that knows no tenants, so many more tasks."""
        now_s = time.time()
        for part in arrival.parts:
            self.many(
                [(part.tag, part.first + k, now_s, duration_s) for k, duration_s in enumerate(part.durations_s())]
            )

    def close(self) -> None:  # noqa: B027  (most clients hold nothing)
        """Release what the client holds."""


class AsyncSubmitter(Submitter):
    """A client with an asyncio interface, on a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Close the loop."""
        self._loop.close()

"""How many tasks a verb locks at once, how many one call takes, and how it gets on beside what others have locked."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import psycopg

from harness.engine.operate.tally import Tally

T = TypeVar("T")

BATCH = 200  # tasks locked at once: some 10 ms
MANY_MOST = 10_000  # of one call that a person's page or a client's request waits for
TRIES = 3  # of a batch that met a deadlock, or a lock that can't be passed over for longer than the connection waits
STAYED_LOCKED = "what all of them need stayed locked by someone else"
AGAIN_S = 0.2  # before tasks are tried again that somebody had locked: a claim or a settle takes milliseconds


def cut(some: Iterable[Sequence[int]], most: int | None, tally: Tally) -> Iterator[list[int]]:
    """Yield the ids in batches, at most `most` of them (None: all); the tally says when there were more."""
    left = most
    for ids in some:
        for at in range(0, len(ids), BATCH):
            batch = list(ids[at : at + BATCH])
            if left is not None and len(batch) > left:
                tally.more = True
                batch = batch[:left]
            if batch:
                yield batch
            if tally.more:
                return
            if left is not None:
                left -= len(batch)


def come_back(tasks: Sequence[int], act: Callable[[list[int]], Sequence[int] | None]) -> list[int]:
    """Try again, a few times, what somebody had locked. Returns what stayed so.

    `act` returns what of its tasks still is locked, or None when nothing could be done.
    """
    left = list(tasks)
    for _ in range(TRIES):
        if not left:
            break
        time.sleep(AGAIN_S)
        still: list[int] = []
        for at in range(0, len(left), BATCH):
            some = left[at : at + BATCH]
            busy = act(some)
            still += some if busy is None else busy
        left = still
    return left


def patiently(act: Callable[[], T]) -> T | None:
    """Act in one transaction, again when a lock stood in the way; None when it did each time."""
    for _ in range(TRIES):
        try:
            return act()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            continue
    return None

"""The flows of one pool with their ready tasks: what the tables `flow` and `task` answer to a look.

It does what store/sql/snapshot/heads.sql does, and nothing that is policy. A flow is inserted when a task becomes ready
in it and stays, empty or not, until it was seen empty.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import islice

from harness.policy.flow import NOBODY_LOST_SO_MANY, Asked, FlowFacts, Head

FlowKey = tuple[int, int, int, str]  # priority, tenant, run, signature


class Flow:
    """One flow: its ready tasks by id."""

    __slots__ = ("facts", "id", "key", "ready")

    def __init__(self, number: int, key: FlowKey) -> None:
        self.id = number
        self.key = key
        priority, tenant, run, signature = key
        self.facts = FlowFacts(id=number, priority=priority, tenant=tenant, run=run, signature=signature)
        self.ready: deque[Head] = deque()

    def add(self, head: Head) -> None:
        """Make a task ready here, in its place by age."""
        if self.ready and head.task < self.ready[-1].task:
            self.ready.insert(bisect_left(self.ready, head.task, key=lambda one: one.task), head)
        else:
            self.ready.append(head)

    def has(self, task: int) -> bool:
        """Whether a task is ready here."""
        at = bisect_left(self.ready, task, key=lambda one: one.task)
        return at < len(self.ready) and self.ready[at].task == task

    def take(self, tasks: tuple[int, ...]) -> None:
        """Take tasks away: nearly always the first ones."""
        for task in tasks:
            if self.ready[0].task == task:
                self.ready.popleft()
            else:
                del self.ready[bisect_left(self.ready, task, key=lambda one: one.task)]


class Flows:
    """All flows of one pool. `by_id`: for others to read."""

    def __init__(self) -> None:
        self._by_key: dict[FlowKey, Flow] = {}
        self.by_id: dict[int, Flow] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Flow]:
        return iter(self.by_id.values())

    def find(self, key: FlowKey) -> Flow | None:
        """Return the flow of a key, if it is there."""
        return self._by_key.get(key)

    def of(self, number: int) -> Flow:
        """Return a flow by its number. Raises: KeyError."""
        return self.by_id[number]

    def insert(self, flow: Flow) -> None:
        """Insert a new flow."""
        self._by_key[flow.key] = self.by_id[flow.id] = flow

    def delete_empty(self, numbers: tuple[int, ...]) -> list[int]:
        """Delete flows that were seen empty, if they still are. Returns those deleted."""
        gone = [number for number in numbers if not self.by_id[number].ready]
        for number in gone:
            del self._by_key[self.by_id.pop(number).key]
        return gone

    def look(self, asked: Asked) -> dict[int, list[Head]]:
        """Answer a look."""
        found: dict[int, list[Head]] = {}
        below = asked.lost_below
        for number, heads in zip(asked.flows, asked.heads, strict=True):
            ready = self.by_id[number].ready
            if below != NOBODY_LOST_SO_MANY:
                found[number] = list(islice((head for head in ready if head.lost_starts < below), heads))
            elif heads == 1 and ready:
                found[number] = [ready[0]]
            else:
                found[number] = list(islice(ready, heads))
        return found

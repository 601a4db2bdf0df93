"""The flows of one pool, in order, with their ready tasks: what the tables `flow` and `task` answer to a look.

It does what store/sql/snapshot/flows.sql does, by the same order and limits, and nothing that is policy. A flow is
inserted when a task becomes ready in it and stays, empty or not, until it was seen empty.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from harness.policy.dispatch import FlowFacts, Head
from harness.policy.look import NOBODY_LOST_SO_MANY, Asked
from harness.policy.room import needs

NEVER_SERVED = 1e9  # a flow that never was served comes before all that were, by age

FlowKey = tuple[int, int, int, str]  # priority, tenant, run, signature


class Flow:
    """One flow: its place in the order and its ready tasks by id."""

    __slots__ = ("cached", "cached_heads", "id", "key", "lost", "needs", "rank", "ready", "run_cap", "tenant_cap")

    def __init__(self, number: int, key: FlowKey, rank: float, tenant_cap: int, run_cap: int | None) -> None:
        self.id = number
        self.key = key
        self.rank = rank
        self.tenant_cap = tenant_cap
        self.run_cap = run_cap
        self.needs = needs(key[3])
        self.ready: deque[Head] = deque()
        self.lost = 0  # of its ready tasks, those that have lost a worker
        self.cached: FlowFacts | None = None
        self.cached_heads = 0

    def add(self, head: Head) -> None:
        """Make a task ready here, in its place by age."""
        self.lost += head.lost_starts > 0
        if self.ready and head.task < self.ready[-1].task:
            at = bisect_left(self.ready, head.task, key=lambda one: one.task)
            self.ready.insert(at, head)
            self.cached = None
            return
        self.ready.append(head)
        if self.cached is not None and len(self.cached.heads) < self.cached_heads:
            self.cached = None

    def take(self, tasks: tuple[int, ...]) -> None:
        """Take tasks away: nearly always the first ones."""
        self.cached = None
        for task in tasks:
            at = 0 if self.ready[0].task == task else bisect_left(self.ready, task, key=lambda one: one.task)
            self.lost -= self.ready[at].lost_starts > 0
            del self.ready[at]

    def served(self, now_s: float) -> None:
        """Note when it was served. The caller keeps the order."""
        self.rank = now_s
        self.cached = None

    def passing_over(self, heads: int, lost_below: int) -> FlowFacts:
        """Return it with at most so many heads, without those that have lost that many workers."""
        fit = (head for head in self.ready if head.lost_starts < lost_below)
        return replace(self.facts(heads), heads=tuple(islice(fit, heads)))

    def facts(self, heads: int) -> FlowFacts:
        """Return it with at most so many heads."""
        if self.cached is None or heads != self.cached_heads:
            priority, tenant, run, signature = self.key
            self.cached = FlowFacts(
                id=self.id,
                priority=priority,
                tenant=tenant,
                run=run,
                signature=signature,
                rank=self.rank,
                tenant_cap=self.tenant_cap,
                run_cap=self.run_cap,
                heads=tuple(islice(self.ready, heads)),
                needs=self.needs,
            )
            self.cached_heads = heads
        return self.cached


class Flows:
    """All flows of one pool."""

    def __init__(self) -> None:
        self._order: tuple[list[tuple[float, int, Flow]], ...] = ([], [], [], [])
        self._by_key: dict[FlowKey, Flow] = {}
        self._by_id: dict[int, Flow] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Flow]:
        return iter(self._by_id.values())

    def find(self, key: FlowKey) -> Flow | None:
        """Return the flow of a key, if it is there."""
        return self._by_key.get(key)

    def of(self, number: int) -> Flow:
        """Return a flow by its number. Raises: KeyError."""
        return self._by_id[number]

    def insert(self, flow: Flow) -> None:
        """Insert a new flow."""
        self._by_key[flow.key] = self._by_id[flow.id] = flow
        insort(self._order[flow.key[0]], (flow.rank, flow.id, flow))

    def serve(self, number: int, now_s: float) -> None:
        """Move a flow to the end of its priority: it was served now."""
        flow = self._by_id[number]
        order = self._order[flow.key[0]]
        del order[bisect_left(order, (flow.rank, flow.id))]
        flow.served(now_s)
        insort(order, (flow.rank, flow.id, flow))

    def delete_empty(self, numbers: list[int]) -> None:
        """Delete flows that were seen empty, if they still are."""
        for number in numbers:
            flow = self._by_id[number]
            if not flow.ready:
                order = self._order[flow.key[0]]
                del order[bisect_left(order, (flow.rank, flow.id))]
                del self._by_id[number], self._by_key[flow.key]

    def look(self, asked: Asked) -> list[FlowFacts]:
        """Answer a look."""
        found: list[FlowFacts] = []
        rows = 0
        blocked = asked.blocked
        tenants, runs, signatures, pairs = blocked.tenants, blocked.runs, blocked.signatures, blocked.pairs
        some_blocked = bool(tenants or runs or signatures or pairs)
        some_lost = blocked.lost_below != NOBODY_LOST_SO_MANY
        heads, most = asked.heads, asked.flows
        after_priority, after_rank, after_id = asked.after
        for priority, order in enumerate(self._order):
            if priority < after_priority or priority in blocked.priorities:
                continue
            start = 0
            if priority == after_priority:
                start = bisect_left(order, (after_rank, after_id + 1))
            for at in range(start, len(order)):
                flow = order[at][2]
                if some_blocked:
                    _, tenant, run, signature = flow.key
                    if tenant in tenants or run in runs or signature in signatures or (tenant, signature) in pairs:
                        continue
                left = asked.rows - rows
                facts = flow.cached
                if some_lost and flow.lost:
                    facts = flow.passing_over(min(heads, left), blocked.lost_below)
                elif facts is None or heads > left or heads != flow.cached_heads:
                    facts = flow.facts(min(heads, left))
                found.append(facts)
                rows += len(facts.heads) or 1
                if len(found) == most or rows >= asked.rows:
                    return found
        return found

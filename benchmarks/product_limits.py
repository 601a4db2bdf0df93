"""The product's side of the scenarios about downstreams: clients by the kind of work, and how tasks ended.

See benchmarks.drive. What the provider and the target saw is counted by them, never here; this tells only what the
trace of the tasks says.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from benchmarks import product_client
from benchmarks.product_client import open_connection, payload
from benchmarks.submission import Item, Submitter
from harness.engine import submit
from harness.engine.submit import Door, TaskRequest
from harness.policy.admission import Overload

KINDS = {"call": "bench.call", "local": "bench.wait.tool_read", "target": "bench.target"}

reset = product_client.reset

_WAITING = """
SELECT count(*) FROM task t WHERE state = 'queued' AND ready AND kind = %s
AND NOT EXISTS (SELECT FROM lease_member m WHERE m.task_id = t.id)
"""
_ENDS = """
SELECT state, count(*), sum(attempts_used), sum(lost_starts), sum(postponements) FROM task
WHERE kind = %s GROUP BY state
"""


class _Client(Submitter):
    """A client of one kind, in the engine's process: the same door as the web's, without HTTP."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._connection = open_connection("web")
        self._reader = open_connection("engine")
        self._tenant = product_client.tenant()
        self._door = Door(body_max_bytes=settings.HARNESS_BODY_MAX_BYTES)

    def one(self, item: Item) -> None:
        self.many([item])

    def many(self, items: Sequence[Item]) -> None:
        """Submit them, or nothing while the door refuses all that isn't urgent: enough waits then."""
        requests = [TaskRequest(kind=self._kind, input=payload(self._kind, item)) for item in items]
        with contextlib.suppress(Overload):
            submit.submit(self._door, self._connection, self._tenant, requests, actor="bench")

    def waiting(self) -> int:
        row = self._reader.execute(_WAITING, (self._kind,)).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        self._connection.close()
        self._reader.close()


def submitter() -> Submitter:
    """Return an open client for calls."""
    return submitter_of("call")


def submitter_of(name: str) -> Submitter:
    """Return an open client for `call`, `local` or `target` tasks."""
    return _Client(KINDS[name])


def ends(of: str) -> dict[str, Any]:
    """Return how many tasks of a kind are in each state, and what all of them have paid."""
    with open_connection("engine") as connection:
        rows = connection.execute(_ENDS, (KINDS[of],)).fetchall()
    names = ("attempts_used", "lost_starts", "postponements")
    paid = {name: int(sum(row[n] or 0 for row in rows)) for n, name in enumerate(names, start=2)}
    return {"states": {row[0]: int(row[1]) for row in rows}} | paid

"""Children of a running task: made once, waited for without a slot (policy.children). The context's spawn and gather.

Invariants: the rows of a spawn and its record are one transaction, fenced like every step: whatever dies, each child is
made once. A child has its parent's tenant, and its run; of a parent without one, a run of their own.
"""

import json
import uuid
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from harness.engine.process import LeaseLost, ProcessState
from harness.engine.requests import Desk, TaskRequest
from harness.engine.steps import Steps
from harness.kinds.children import Child, Children
from harness.kinds.errors import Parked, Permanent
from harness.policy import children as rules
from harness.policy.children import Policy
from harness.policy.errors import Invalid
from harness.policy.lifecycle import TERMINAL, State
from harness.store import children as stored
from harness.store import transitions
from harness.store.backlog import insert_run
from harness.store.database import Connection
from harness.store.transitions import Again, ClaimedTask, NewTask

ROWS_AT_ONCE = 500  # of one statement: some 50 ms, so that no single one is long
RESULTS_MAX_BYTES = 64 * 1024 * 1024  # of all gathered outputs: they are in the worker's memory at once
ERRORS_TOLD = 5
NO_LIMIT = (None, None, None, None)  # a child starts when it may, as long as its parent lives


class Family:
    """The children of one attempt at one task."""

    def __init__(self, process: ProcessState, task: ClaimedTask, steps: Steps) -> None:
        self._process = process
        self._task = task
        self._steps = steps
        self._spawned: list[Children] = []

    def spawn(self, kind: str, payloads: Sequence[object], *, priority: int | None, name: str, key: str) -> Children:
        """Make a task of each payload, once. Raises: see `kinds.Context.spawn`."""

        def write(connection: Connection) -> list[list[int]]:
            tasks = self._checked(kind, payloads, priority)
            ids = self._insert(connection, tasks, kind) if tasks else []
            return [list(one) for one in rules.ranges(ids)]

        made = self._steps.make(name, write, key)
        if payloads:
            self._process.doorbell.ring_from(self._process.db)
        batch = Children(kind=kind, ranges=tuple((first, n) for first, n in made))
        self._spawned.append(batch)
        return batch

    def gather(
        self, batches: Sequence[Children], *, policy: Policy, on_failure: str, name: str, key: str
    ) -> list[Child]:
        """Wait for children, without a slot, and return them in order. Raises: see `kinds.Context.gather`."""
        if on_failure not in ("return", "fail"):
            raise Permanent(f"gather: on_failure: must be 'return' or 'fail', not {on_failure!r}")
        # All in order of birth: threads of the kind (spawn with a key) may come to theirs in another order each time.
        gathered = _distinct(batches) if batches else tuple(sorted(_distinct(self._spawned)))
        text = self._steps.run(name, lambda: self._states(gathered, policy), key)
        children = self._read(gathered, text) if gathered else []
        if on_failure == "fail":
            _refuse_failed(children)
        return children

    def _checked(self, kind: str, payloads: Sequence[object], priority: int | None) -> list[NewTask]:
        """Check payloads as a submission is checked. Raises: Permanent naming the field."""
        own = self._task.priority
        urgency = own if priority is None else priority
        if not own <= urgency <= 3:
            raise Permanent(f"spawn: priority: must be from {own}, this task's own, to 3, not {priority}")
        desk = Desk(body_max_bytes=settings.HARNESS_BODY_MAX_BYTES, ttl_s=NO_LIMIT)
        tasks: list[NewTask] = []
        try:
            for at, payload in enumerate(payloads):
                request = TaskRequest(kind=kind, input=payload)
                task = desk.check(request, priority=urgency, public_id=uuid.uuid4(), at=f"payloads[{at}].")
                if task is not None:
                    tasks.append(task)
                if len(desk.errors) >= ERRORS_TOLD:
                    break
        except Invalid as error:
            raise Permanent(f"spawn: {error.message}") from None
        if desk.errors:
            told = "; ".join(f"{one['field']}: {one['message']}" for one in desk.errors[:ERRORS_TOLD])
            raise Permanent(f"spawn: {told}")
        return tasks

    def _insert(self, connection: Connection, tasks: Sequence[NewTask], kind: str) -> list[int]:
        task = self._task
        run, before = stored.family(connection, task.id, task.run)
        most = settings.HARNESS_RUN_MAX_TASKS
        if before + len(tasks) > most:
            raise Permanent(
                f"spawn: payloads: {len(tasks):,} more would make {before + len(tasks):,} spawned tasks in this run, "
                f"and a run may have {most:,}: give each more to do"
            )
        if run is None:
            run = insert_run(
                connection,
                public_id=uuid.uuid4(),
                tenant=task.tenant,
                name=f"spawned by {task.kind} {task.public_id}",
                size=len(tasks),
                fanout_cap=None,
            )
        ids: list[int] = []
        for at in range(0, len(tasks), ROWS_AT_ONCE):
            ids += transitions.submit(
                connection,
                tasks[at : at + ROWS_AT_ONCE],
                tenant=task.tenant,
                run=run,
                parent=task.id,
                actor=self._process.actor,
            )
        stored.link(connection, task.id, task.release_no)
        return ids

    def _states(self, ranges: rules.Ranges, wanted: Policy) -> str:
        """Return how they stand, when the wait is over. Raises: Parked, Permanent, LeaseLost."""
        total = sum(n for _, n in ranges)
        try:
            needed = rules.need(wanted, total)
        except Invalid as error:
            raise Permanent(f"gather: {error.message}") from None
        states = self._steps.look(lambda db: stored.states(db, self._task.id, ranges)) if ranges else []
        if len(states) != total:
            raise Permanent(f"gather: batches: {total - len(states)} of {total} aren't children of this task")
        cut_off: list[Again] = []
        if State.CANCELLED in states:  # with this task, perhaps, which has been sent again since: then so are they
            cut_off = self._steps.look(lambda db: stored.cut_off(db, self._task.id, ranges))
        if not cut_off and rules.over(states, needed):
            return rules.written(states)
        self._steps.look(lambda db: self._park(db, ranges, total, needed, cut_off))
        if cut_off:
            self._process.doorbell.ring_from(self._process.db)
        raise Parked(sum(state not in TERMINAL for state in states) + len(cut_off))

    def _park(self, db: Connection, ranges: rules.Ranges, total: int, needed: int, cut_off: Sequence[Again]) -> None:
        """Note what is waited for, and send again what was cut off. Raises: LeaseLost."""
        task = self._task
        with db.transaction():
            if not stored.wait(db, task.id, task.release_no, need=needed, total=total, ranges=ranges):
                raise LeaseLost("the task was taken back while it looked at its children")
            if cut_off:
                reason = f"the task that spawned it, {task.public_id}, was sent again"
                transitions.redrive(db, cut_off, actor=self._process.actor, reason=reason)

    def _read(self, ranges: rules.Ranges, text: str) -> list[Child]:
        results = self._steps.look(lambda db: stored.results(db, self._task.id, ranges))
        states = rules.read(text)
        size = sum(len(one.output or "") for one in results)
        if size > RESULTS_MAX_BYTES:
            raise Permanent(
                f"gather: the results of {len(results):,} children are {size:,} characters of JSON, above "
                f"{RESULTS_MAX_BYTES:,}: let each keep its own with `ctx.artifacts.put` and return the id"
            )
        return [
            Child(
                task_id=str(one.public_id),
                kind=one.kind,
                state=state,
                output=json.loads(one.output) if one.output is not None and state is State.SUCCEEDED else None,
                error=_error(one.error, state),
            )
            for one, state in zip(results, states, strict=True)
        ]


def _error(text: str | None, state: State) -> dict[str, Any] | None:
    if state in (State.SUCCEEDED, State.QUEUED, State.RUNNING):
        return None
    found = json.loads(text) if text is not None else None
    if isinstance(found, dict):
        return found
    return {"class": "cancelled", "message": "it was cancelled"} if state is State.CANCELLED else None


def _distinct(batches: Sequence[Children]) -> rules.Ranges:
    """The ranges of batches, each once, in the order given."""
    return tuple(dict.fromkeys(one for batch in batches for one in batch.ranges))


def _refuse_failed(children: Sequence[Child]) -> None:
    bad = [(at, child) for at, child in enumerate(children) if child.ended and not child.succeeded]
    if bad:
        at, child = bad[0]
        message = (child.error or {}).get("message") or child.state
        raise Permanent(
            f"gather: {len(bad)} of {len(children)} children didn't succeed; the first, number {at}, task "
            f"{child.task_id}: {message}"
        )

"""What one attempt asks of the downstreams: its place among those who wait, and its numbers for calls.

Numbers are given once, so that each call has a permit of its own. An attempt that has asked is told of when it is over
and its last call has returned, also one that it had left.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypedDict

from harness.engine.answers import chain
from harness.engine.passage import Passage
from harness.engine.process import ProcessState, Running
from harness.kinds import calling
from harness.kinds.errors import Cancelled, WorkError
from harness.kinds.registry import Kind
from harness.policy.permits import Ask
from harness.policy.retry import OF_A_DOWNSTREAM
from harness.store.transitions import ClaimedTask


class Trouble(TypedDict):
    """See settle.from_error."""

    outage: bool
    budget_s: Callable[[], float] | None


class Asking:
    """The calls of one attempt. Threads of the attempt may share it."""

    __slots__ = (
        "_asked",
        "_began_s",
        "_declared",
        "_done",
        "_lock",
        "_look",
        "_numbers",
        "_over",
        "_process",
        "_running",
        "_steps_done",
        "_task",
    )

    def __init__(
        self,
        process: ProcessState,
        running: Running,
        task: ClaimedTask,
        kind: Kind,
        look: Callable[[], None],
        *,
        steps_done: Callable[[], int],
    ) -> None:
        """`look` raises when the task should stop; `steps_done`: how many steps of earlier attempts it has passed."""
        self._process = process
        self._running = running
        self._task = task
        self._declared = kind.may_need()
        self._look = look
        self._steps_done = steps_done
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._numbers = 0
        self._done = 0
        self._asked = False
        self._over = False

    def enter(self, resource: str | tuple[str, ...], cost: int | Mapping[str, int]) -> Passage:
        """Get the permits of a call. Raises: ValueError, NoPermit, Cancelled, LeaseLost."""
        names = (resource,) if isinstance(resource, str) else tuple(resource)
        if not names:
            raise ValueError("a call names a resource")
        for name in names:
            if name not in self._declared:
                raise ValueError(
                    f"this kind doesn't declare the resource {name!r}; it declares {sorted(self._declared)}"
                )
        downstream = self._process.downstream
        self.look()
        with self._lock:
            self._numbers += 1
            number, done = self._numbers, self._done
        wants = downstream.wants(names, cost)
        ask = Ask(
            member=f"{self._task.id}:{self._task.release_no}:{number}",
            tenant=self._task.tenant,
            priority=self._task.priority,
            calls_done=done + self._steps_done(),
            # On the database's clock, whatever this machine's says: it is an order among all workers.
            since_s=self._task.claimed_s + time.monotonic() - self._began_s,
            wants=wants,
            waits=True,
            first=self._task.attempts_used == 0,
        )
        self._asked = self._asked or bool(wants)
        # Inside another call P0 waits no longer than others: it holds what somebody else may be waiting for.
        passage = downstream.enter(ask, self.look, left_s=self._left_s, patient=calling.under_way() is None)
        with self._lock:
            self._done += 1
        return passage

    def look(self) -> None:
        """Raises: as `look` given; Cancelled past the task's time limit or deadline: no call begins there."""
        self._look()
        if self._left_s() <= 0:
            self._running.ask_to_stop("timeout")
            raise Cancelled("timeout")

    def trouble(self, error: BaseException) -> Trouble:
        """Return what the downstream that an error came from makes of it: nothing, if it came from none."""
        found = next((one for one in chain(error) if isinstance(one, WorkError) and one.resource), None)
        if found is None or found.error_class not in OF_A_DOWNSTREAM:
            return Trouble(outage=False, budget_s=None)
        downstream, resource, priority = self._process.downstream, found.resource, self._task.priority
        return Trouble(
            outage=downstream.in_outage(resource), budget_s=lambda: downstream.retry_wait_s(resource, priority)
        )

    def end(self, *, still: Callable[[], bool], over: bool = False) -> None:
        """Tell that the attempt is over, if it is (`over`, said once) and none of its calls runs `still`."""
        with self._lock:
            self._over = self._over or over
            tell = self._asked and self._over and not still()
            if tell:
                self._asked = False
        if tell:
            self._process.downstream.ended([(self._task.id, self._task.release_no)])

    def _left_s(self) -> float:
        return self._running.task_began_s + self._running.timeout_s - time.monotonic()

"""The context of a running task: `kinds.Context`, fenced. Every effect goes through here or not at all."""

import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

from django.conf import settings
from pydantic import BaseModel

from harness.engine import acall
from harness.engine.artifacts import RunArtifacts
from harness.engine.asking import Asking, Trouble
from harness.engine.calls import LEAVE_AFTER_S, Call, Hand, is_left
from harness.engine.children import Family
from harness.engine.documents import TenantDocuments
from harness.engine.live import Output
from harness.engine.process import DRAIN, LeaseLost, ProcessState, Running
from harness.engine.questions import ask
from harness.engine.steps import Steps
from harness.engine.targets import Held, Use, told
from harness.kinds.children import Child, Children
from harness.kinds.errors import Cancelled, TimedOut
from harness.kinds.forms import changed
from harness.kinds.registry import Kind
from harness.policy.approvals import CHOICES, NAME, TIMEOUT_S, OnDeny, OnTimeout, Question
from harness.store import sessions
from harness.store.database import Connection
from harness.store.targets import Target
from harness.store.transitions import ClaimedTask
from harness.telemetry import traces

T = TypeVar("T")


class RunContext:
    """One attempt at one task; implements `kinds.Context`."""

    __slots__ = (
        "_asking",
        "_family",
        "_form",
        "_lock",
        "_needs",
        "_output",
        "_process",
        "_running",
        "_steps",
        "_targets",
        "_task",
    )

    def __init__(self, process: ProcessState, running: Running, task: ClaimedTask, kind: Kind) -> None:
        self._process = process
        self._running = running
        self._task = task
        self._output: Output | None = None
        self._targets: Held | None = None
        self._needs = kind.may_need()
        self._form = kind.form(task.degraded)
        self._lock = threading.Lock()  # of what threads of the kind share: the hand for calls, and what was spent
        self._asking = Asking(process, running, task, kind, self.checkpoint, steps_done=lambda: self._steps.replayed)
        self._steps = Steps(
            process,
            running,
            task,
            task_token=f"harness-{task.public_id}" + (f"-{task.token_epoch}" if task.token_epoch else ""),
            bundle=kind.bundle,
            checkpoint=self.checkpoint,
            check=self._check,
        )
        self._family = Family(process, task, self._steps)

    @property
    def task_id(self) -> str:
        """The public id."""
        return str(self._task.public_id)

    @property
    def tenant_id(self) -> int:
        """The tenant whose work this is."""
        return self._task.tenant

    @property
    def form(self) -> str:
        """The cheaper form that this attempt runs in; '' when it runs whole."""
        return self._form.name if self._form else ""

    def shaped(self, payload: BaseModel) -> BaseModel:
        """Return the input in the form that this attempt runs in. Raises: TypeError; whatever the form does."""
        return changed(self._form, payload) if self._form else payload

    @property
    def token(self) -> str:
        """The same over all attempts of the task, or of the step; until it is sent again with another input."""
        return self._steps.token()

    @property
    def artifacts(self) -> RunArtifacts:
        """The tenant's files."""
        return RunArtifacts(self._process, self.checkpoint, tenant=self._task.tenant, task=self._task.id)

    @property
    def documents(self) -> TenantDocuments:
        """The tenant's searchable documents."""
        return TenantDocuments(self._process, self._task.tenant, self._hold)

    def cancelled(self) -> bool:
        """Whether the task should end: a wish, a drain, a time-out, or a lost lease."""
        return is_left() or self._running.stop is not None or not self._process.fence.is_open()

    def checkpoint(self) -> None:
        """Raises: Cancelled, LeaseLost."""
        self._check()
        if self._running.stop is not None:
            raise Cancelled(self._running.stop)

    def step(self, name: str, fn: Callable[[], T], *, key: str = "") -> T:
        """Do something once over all attempts. Raises: see `kinds.Context.step`."""
        result: T = self._steps.run(name, fn, key)
        return result

    def spawn(
        self, kind: str, payloads: Iterable[object], *, priority: int | None = None, name: str = "", key: str = ""
    ) -> Children:
        """Make a task of each payload, once. Raises: see `kinds.Context.spawn`."""
        return self._family.spawn(kind, list(payloads), priority=priority, name=name or f"spawn {kind}", key=key)

    def gather(
        self,
        *batches: Children,
        policy: Literal["all", "any"] | int = "all",
        on_failure: Literal["return", "fail"] = "return",
        name: str = "gather",
        key: str = "",
    ) -> list[Child]:
        """Wait for children, without a slot. Raises: see `kinds.Context.gather`."""
        return self._family.gather(batches, policy=policy, on_failure=on_failure, name=name, key=key)

    def ask(
        self,
        prompt: str,
        *,
        choices: Sequence[str] = CHOICES,
        timeout_s: float | None = TIMEOUT_S,
        on_timeout: OnTimeout = "pause",
        deny: OnDeny = "cancel",
        name: str = NAME,
    ) -> str:
        """Ask people, without a slot held meanwhile. Raises: see `kinds.Context.ask`."""
        question = Question(prompt=prompt, choices=choices, timeout_s=timeout_s, on_timeout=on_timeout, deny=deny)
        return ask(self._steps, self._task, question, name)

    def call(self, resource: str | tuple[str, ...], fn: Callable[..., T], *, cost: int | Mapping[str, int] = 0) -> T:
        """Call a declared downstream once. Raises: see `kinds.Context.call`."""
        with traces.span(self._task.public_id, "call", resource=_named(resource)):
            return self._call(resource, fn, cost)

    def _call(self, resource: str | tuple[str, ...], fn: Callable[..., T], cost: int | Mapping[str, int]) -> T:
        with traces.span(self._task.public_id, "permit"):
            passage = self._asking.enter(resource, cost)
        running = self._running
        call = Call(lambda: passage.run(fn), self._over)
        begun = False
        try:
            with self._lock:
                hand, running.hand = running.hand or self._process.hands.take(), None
            running.calls.add(call)
            hand.begin(call)
            begun = True
            over_s = time.monotonic() + passage.most_s
            while not call.done and running.stop in (None, DRAIN) and (left_s := over_s - time.monotonic()) > 0:
                call.wait(None if left_s == math.inf else left_s)
            if not call.done:
                call.wait(LEAVE_AFTER_S)
        finally:
            # Also when a soft time limit or the like was raised into the wait.
            running.calls.discard(call)
            if begun:
                left = self._leave(call)
                if not left:
                    self._keep(hand)
            else:
                passage.undo()
            self._asking.end(still=self._calls_run)  # on a thread of the kind's own that outlived it
        if left and running.stop in (None, DRAIN):
            raise passage.time_out()
        if left:
            raise Cancelled(running.stop or "stop")
        result: T = call.outcome()
        return result

    async def acall(
        self,
        resource: str | tuple[str, ...],
        fn: Callable[..., Awaitable[T]],
        *,
        cost: int | Mapping[str, int] = 0,
    ) -> T:
        """The same for a coroutine. Raises: see `kinds.Context.acall`."""
        with traces.span(self._task.public_id, "call", resource=_named(resource)):
            return await acall.run(self._process.hands, self._running, self._asking, resource, fn, cost)

    def _keep(self, hand: Hand) -> None:
        """Keep a thread for the next call; one is enough, whatever many the kind's own threads have made at once."""
        with self._lock:
            if self._running.hand is None:
                self._running.hand = hand
                return
        self._process.hands.give_back(hand)

    def _leave(self, call: Call) -> bool:
        """Leave a call that isn't done. False: it is done."""
        running = self._running
        with running.lock:
            if not call.leave():
                return False
            running.left.add(call)
        return True

    def _over(self, call: Call) -> None:
        """A call that was left has returned: its slot is free when it was the last, and the task has been settled."""
        self._process.call_over(self._running, call)
        self._asking.end(still=self._calls_run)

    def _calls_run(self) -> bool:
        return bool(self._running.left or self._running.calls)

    def _check(self) -> None:
        """Raises: Cancelled in a call that was left: it begins nothing more; LeaseLost."""
        if is_left():
            raise Cancelled("the task has left this call")
        self._process.fence.check()

    def emit(self, text: str) -> None:
        """Show a piece of output, soon. Raises: LeaseLost; Cancelled in a call that was left."""
        self._check()
        if self._running.taken_over:
            return  # settled from outside: who watches has been told how it ended
        if self._output is None:
            self._output = self._process.live.open(self.task_id, self._task.release_no)
            self._running.watched.add(self.task_id)
        self._process.live.emit(self._output, text)

    def spent(self, model: str, tokens_in: int, tokens_out: int) -> float | None:
        """Count tokens and their cost. Returns USD, or None when the model has no price."""
        if tokens_in < 0 or tokens_out < 0:
            raise ValueError(f"tokens can't be below 0: {tokens_in} in, {tokens_out} out")
        usd: float | None = settings.HARNESS_MODELS.cost_usd(model, tokens_in, tokens_out)
        running = self._running
        with self._lock:
            running.tokens += tokens_in + tokens_out
            running.usd = None if usd is None or running.usd is None else running.usd + usd
        return usd

    def check_steps(self) -> None:
        """The kind has returned. Raises: StepMismatch that it swallowed, or that nobody took from its thread."""
        self._steps.check()

    def trouble(self, error: BaseException) -> Trouble:
        """Return what the downstream that an error came from makes of it."""
        return self._asking.trouble(error)

    def end(self) -> None:
        """The kind has returned or raised: let what it showed last go out before its end is known."""
        if self._running.hand is not None:
            self._process.hands.give_back(self._running.hand)
            self._running.hand = None
        if self._targets is not None:
            self._targets.close()
        if self._output is not None:
            self._process.live.end(self._output)
        self._asking.end(still=self._calls_run, over=True)

    @contextmanager
    def db(self) -> Iterator[Connection]:
        """A connection in a transaction, from the process's pool.

        Raises: LeaseLost, also at its end (undone); Cancelled in a call left.
        """
        self._check()
        with self._process.db.connection() as connection, connection.transaction():
            yield connection
            self._hold(connection)

    @contextmanager
    def target(self, name: str) -> Iterator[Target]:
        """A connection to a target database in a transaction. Raises: see `kinds.Context.target`."""
        if name not in self._needs or name not in settings.HARNESS_TOPOLOGY.targets:
            known = sorted(settings.HARNESS_TOPOLOGY.targets.keys() & self._needs)
            raise ValueError(f"this kind declares no target {name!r}; it declares {known}")
        self.checkpoint()
        running = self._running
        with self._lock:
            held = self._targets = self._targets or Held(
                self._process.targets, self._needs, statement_s=running.timeout_s, look=self.checkpoint
            )
        with held.borrowed(name) as connection:
            use = Use(connection, lambda: running.stop not in (None, DRAIN))
            running.calls.add(use)
            try:
                self.checkpoint()  # a wish that came before it could be stirred
                with told(name), connection.transaction():
                    yield connection
                    self._check()
            except TimedOut:
                self.checkpoint()  # it was cancelled because the task is to end
                raise
            finally:
                use.end()
                running.calls.discard(use)

    def _hold(self, connection: Connection) -> None:
        """Let a transaction commit only while the task is this worker's. Raises: LeaseLost.

        The fence alone isn't enough here: a process that was stopped inside a transaction commits it when it goes on.
        """
        self._process.fence.check()
        if not sessions.hold(
            connection,
            self._process.session,
            lease=self._running.lease,
            token=self._running.token,
            task=self._task.id,
            release_no=self._task.release_no,
        ):
            raise LeaseLost("the task was taken back while its transaction was open")


def _named(resource: str | tuple[str, ...]) -> str:
    return resource if isinstance(resource, str) else "+".join(resource)

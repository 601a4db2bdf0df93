"""What a running task can do: the protocol that `engine.context` implements and tests may imitate."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from harness.kinds.artifacts import Artifacts
from harness.kinds.children import Child, Children
from harness.kinds.documents import Documents
from harness.policy.approvals import CHOICES, NAME, TIMEOUT_S, OnDeny, OnTimeout

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")


class Context(Protocol):
    """One attempt at one task. The kind's own threads may share `step`, `call`, `spent`, `token` and `checkpoint`."""

    @property
    def task_id(self) -> str:
        """The public id (UUID) that the API shows."""
        ...

    @property
    def tenant_id(self) -> int:
        """The tenant whose work this is."""
        ...

    @property
    def token(self) -> str:
        """An idempotency token for a side effect: the same over all attempts of the task; inside a step, of that step.

        Also when it is redriven as it was; another one when it is redriven with another input. Ask for it on the thread
        of the step (`ctx.call` hands it on): on another one, while steps are under way, it raises RuntimeError.
        """
        ...

    @property
    def form(self) -> str:
        """The cheaper form that this attempt runs in (`@kind(degrade=..)`); '' when it runs whole.

        Its change of the input is made already. Another attempt may run in another form.
        """
        ...

    @property
    def artifacts(self) -> Artifacts:
        """The tenant's files: uploads to read, and results larger than a row to keep."""
        ...

    @property
    def documents(self) -> Documents:
        """The tenant's searchable documents, and the files that may be read."""
        ...

    def cancelled(self) -> bool:
        """Whether someone wants this task to stop (cancel, pause, drain, time-out). Cheap: ask often."""
        ...

    def checkpoint(self) -> None:
        """Stop here if someone wants it. Raises: Cancelled."""
        ...

    def step(self, name: str, fn: Callable[[], T], *, key: str = "") -> T:
        """Do something once: when it has finished, a later attempt gets its result, and `fn` isn't called again.

        The result is JSON (dict with text keys, list, text, number, bool, None) of at most 256 KiB; what is larger goes
        to `ctx.artifacts`, its id into the result. An attempt that ends inside leaves the step unfinished: the next one
        does it again, with the same `ctx.token`. An error that the kind lives with is caught inside `fn`.

        Steps follow each other by name as they did before, or the task waits for a worker with other code. Those that
        may overtake each other have a `key`: it names a line of steps of its own, also on a thread of its own. Join
        such threads before the next step without a key. No step inside a step, none inside `ctx.db()`, none in a kind
        with `bundle=True`.

        Raises: Cancelled before it begins; StepMismatch; Permanent (result, name, place); LeaseLost (engine); whatever
        `fn` raised.
        """
        ...

    def spawn(
        self, kind: str, payloads: Iterable[object], *, priority: int | None = None, name: str = "", key: str = ""
    ) -> Children:
        """Make a task of each payload, all or none, once: a step (`name`, `key`), so a later attempt gets the same.

        They belong to this task's tenant and run (of a task without one: a run of their own), wait in line like others,
        and count under the run's cap. `priority`: this task's own, or a less urgent one. They don't outlive this task:
        however it ends, those that live are cancelled.

        Raises: Permanent naming the field (kind, payloads, priority; too many for the run; the budget is spent);
        whatever `step` does.
        """
        ...

    def gather(
        self,
        *batches: Children,
        policy: Literal["all", "any"] | int = "all",
        on_failure: Literal["return", "fail"] = "return",
        name: str = "gather",
        key: str = "",
    ) -> list[Child]:
        """Wait for children (without batches: for all that were spawned so far) and return them in order. A step.

        While they aren't through the task leaves its slot: this raises (Parked), and a later attempt comes back here
        with what was done before. It goes on when all have succeeded, with `policy` "any" one of them, with a number so
        many; in any case when all have ended. Each child tells its state, output and error; those that still work go
        on, and may be gathered again. `on_failure="fail"`: one that failed or was cancelled fails this task, too.

        Raises: Parked (leave it alone); Permanent (not its own children; policy; on_failure; more than 64 MiB of
        results); whatever `step` does.
        """
        ...

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
        """Ask people, and return the choice that somebody made; without `choices`, "approved". A step, by `name`.

        The attempt ends here (Asked) and its slot is free; when somebody has decided, a later attempt replays the steps
        before and goes on with the answer, as every attempt after it does. A no cancels the task or, with
        deny="answer", returns DENIED. When nobody has decided in `timeout_s` (None: waits for ever) the task is paused,
        until it is asked again, or cancelled; never approved. `prompt`: at most 4,000 characters, for people.

        Join the kind's own threads first. Not inside a step, nor in a kind with `bundle=True`.
        Raises: Asked; Permanent naming what can't be asked; as `step`.
        """
        ...

    def call(self, resource: str | tuple[str, ...], fn: Callable[..., T], *, cost: int | Mapping[str, int] = 0) -> T:
        """Call a downstream once, never twice. `resource`: a name of resources.toml that the kind declares, or several.

        First a permit of each resource, all or none: it waits for them while that is worth the slot (5 s at most), else
        NoPermit puts the task back in line, without an attempt spent. `cost`: tokens that the call will use, as far as
        you know, of each resource or by resource. An `fn` that takes an argument gets the call (kinds.calling): tell it
        `call.used(tokens)`, what it really was, and `call.headers(mapping)`, what the answer said of rate limits.

        `fn` runs on a thread beside the task's own, the same for all calls of an attempt, with its context variables.
        When someone cancels or pauses the task, or its time is over, the call returns within a second (Cancelled) and
        `fn` is left alone; whatever it asks of this context from then on raises Cancelled, so that it begins nothing.
        The permit stays until it has returned. Name all that one call needs at once: a call inside another holds what
        others wait for.

        Raises: NoPermit; RateLimited, TimedOut, Transient or Permanent, by what `fn` raised (HTTP status, time-out);
        Cancelled when the task is to stop; LeaseLost (engine) when this worker may no longer act.
        """
        ...

    async def acall(
        self,
        resource: str | tuple[str, ...],
        fn: Callable[..., Awaitable[T]],
        *,
        cost: int | Mapping[str, int] = 0,
    ) -> T:
        """The same for a coroutine function, on the kind's own loop (`asyncio.run`); several may be awaited at once.

        When the task is to stop the coroutine is cancelled, and Cancelled raised. Raises: as `call`.
        """
        ...

    def emit(self, text: str) -> None:
        """Show a piece of the answer to those who watch the task run. Never waits; call it as often as you like.

        Best effort: it may come late or not at all (Redis away, 128 KiB of one attempt shown). The result is what you
        return. A later attempt's output replaces this one's. Raises: LeaseLost (engine).
        """
        ...

    def spent(self, model: str, tokens_in: int, tokens_out: int) -> float | None:
        """Count what a call of a model used, also when it failed. Returns its cost in USD, None without a price.

        `model`: a name of config/models.toml, or the provider's own. Recorded with the attempt, however that ends.
        """
        ...

    def db(self) -> "AbstractContextManager[psycopg.Connection[Any]]":
        """A connection to Harness's own database in a transaction, from the process's bounded pool.

        Keep it short: never hold it across a call to a downstream.
        """
        ...

    def target(self, name: str) -> "AbstractContextManager[psycopg.Connection[Any]]":
        """A connection to a target database (`[targets]` of resources.toml) in a transaction.

        `name` is a resource that the kind declares; so many as it declares may be open at once, also from threads of
        the kind. Committed at the end, undone when the block raises. A wish to cancel or pause the task, or the end of
        its time, cancels the statement that runs; none takes longer than the kind's `timeout_s`.

        Raises: RateLimited when the target is full or away (back in line, no attempt spent); TimedOut, Transient or
        Permanent by what the database said; Cancelled when the task is to stop; LeaseLost (engine), undone.
        """
        ...

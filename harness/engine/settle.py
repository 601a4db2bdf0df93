"""The stage `settle`: what an ended attempt becomes. Outcomes are values; `store.transitions.settle` commits them."""

import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.conf import settings
from pydantic import BaseModel, ValidationError

from harness.engine import payload
from harness.kinds import models
from harness.kinds.errors import Asked, Cancelled, Parked, Permanent, StepMismatch, WorkError
from harness.kinds.registry import Kind
from harness.policy import retry
from harness.policy.errors import ErrorClass, Invalid, TooLarge
from harness.policy.holds import CHILDREN
from harness.policy.lifecycle import Event
from harness.store.transitions import ClaimedTask, Outcome

MESSAGE_CHARACTERS = 2000
TRACEBACK_BYTES = 8192
PROMPT_SHOWN_CHARS = 200  # of a question, in the trace; the question itself has all


def succeeded(task: ClaimedTask, result: Any, *, slot_s: float) -> Outcome:
    """The attempt returned. Raises: Permanent when what it returned isn't JSON, is too large or can't be stored."""
    output = None if result is None else _output(result)
    return Outcome(task=task.id, release_no=task.release_no, event=Event.SUCCEED, slot_s=slot_s, output=output)


def with_spent(outcome: Outcome, tokens: int, usd: float | None) -> Outcome:
    """The same outcome with what its attempt used, however it ended. `usd` None: a model had no price."""
    return replace(outcome, tokens=tokens, usd=usd) if tokens else outcome


def from_error(
    task: ClaimedTask,
    kind: Kind,
    error: BaseException,
    *,
    slot_s: float,
    stop: str | None,
    jitter: float,
    outage: bool = False,
    budget_s: Callable[[], float] | None = None,
) -> Outcome:
    """The attempt raised: retry, postpone, fail, or give way to a wish or a drain. `jitter` in [0, 1).

    `outage`: what failed is a downstream whose breaker isn't closed; `budget_s` takes a retry from that downstream's
    budget, and returns the seconds after which it may be made.
    """
    if isinstance(error, Parked):
        return _parked(task, error, slot_s=slot_s)
    if isinstance(error, StepMismatch):
        return _held(task, f"its steps are not those that were recorded: {_said(error)}", slot_s=slot_s)
    if isinstance(error, Asked):
        return Outcome(
            task=task.id,
            release_no=task.release_no,
            event=Event.ASK,
            slot_s=slot_s,
            data={
                "ordinal": error.ordinal,
                "prompt": error.prompt[:PROMPT_SHOWN_CHARS],
                "timeout_s": error.timeout_s,
            },
        )
    if isinstance(error, Cancelled) and stop != "timeout":
        return interrupt(task.id, task.release_no, why=stop or "drain", slot_s=slot_s)
    error_class, message = _classify(error, kind, timed_out=stop == "timeout")
    decision = retry.decide(
        error_class,
        attempts_used=task.attempts_used,
        max_attempts=kind.max_attempts,
        postponements=task.postponements,
        retry_after_s=_retry_after_s(error),
        jitter=jitter,
        rules=kind.rules,
        outage=outage,
    )
    delay_s = decision.delay_s
    if delay_s is not None and budget_s is not None and error_class in retry.OF_A_DOWNSTREAM:
        delay_s = max(delay_s, budget_s())
    event = {"retry": Event.FAIL, "postpone": Event.POSTPONE, "fail": Event.BURY}[decision.verdict]
    return Outcome(
        task=task.id,
        release_no=task.release_no,
        event=event,
        slot_s=slot_s,
        delay_s=delay_s,
        spends=0 if event is Event.POSTPONE else 1,
        error=None if event is Event.POSTPONE else {"class": str(error_class), "message": message},
        error_class=str(error_class),
        message=message,
        traceback=_traceback(error),
        data={"class": str(error_class), "reason": message[:300], "delay_s": delay_s},
    )


def overdue(task: int, release_no: int, kind: Kind, *, attempts_used: int, slot_s: float, jitter: float) -> Outcome:
    """The attempt ran past its time limit and its thread can't be stopped: the watcher settles in its place."""
    message = f"it ran past its time limit of {kind.timeout_s:g} s and didn't stop when asked"
    decision = retry.decide(
        ErrorClass.TIMEOUT,
        attempts_used=attempts_used,
        max_attempts=kind.max_attempts,
        postponements=0,
        retry_after_s=None,
        jitter=jitter,
        rules=kind.rules,
    )
    return Outcome(
        task=task,
        release_no=release_no,
        event=Event.BURY if decision.verdict == "fail" else Event.FAIL,
        slot_s=slot_s,
        delay_s=decision.delay_s,
        spends=1,
        error={"class": "timeout", "message": message},
        error_class="timeout",
        message=message,
        data={"class": "timeout", "reason": message, "delay_s": decision.delay_s},
    )


def interrupt(task: int, release_no: int, *, why: str, slot_s: float) -> Outcome:
    """The attempt gave way: back in line, or (the database decides, by the wish) aborted or halted."""
    return Outcome(task=task, release_no=release_no, event=Event.INTERRUPT, slot_s=slot_s, data={"reason": why})


def mismatch(task: ClaimedTask, *, known: int | None) -> Outcome:
    """This worker doesn't know the kind, or knows another version: held until one does; never discarded."""
    what = f"kind {task.kind!r}" if known is None else f"version {task.version} of kind {task.kind!r} (it has {known})"
    return _held(task, f"the worker doesn't know {what}", slot_s=0.0)


def _parked(task: ClaimedTask, error: Parked, *, slot_s: float) -> Outcome:
    """It waits for its children, without a slot; the dispatcher queues it again when they have ended."""
    return Outcome(
        task=task.id,
        release_no=task.release_no,
        event=Event.PARK,
        slot_s=slot_s,
        hold=CHILDREN,
        message=str(error),
        data={"children": error.children},
    )


def _held(task: ClaimedTask, reason: str, *, slot_s: float) -> Outcome:
    return Outcome(
        task=task.id,
        release_no=task.release_no,
        event=Event.MISMATCH,
        slot_s=slot_s,
        hold="version",
        message=reason,
        data={"reason": reason},
    )


def refused(outcome: Outcome, why: str) -> Outcome:
    """The database refused what the attempt returned: the attempt failed, for good."""
    message = _clean(f"its result can't be stored: {why}")[:MESSAGE_CHARACTERS]
    return Outcome(
        task=outcome.task,
        release_no=outcome.release_no,
        event=Event.BURY,
        slot_s=outcome.slot_s,
        spends=1,
        tokens=outcome.tokens,
        usd=outcome.usd,
        error={"class": "validation", "message": message},
        error_class="validation",
        message=message,
        data={"class": "validation", "reason": message[:300]},
    )


def _output(result: Any) -> str:
    value = result.model_dump(mode="json") if isinstance(result, BaseModel) else result
    try:
        return models.redact(payload.encode(value, "result", max_bytes=settings.HARNESS_BODY_MAX_BYTES))
    except TooLarge as error:
        raise Permanent(
            f"its result is too large for a row: {error.message}. A kind keeps it with `ctx.artifacts.put` and returns "
            "the id"
        ) from error
    except Invalid as error:
        raise Permanent(f"its result can't be stored as JSON: {error.message}") from error


def _classify(error: BaseException, kind: Kind, *, timed_out: bool) -> tuple[ErrorClass, str]:
    if timed_out:
        return ErrorClass.TIMEOUT, f"it ran past its time limit of {kind.timeout_s:g} s"
    if isinstance(error, WorkError):
        error_class = error.error_class if error.error_class in retry.VERDICTS else ErrorClass.BUG
    elif isinstance(error, ValidationError):
        error_class = ErrorClass.VALIDATION
    elif isinstance(error, PermissionError):
        error_class = ErrorClass.PERMISSION
    elif isinstance(error, TimeoutError):
        error_class = ErrorClass.TIMEOUT
    elif isinstance(error, ConnectionError):
        error_class = ErrorClass.NETWORK
    else:
        error_class = ErrorClass.BUG
    text = _said(error) if isinstance(error, WorkError) else f"{type(error).__name__}: {_said(error)}"
    return error_class, _clean(text)[:MESSAGE_CHARACTERS]


def _said(error: BaseException) -> str:
    """What an error says of itself; one that can't even say it must not keep its task from being settled."""
    try:
        return str(error)
    except BaseException as odd:  # noqa: BLE001  # the kind's own code once more, and it may raise anything
        return f"(its message can't be told: its own __str__ raised {type(odd).__name__})"


def _retry_after_s(error: BaseException) -> float | None:
    """A number, whatever a kind or a client's error has put there."""
    given = getattr(error, "retry_after_s", None)
    return given if isinstance(given, int | float) and 0 <= given < float("inf") else None


def _traceback(error: BaseException) -> str:
    text = _clean("".join(traceback.format_exception(error)))
    return text.encode("utf-8")[-TRACEBACK_BYTES:].decode("utf-8", "ignore")


def _clean(text: str) -> str:
    """Text that may be stored: no provider's key; and that PostgreSQL can: no NUL, no lone surrogates."""
    return models.redact(text).replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")

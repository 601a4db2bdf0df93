"""The stage `execute`: claim a lease, run its tasks one after the other, settle them.

Work's own errors end in a settled state; nothing of them leaves `run_lease`. A lease lost on the way is dropped
without a word to the database: whoever took it back has already spoken.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import psycopg
from pydantic import BaseModel, ValidationError

from harness.engine import settle
from harness.engine.context import RunContext
from harness.engine.process import LeaseLost, ProcessState, Running
from harness.kinds import registry
from harness.kinds.errors import Unfit
from harness.kinds.registry import Kind
from harness.policy.errors import ErrorClass, Unavailable
from harness.store import transitions
from harness.store.database import borrowed
from harness.store.transitions import ClaimedTask, Ended, Outcome
from harness.telemetry import logs, traces

FLUSH_S = 0.050  # a bundle's finished members wait this long for company, at most
SETTLE_AGAIN_S = 0.25  # between tries to settle while the database is away; the fence ends them
LOCKED_AGAIN_S = 1.0  # and while somebody has locked a row of the task's

log = logs.get(__name__)


def run_lease(process: ProcessState, lease: int, token: int) -> None:
    """Claim, run, settle. Does nothing when the lease isn't there any more, was claimed, or carries another token."""
    # 1. Claim
    began_s = traces.now_s()
    try:
        tasks = _claim(process, lease, token)
        live = [task for task in tasks if not task.expired]
        if not live:
            if tasks:
                _settle(process, _running(lease, token, []), [], [])  # all had expired: the lease is empty
            return
    except (Unavailable, psycopg.Error) as error:
        log.warning("claim_failed", lease=lease, error=str(error))
        return
    except LeaseLost:
        return
    running = _running(lease, token, live)
    if traces.on():
        for task in live:
            traces.past(task.public_id, "claim", began_s=began_s, ended_s=traces.now_s(), lease=lease)
    process.running[lease] = running
    try:
        # 2. Run
        outcomes: list[Outcome] = []
        flushed_s = time.monotonic()
        for task in live:
            if running.taken_over:
                break
            facts = _facts(task)
            with logs.about(facts), traces.span(task.public_id, "attempt", **facts):
                outcomes.append(settle.with_spent(_run(process, running, task), running.tokens, running.usd))
            now_s = time.monotonic()
            if now_s - flushed_s >= FLUSH_S and len(live) > 1:
                _settle(process, running, outcomes, live)
                outcomes, flushed_s = [], now_s
        # 3. Settle
        if outcomes:
            _settle(process, running, outcomes, live)
    except LeaseLost:
        log.warning("lease_lost", lease=lease)
    finally:
        with running.lock:
            if running.left and not running.taken_over:
                running.taken_over, running.taken_over_s = True, time.monotonic()
            running.thread_over = True
            gone = not running.left
        # Past its fence a process hands back what it held, of threads too that have ended by that.
        if gone and process.fence.is_open():
            process.free(running)
        if running.watched:
            process.live.look(running.watched)


def _claim(process: ProcessState, lease: int, token: int) -> list[ClaimedTask]:
    """Claim, once more over another connection if the first one was broken: the claim is fenced, it can't happen twice.

    If it did happen and only the answer was lost, the watch hands it back (watch.hand_back_unheld).
    Raises: LeaseLost, Unavailable, psycopg.Error.
    """
    if process.draining:
        with borrowed(process.db) as connection:
            transitions.hand_back_unclaimed(connection, older_than_s=0, leases=[lease])
        return []
    try:
        return process.claims.run((lease, token))
    except Unavailable:
        process.db.check()  # after a restart of the server every connection is broken, not only the one just used
        return process.claims.run((lease, token))


def _running(lease: int, token: int, tasks: list[ClaimedTask]) -> Running:
    return Running(
        lease=lease,
        token=token,
        tasks={task.id: task.release_no for task in tasks},
        kind=tasks[0].kind if tasks else "",
        timeout_s=60.0,
    )


def _facts(task: ClaimedTask) -> dict[str, traces.Value]:
    """Return what every line that its thread logs says of a task."""
    return {
        "task_id": str(task.public_id),
        "tenant": task.tenant,
        "kind": task.kind,
        "priority": task.priority,
        "attempt": task.attempts_used + 1,
    }


def _run(process: ProcessState, running: Running, task: ClaimedTask) -> Outcome:
    """Run one task. Raises: LeaseLost."""
    kind = registry.find(task.kind)
    began_s = time.monotonic()
    if kind is None or kind.version != task.version:
        return settle.mismatch(task, known=None if kind is None else kind.version)
    running.task_began_s = began_s
    running.timeout_s = min(kind.timeout_s, task.deadline_in_s or kind.timeout_s)
    running.attempts_used = task.attempts_used
    running.max_attempts = kind.max_attempts
    running.task = task.id
    running.tokens, running.usd = 0, 0.0
    if process.draining or running.stop is not None:
        return settle.interrupt(task.id, task.release_no, why=running.stop or "drain", slot_s=0.0)
    context = RunContext(process, running, task, kind)
    try:
        payload = context.shaped(kind.input.model_validate(task.input))
        result = _work(kind, context, payload)
        context.check_steps()
        log.debug("attempt_succeeded")  # for those who follow one task; a line each would be most of the log
        return settle.succeeded(task, result, slot_s=time.monotonic() - began_s)
    except LeaseLost:
        raise
    except BaseException as error:  # noqa: BLE001  # a kind may raise anything, SystemExit too: its own error
        slot_s = time.monotonic() - began_s
        timed_out = process.time_limit_error is not None and isinstance(error, process.time_limit_error)
        stop = "timeout" if timed_out else running.stop
        try:
            outcome = settle.from_error(
                task, kind, error, slot_s=slot_s, stop=stop, jitter=random.random(), **context.trouble(error)
            )
        except Exception:  # noqa: BLE001  # an error may break whoever reads it; unsettled, its task would run for ever
            log.warning("error_untold", error_type=type(error).__name__)
            untold = RuntimeError(f"it raised a {type(error).__name__} that can't be read")
            outcome = settle.from_error(task, kind, untold, slot_s=slot_s, stop=stop, jitter=random.random())
        log.info("attempt_ended", verdict=str(outcome.event), error_class=outcome.error_class)
        return outcome
    finally:
        context.end()


def _work(kind: Kind, context: RunContext, payload: BaseModel) -> Any:
    """Run the kind. What doesn't fit its schema goes once to its repair function, if it has one.

    Raises: whatever the kind does; Unfit for a result that isn't what the kind says it is.
    """
    try:
        return _fitting(kind, kind.run(context, payload))
    except (Unfit, ValidationError) as error:
        if kind.repair is None or kind.rules[ErrorClass.VALIDATION].verdict != "repair":
            raise
        context.checkpoint()
        log.info("repair_begun", error_type=type(error).__name__)
        return _fitting(kind, kind.repair(context, payload, error))


def _fitting(kind: Kind, result: Any) -> Any:
    """Return a result that fits the kind's output. Raises: Unfit."""
    if kind.output is not None and not isinstance(result, kind.output):
        try:
            kind.output.model_validate(result)
        except ValidationError as error:
            raise Unfit(f"its result is no {kind.output.__name__}: {error}", value=result) from error
    return result


def _settle(process: ProcessState, running: Running, outcomes: list[Outcome], tasks: list[ClaimedTask]) -> None:
    """Commit outcomes of some of these tasks, and trace that. Raises: see `_commit`."""
    began_s = traces.now_s()
    _commit(process, running, outcomes)
    if traces.on():
        verdicts = {outcome.task: str(outcome.event) for outcome in outcomes}
        for task in tasks:
            if verdict := verdicts.get(task.id):
                traces.past(task.public_id, "settle", began_s=began_s, ended_s=traces.now_s(), verdict=verdict)


def _commit(process: ProcessState, running: Running, outcomes: list[Outcome]) -> None:
    """Commit outcomes; again while the database is away, or a row of theirs is locked, and the fence open.

    One that met a lock goes on by itself: in company it would keep the others waiting each time.
    Raises: LeaseLost, psycopg.Error.
    """
    with running.lock:
        if running.taken_over:
            return
        refused = None
        commit: Callable[[Ended], psycopg.Error | None] = process.settles.run
        while True:
            try:
                # A call that was left still uses the slot: the lease stays, as a zombie, until it returns.
                running.kept = bool(running.left)
                error = commit(
                    Ended(lease=running.lease, token=running.token, outcomes=outcomes, keep_lease=running.kept)
                )
            except (Unavailable, psycopg.OperationalError) as away:
                log.warning("settle_failed", lease=running.lease, error=str(away))
                time.sleep(SETTLE_AGAIN_S)
                continue
            if error is None:
                break
            if isinstance(error, psycopg.errors.LockNotAvailable):
                log.warning("settle_locked", lease=running.lease)
                commit = process.settle_alone
                time.sleep(LOCKED_AGAIN_S)
                continue
            if refused is not None:
                raise error
            # The database refuses what the work returned (say, text it can't store): the work failed, not we.
            refused = error
            outcomes = [settle.refused(outcome, str(error)) for outcome in outcomes]
        for outcome in outcomes:
            running.tasks.pop(outcome.task, None)

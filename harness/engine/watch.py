"""What the side threads of a worker process do: read wishes, end overdue tasks, take back what dead children held."""

import os
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from django.conf import settings

from harness.engine import settle
from harness.engine.process import ProcessState, Running
from harness.kinds import registry
from harness.store import sessions, transitions
from harness.store.database import Connection
from harness.store.transitions import Outcome
from harness.telemetry import logs

GRACE_S = 5.0  # from "please end" to being settled from outside
KILL_S = 2.0  # from SIGTERM to SIGKILL
UNHELD_S = 10.0  # a claim is known to its process within milliseconds; this leaves room for a stopped one
CHILD_RETRY_S = 1.0  # before a task that timed out in a prefork child is tried again

log = logs.get(__name__)


def max_attempts() -> dict[str, int]:
    """Return how many attempts each registered kind may spend."""
    return {kind.name: kind.max_attempts for kind in registry.all_kinds()}


def read_wishes(process: ProcessState, connection: Connection) -> None:
    """Ask the database, in one statement, which running tasks someone wants stopped, and tell them."""
    by_task = {
        running.task: running
        for running in list(process.running.values())
        if running.task and not running.taken_over  # a call that was left may outlive the next attempt at its task
    }
    if not by_task:
        return
    wishes = sessions.wishes(connection, list(by_task))
    for task, running in by_task.items():
        if task in wishes:
            running.ask_to_stop(wishes[task])
        else:
            running.stop_no_more("pause")  # whoever paused it has resumed it


def read_resources(process: ProcessState, connection: Connection) -> bool:
    """Let calls from here on see the resources as operators and observers have set them. Returns True."""
    process.downstream.read(connection, settings.HARNESS_TOPOLOGY.resources, process.session)
    return True


def tell_counts(process: ProcessState, connection: Connection) -> bool:
    """Tell what this process has counted, for the metrics, if it has counted anything. Returns True."""
    if totals := process.counted():
        sessions.tell(connection, process.session, process.pid, totals)
    return True


def settle_overdue(process: ProcessState, connection: Connection) -> None:
    """Ask tasks past their time limit to end; after GRACE_S settle them here. Their lease stays as a zombie."""
    now_s = time.monotonic()
    for running in list(process.running.values()):
        over_s = now_s - running.task_began_s - running.timeout_s
        if over_s < 0 or running.taken_over or not running.task:
            continue
        running.ask_to_stop("timeout")
        if over_s >= GRACE_S and running.lock.acquire(blocking=False):
            try:
                _take_over(process, connection, running, now_s)
            finally:
                running.lock.release()


def hand_back_unheld(process: ProcessState, connection: Connection) -> int:
    """Put back what was claimed for this process without its knowing: the claim committed, its answer was lost.

    Returns how many tasks.
    """
    handed = 0
    for lease, token, tasks, numbers in sessions.unheld(
        connection, process.session, process.pid, known=list(process.running), older_than_s=UNHELD_S
    ):
        outcomes = [
            settle.interrupt(task, release_no, why="the answer to its claim was lost", slot_s=0.0)
            for task, release_no in zip(tasks, numbers, strict=True)
        ]
        done = transitions.settle(
            connection, outcomes, lease=lease, token=token, session=process.session, actor=process.actor
        )
        log.warning("unheld_lease_handed_back", lease=lease, tasks=len(done))
        handed += len(done)
    return handed


def zombies(process: ProcessState) -> tuple[int, float]:
    """Return (number of threads that couldn't be stopped, seconds since the oldest was given up)."""
    now_s = time.monotonic()
    since = [running.taken_over_s for running in _zombies(process, now_s)]
    return len(since), now_s - min(since) if since else 0.0


def stuck_pools(process: ProcessState, slots: Mapping[str, int], *, older_than_s: float) -> list[str]:
    """Return the pools that can't run anything here: zombies hold all their slots, each for longer than that."""
    now_s = time.monotonic()
    held: Counter[str] = Counter()
    for running in _zombies(process, now_s):
        kind = registry.find(running.kind)
        since_s = max(running.taken_over_s, running.task_began_s + running.timeout_s)
        if kind is not None and now_s - since_s > older_than_s:
            held[kind.pool] += 1
    return [pool for pool, number in held.items() if number >= slots.get(pool, 1)]


def _zombies(process: ProcessState, now_s: float) -> Iterator[Running]:
    """Yield what threads that couldn't be stopped still hold.

    A call that its task left on a wish is one only when the task's time limit has passed: until then it may still end
    as any call does, and a worker must not fall because many of its tasks were cancelled at once.
    """
    for running in list(process.running.values()):
        if running.taken_over and now_s >= running.task_began_s + running.timeout_s:
            yield running


def hand_back(process: ProcessState, connection: Connection) -> int:
    """Put what still runs here back in line (interrupt). The fence must be closed first. Returns how many tasks."""
    if process.fence.is_open():
        raise RuntimeError("nothing is handed back before the fence is closed")
    handed = 0
    over: list[tuple[int, int]] = []
    for running in list(process.running.values()):
        if running.taken_over:
            continue
        running.taken_over, running.taken_over_s = True, time.monotonic()
        attempts = dict(running.tasks)
        handed += _settle_from_outside(process, connection, running, why="drain")
        if running.calls:
            over += attempts.items()
    if over:
        process.downstream.ended(over)  # their calls end with the process, in a moment
    return handed


def lose_dead_children(
    connection: Connection,
    session: uuid.UUID,
    live_pids: Callable[[], Iterable[int]],
    *,
    ended: Callable[[Iterable[tuple[int, int]]], None] | None = None,
) -> int:
    """Take back what children of this prefork session held that are gone. Returns how many tasks.

    `ended` is told of their attempts (task, release_no): the permits of their calls are free. Who holds something is
    asked first, and who lives after that: a child that is born in between holds nothing old.
    """
    dead_pids = sessions.claiming_pids(connection, session)
    if dead_pids:
        dead_pids -= set(live_pids())
    if not dead_pids:
        return 0
    lost = transitions.lose(
        connection,
        session=session,
        dead_pids=dead_pids,
        max_attempts=max_attempts(),
        retry_delay_s=CHILD_RETRY_S,
        actor="worker",
    )
    for one in lost:
        log.warning("child_lost", task=one.task, event_fired=one.event, state=one.state)
    if ended is not None and lost:
        ended([(one.task, one.release_no) for one in lost])
    return len(lost)


def end_deaf_children(
    connection: Connection,
    session: uuid.UUID,
    deaf: dict[tuple[int, int], float],
    live_pids: Callable[[], Iterable[int]],
) -> int:
    """End prefork children whose task ignores a wish: SIGTERM after GRACE_S, SIGKILL KILL_S later. Returns how many.

    `deaf`: {(lease, pid): when its wish was first seen, monotonic}, kept by the caller between calls. What a child held
    is taken back by `lose_dead_children`, which obeys the wish. The lease is locked over the signal: a child can't have
    settled, and be on someone else's task, meanwhile.
    """
    now_s = time.monotonic()
    wished = set(sessions.wished_leases(connection, session))
    for gone in deaf.keys() - wished:
        del deaf[gone]
    ended = 0
    for lease, pid in sorted(wished):
        over_s = now_s - deaf.setdefault((lease, pid), now_s) - GRACE_S
        if over_s < 0 or pid not in live_pids():
            continue
        with connection.transaction():
            if sessions.lock_wished(connection, session, lease, pid):
                os.kill(pid, signal.SIGKILL if over_s >= KILL_S else signal.SIGTERM)
                log.warning("child_ended", pid=pid, lease=lease, why="it did not stop when asked")
                ended += 1
    return ended


def _take_over(process: ProcessState, connection: Connection, running: Running, now_s: float) -> None:
    kind = registry.find(running.kind)
    if kind is None or running.task not in running.tasks:
        return
    late = settle.overdue(
        running.task,
        running.tasks[running.task],
        kind,
        attempts_used=running.attempts_used,
        slot_s=now_s - running.task_began_s,
        jitter=random.random(),
    )
    why = "shared a slot with a task that hung"
    _settle_from_outside(process, connection, running, why=why, current=late, keep_lease=True)
    running.taken_over, running.taken_over_s = True, now_s
    log.warning("thread_given_up", lease=running.lease, kind=running.kind)


def _settle_from_outside(
    process: ProcessState,
    connection: Connection,
    running: Running,
    *,
    why: str,
    current: Outcome | None = None,
    keep_lease: bool = False,
) -> int:
    """End what a slot holds without its thread: the task under way as `current` says, all others as interrupted.

    Returns how many tasks.
    """
    outcomes = []
    for task, release_no in running.tasks.items():
        outcome = settle.interrupt(task, release_no, why=why, slot_s=0.0)
        if task == running.task:
            outcome = settle.with_spent(current or outcome, running.tokens, running.usd)
        outcomes.append(outcome)
    done = transitions.settle(
        connection,
        outcomes,
        lease=running.lease,
        token=running.token,
        session=process.session,
        actor=process.actor,
        keep_lease=keep_lease,
    )
    process.doorbell.ring(connection)
    return len(done)

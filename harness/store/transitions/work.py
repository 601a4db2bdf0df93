"""The way of work through its states: submit, release, claim, settle; and back in line when its worker is gone.

Multi-row statements lock leases, then tasks, each by id. Waking the dispatcher is the caller's, after the commit.
"""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from harness.policy.heads import LOST_STARTS_QUARANTINE
from harness.policy.lifecycle import TABLE, Event
from harness.store import sql
from harness.store.clocks import ZOMBIE_CHARGED_S, Moved
from harness.store.database import Connection
from harness.store.sessions import DEAD_AFTER_S
from harness.store.transitions.values import ClaimedTask, Ended, Lost, NewLease, NewTask, Outcome, Released


def submit(
    connection: Connection,
    tasks: Sequence[NewTask],
    *,
    tenant: int,
    run: int = 0,
    parent: int | None = None,
    actor: str,
) -> list[int]:
    """Insert tasks as `queued`, with body, trace and flow. Returns their ids in the order given."""
    shared: dict[tuple[object, ...], str] = {}
    rows = ",".join([_task_json(task, shared) for task in tasks])
    cursor = connection.execute(
        sql.load("transitions/submit"),
        {"rows": f"[{rows}]", "tenant": tenant, "run": run, "parent": parent, "actor": actor},
    )
    return sorted(row[0] for row in cursor)


def release(
    connection: Connection, leases: Sequence[NewLease], moved: Moved, *, capacities: Mapping[str, int], epoch: int
) -> Released:
    """Commit a plan, and what it moved, under the leader's epoch (else nothing). `capacities`: of resources, by name.

    A lease that is in neither part of the answer was not made: its tasks were no longer to be had.
    """
    rows = json.dumps([{name: getattr(lease, name) for name in NewLease.__slots__} for lease in leases])
    parameters = moved.parameters() | {
        "epoch": epoch,
        "leases": rows,
        "capacities": json.dumps(dict(capacities)),
        "dead_after_s": DEAD_AFTER_S,
    }
    made: dict[int, tuple[int, int]] = {}
    refused: dict[int, str] = {}
    for token, lease, n, passes in connection.execute(sql.load("transitions/release"), parameters):
        if passes is None:
            made[token] = (lease, n)
        else:
            refused[token] = passes
    return Released(made, refused)


def claim(
    connection: Connection, lease: int, token: int, *, session: uuid.UUID, pid: int, actor: str
) -> list[ClaimedTask]:
    """Take a released lease, once, and set its tasks running. Empty: someone else did, or it was taken back."""
    return claim_many(connection, [(lease, token)], session=session, pid=pid, actor=actor).get(lease, [])


def claim_many(
    connection: Connection, leases: Sequence[tuple[int, int]], *, session: uuid.UUID, pid: int, actor: str
) -> dict[int, list[ClaimedTask]]:
    """The same for several leases, (id, token) each, in one statement. Returns {lease: its tasks} of those taken."""
    cursor = connection.execute(
        sql.load("transitions/claim"),
        {
            "leases": [lease for lease, _ in leases],
            "tokens": [token for _, token in leases],
            "session": session,
            "pid": pid,
            "actor": actor,
        },
    )
    taken: dict[int, list[ClaimedTask]] = {}
    for lease, *rest in cursor:
        taken.setdefault(lease, []).append(ClaimedTask(*rest))
    if late := [task.id for tasks in taken.values() for task in tasks if task.expired]:
        connection.execute(sql.load("transitions/tell_expired"), {"tasks": late})
    return taken


def settle(
    connection: Connection,
    outcomes: Sequence[Outcome],
    *,
    lease: int,
    token: int,
    session: uuid.UUID,
    actor: str,
    keep_lease: bool = False,
) -> dict[int, str]:
    """End attempts of one lease. Returns {task id: state}; a task missing from it was no longer this worker's.

    An empty `outcomes` drops a lease that has no members left. `keep_lease` leaves it as a zombie: its thread runs on.
    """
    ended = Ended(lease=lease, token=token, outcomes=outcomes, keep_lease=keep_lease)
    return settle_many(connection, [ended], session=session, actor=actor)[0]


def settle_many(
    connection: Connection, ended: Sequence[Ended], *, session: uuid.UUID, actor: str
) -> tuple[dict[int, str], bool]:
    """The same for several leases in one statement. Returns the states, and whether the dispatcher sleeps."""
    cursor = connection.execute(
        sql.load("transitions/settle"),
        {
            "leases": [one.lease for one in ended],
            "tokens": [one.token for one in ended],
            "keeps": [one.keep_lease for one in ended],
            "zombie_s": ZOMBIE_CHARGED_S,
            "session": session,
            "actor": actor,
            "outcomes": "["
            + ",".join([_outcome_json(one.lease, outcome) for one in ended for outcome in one.outcomes])
            + "]",
        },
    )
    rows = cursor.fetchall()
    return {row[0]: row[1] for row in rows}, any(row[2] for row in rows[:1])


def lose(
    connection: Connection,
    *,
    max_attempts: Mapping[str, int],
    retry_delay_s: float,
    actor: str,
    session: uuid.UUID | None = None,
    dead_pids: Iterable[int] = (),
    limit: int = 200,
) -> list[Lost]:
    """Take back what ended sessions held; with `session`, what its dead children (`dead_pids`) held."""
    cursor = connection.execute(
        sql.load("transitions/lose"),
        {
            "session": session,
            "dead_pids": list(dead_pids),
            "limit": limit,
            "zombie_s": ZOMBIE_CHARGED_S,
            "max_attempts": json.dumps(dict(max_attempts)),
            "retry_delay_s": retry_delay_s,
            "quarantined_at": LOST_STARTS_QUARANTINE,
            "actor": actor,
        },
    )
    return [Lost(*row) for row in cursor]


def hand_back_unclaimed(
    connection: Connection, *, older_than_s: float, leases: Sequence[int] | None = None, limit: int = 500
) -> int:
    """Take back unclaimed leases: those named, of any age, or all older than `older_than_s`.

    Returns how many tasks it freed; a lease that is locked, itself or a task of it, stays.
    """
    cursor = connection.execute(
        sql.load("transitions/hand_back_unclaimed"),
        {"leases": None if leases is None else list(leases), "older_than_s": older_than_s, "limit": limit},
    )
    return len(cursor.fetchall())


def _task_json(task: NewTask, shared: dict[tuple[object, ...], str]) -> str:
    """A task as JSON. `shared` keeps what is the same in many of a batch: writing it takes longer than all the rest."""
    times = (task.not_before, task.start_by, task.deadline)
    kind = (task.kind, task.version, task.pool, task.priority, task.signature)
    key = (*kind, task.degrade, *times, task.deferred, task.depends, task.linked)
    text = shared.get(key)
    if text is None:
        values: dict[str, object] = {
            "kind": task.kind,
            "version": task.version,
            "pool": task.pool,
            "priority": task.priority,
            "signature": task.signature,
            "not_before": _moment(task.not_before),
            "start_by": _moment(task.start_by),
            "deadline": _moment(task.deadline),
        }
        if not task.degrade:
            values["degrade"] = False
        if task.deferred is not None:
            values["deferred"] = task.deferred
        if task.depends:
            values["depends"] = True
        if task.linked:
            values["linked"] = True
        text = shared[key] = json.dumps(values)[1:-1]
    marks = "" if task.marks is None else f',"marks":{task.marks}'
    return f'{{"public_id":"{task.public_id}",{text},"input":{task.input}{marks}}}'


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _outcome_json(lease: int, outcome: Outcome) -> str:
    if outcome.event is Event.SUCCEED:  # the hot case, without building a dictionary
        return (
            f'{{"lease":{lease},"task":{outcome.task},"release_no":{outcome.release_no},"event":"succeed","to_state":"succeeded",'
            f'"spends":0,"slot_s":{outcome.slot_s!r},"tokens":{outcome.tokens},'
            f'"usd":{"null" if outcome.usd is None else repr(outcome.usd)},'
            f'"output":{"null" if outcome.output is None else outcome.output}}}'
        )
    (to_state,) = {target for _, target in TABLE[outcome.event].arcs}
    head = json.dumps(
        {
            "lease": lease,
            "task": outcome.task,
            "release_no": outcome.release_no,
            "event": outcome.event,
            "to_state": to_state,
            "hold": outcome.hold,
            "delay_s": outcome.delay_s,
            "spends": outcome.spends,
            "error": outcome.error,
            "error_class": outcome.error_class,
            "message": outcome.message,
            "traceback": outcome.traceback,
            "slot_s": outcome.slot_s,
            "tokens": outcome.tokens,
            "usd": outcome.usd,
            "data": outcome.data,
        }
    )
    return head if outcome.output is None else f'{head[:-1]},"output":{outcome.output}}}'

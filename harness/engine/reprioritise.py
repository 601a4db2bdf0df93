"""People's verb that gives waiting work another priority: one task, or all of a run's that wait.

Only a queued task without a lease changes; the event and the new flow come with it, in one transaction. What the task
was promised stays: its start_by doesn't move with the priority.
"""

import uuid
from contextlib import nullcontext
from typing import Literal

from harness.policy.admission import Forbidden, TenantFacts
from harness.policy.errors import Conflict, Invalid, NotFound
from harness.policy.settings import PRIORITIES
from harness.store import queries, transitions
from harness.store.database import Connection

REASON_MAX_CHARS = 500
BATCH = 500  # tasks locked at once: some 10 ms, so that no release waits longer
TRIES = 5  # a task may be released and handed back between the change and the look at why it didn't happen


def reprioritise(
    connection: Connection,
    task: uuid.UUID,
    priority: int,
    *,
    tenant: TenantFacts | None,
    actor: str,
    reason: str = "",
) -> Literal["reprioritised", "already"]:
    """Give a task another priority. `tenant` None: whosever it is, up to P0 (operators). Outside a transaction.

    Raises: Invalid, Forbidden (above the tenant's top priority), NotFound; Conflict when it has a slot or isn't queued.
    """
    _check(tenant, priority, reason)
    with nullcontext() if tenant is None else queries.held_to_tenant(connection, tenant.id):
        for _ in range(TRIES):
            found = queries.task(connection, task)
            if found is None:
                raise NotFound(f"there is no task {task}")
            if found.state != "queued":
                raise Conflict(
                    f"the task is {found.state}; only a queued one can change its priority",
                    task_id=str(task),
                    state=found.state,
                )
            if found.priority == priority:
                return "already"
            if found.released:
                raise Conflict(
                    "the task has been released to a worker, so its priority has done its work",
                    task_id=str(task),
                    state=found.state,
                )
            if transitions.reprioritise(connection, [found.id], priority, actor=actor, reason=reason):
                return "reprioritised"
    raise Conflict("the task keeps changing hands; try again", task_id=str(task))


def reprioritise_run(
    connection: Connection,
    run: uuid.UUID,
    priority: int,
    *,
    tenant: TenantFacts | None,
    actor: str,
    reason: str = "",
) -> tuple[int, int]:
    """Give the waiting tasks of a run another priority, in batches of BATCH, each in a transaction of its own.

    Returns how many changed, and how many unfinished ones didn't (leased, running, waiting, paused). Tasks that already
    had that priority count as neither. Outside a transaction. Raises: as `reprioritise`.
    """
    _check(tenant, priority, reason)
    changed = kept = after = 0
    with nullcontext() if tenant is None else queries.held_to_tenant(connection, tenant.id):
        found = queries.run(connection, run)
        if found is None:
            raise NotFound(f"there is no run {run}")
        while batch := queries.live_of_run(connection, found.id, after=after, most=BATCH):
            others = [task for task, has in batch if has != priority]
            done = len(transitions.reprioritise(connection, others, priority, actor=actor, reason=reason))
            changed, kept, after = changed + done, kept + len(others) - done, batch[-1][0]
    return changed, kept


def _check(tenant: TenantFacts | None, priority: int, reason: str) -> None:
    if priority not in PRIORITIES:
        raise Invalid(f"priority: must be 0 (most urgent) to 3, not {priority}", field="priority")
    if tenant is not None and priority < tenant.top_priority:
        raise Forbidden(
            f"priority: {priority} is more urgent than this tenant may ask for: ask for {tenant.top_priority} or a "
            "larger number",
            field="priority",
        )
    if len(reason) > REASON_MAX_CHARS or not reason.isprintable():
        raise Invalid(f"reason: must be printable text of at most {REASON_MAX_CHARS} characters", field="reason")

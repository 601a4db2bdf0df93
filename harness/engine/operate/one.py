"""The verbs on one task. Each is idempotent, leaves author and reason in the trace, and refuses with a clear Conflict.

Each opens transactions of its own: call it outside one. `tenant` None: an operator, on whosever task; else the tenant
that acts, on its own tasks. Raises, all: Invalid (reason), NotFound, Conflict; Unavailable when someone
else keeps the task locked.
"""

import uuid

import psycopg

from harness.engine.operate.done import Done
from harness.engine.operate.who import check_priority, check_reason, held, hold_of
from harness.policy import verbs
from harness.policy.admission import TenantFacts
from harness.policy.errors import Conflict, NotFound, Unavailable
from harness.policy.verbs import Asked, Decide
from harness.store import queries, transitions
from harness.store.database import LOCKED, Connection
from harness.store.doorbell import Doorbell

_bell = Doorbell()


def cancel(connection: Connection, task: uuid.UUID, *, tenant: int | None, actor: str, reason: str = "") -> Done:
    """End a task: at once or, when it runs, at its next checkpoint."""
    return _do(connection, task, verbs.cancel, Asked(hold=hold_of(tenant)), tenant=tenant, actor=actor, reason=reason)


def pause(connection: Connection, task: uuid.UUID, *, tenant: int | None, actor: str, reason: str = "") -> Done:
    """Hold a task until the same side (tenant or operators) resumes it; a running one stops at its next checkpoint."""
    return _do(connection, task, verbs.pause, Asked(hold=hold_of(tenant)), tenant=tenant, actor=actor, reason=reason)


def resume(connection: Connection, task: uuid.UUID, *, tenant: int | None, actor: str, reason: str = "") -> Done:
    """Lift one's own hold of a task, or take back one's own wish to pause it."""
    return _do(connection, task, verbs.resume, Asked(hold=hold_of(tenant)), tenant=tenant, actor=actor, reason=reason)


def requeue(connection: Connection, task: uuid.UUID, *, tenant: int | None, actor: str, reason: str = "") -> Done:
    """Try a failed task again now, instead of when its back-off is over."""
    return _do(connection, task, verbs.requeue, Asked(hold=hold_of(tenant)), tenant=tenant, actor=actor, reason=reason)


def priority(
    connection: Connection, task: uuid.UUID, *, priority: int, tenant: int | None, actor: str, reason: str = ""
) -> Done:
    """Give a waiting task another priority (0 to 3). Raises also: Forbidden above the tenant's top priority."""
    check_priority(priority, facts_of(connection, tenant))
    asked = Asked(hold=hold_of(tenant), priority=priority)
    return _do(connection, task, verbs.priority, asked, tenant=tenant, actor=actor, reason=reason)


def facts_of(connection: Connection, tenant: int | None) -> TenantFacts | None:
    """Return what a tenant may; None for operators. Raises: NotFound."""
    if tenant is None:
        return None
    with queries.as_tenant(connection, tenant):
        facts = queries.tenant_facts(connection, tenant)
    if facts is None:
        raise NotFound(f"there is no tenant {tenant}")
    return facts


def _do(
    connection: Connection,
    task: uuid.UUID,
    decide: Decide,
    asked: Asked,
    *,
    tenant: int | None,
    actor: str,
    reason: str,
) -> Done:
    check_reason(reason)
    with held(connection, tenant):
        found = queries.the_task(connection, task)
        by = transitions.By(actor=actor, reason=reason)
        try:
            done = transitions.act(connection, [found.id], decide, asked, by).get(found.id)
        except psycopg.errors.LockNotAvailable as error:
            raise Unavailable(LOCKED) from error
        if done is None:
            raise NotFound(f"there is no task {task}")
        if done.outcome == "refused":
            now = queries.task(connection, task)
            raise Conflict(
                f"the task {done.why.removeprefix('it ')}", task_id=str(task), state=None if now is None else now.state
            )
    if done.step is not None:
        _bell.ring(connection)
    return Done(outcome=done.outcome)

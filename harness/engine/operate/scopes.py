"""Pause and resume of a scope: a pool, a priority, a pool's priority, a tenant, a run. A row; no task is rewritten.

The dispatcher obeys within a second, what runs goes on. Afterwards the scope gets its slots back by a ramp
(policy.ramp). Tenants pause themselves and their runs, operators anything; each side lifts only its own pauses.
The row tells of the last pause alone, so who and why of each act stay in the audit, in the same transaction.
A tag has no flow of its own: pause its tasks with the bulk verb.
"""

import uuid
from datetime import UTC, datetime
from typing import get_args

from django.conf import settings

from harness.engine.operate.done import Done
from harness.engine.operate.who import check_reason, held, hold_of
from harness.policy.admission import Forbidden
from harness.policy.errors import Conflict, Invalid, NotFound
from harness.policy.scopes import PRIORITY_KEYS, Scope
from harness.policy.verbs import holders
from harness.store import audit, pauses, queries
from harness.store.database import Connection
from harness.store.doorbell import Doorbell

TENANTS_OWN: tuple[Scope, ...] = ("tenant", "run")


def pause_scope(
    connection: Connection,
    scope: Scope,
    named: str,
    *,
    tenant: int | None,
    actor: str,
    reason: str = "",
    until: datetime | None = None,
    force: bool = False,
) -> Done:
    """Start nothing of a scope until it is resumed, or until a moment. Outside a transaction.

    `named`: a pool (`llm`), a priority (`p3`), a pool's priority (`llm.p3`), a tenant by name or a run by its id.
    `tenant`: who acts; None: an operator. `force`: P0 too, which nothing else pauses. Outcomes: `paused`, `already`.
    Raises: Invalid (naming the field), NotFound, Forbidden.
    """
    check_reason(reason)
    if scope in ("priority", "pool_priority") and named.endswith("p0") and not force:
        raise Invalid(
            f"force: {named} is what people wait for right now; to pause it all the same, use force", field="force"
        )
    if until is not None and (until.tzinfo is None or until <= datetime.now(UTC)):
        raise Invalid("until: must be a moment to come, with a zone", field="until")
    with held(connection, tenant), connection.transaction():
        key, whose = _key_of(connection, scope, named, tenant)
        done = pauses.put(
            connection,
            scope=scope,
            key=key,
            source=hold_of(tenant),
            tenant=whose,
            author=actor,
            reason=reason,
            until=until,
        )
        if done:
            audit.note(connection, actor=actor, verb="pause", subject=f"{scope} {named}", reason=reason, tenant=tenant)
    return Done(outcome="paused" if done else "already")


def resume_scope(
    connection: Connection, scope: Scope, named: str, *, tenant: int | None, actor: str, reason: str = ""
) -> Done:
    """Lift one's own pause of a scope; its slots come back by the ramp. Outside a transaction.

    Outcomes: `resumed`, or `held` when another's pause remains. Raises: as `pause_scope`; Conflict when this side
    hasn't paused it.
    """
    check_reason(reason)
    with held(connection, tenant), connection.transaction():
        key, _ = _key_of(connection, scope, named, tenant)
        done = pauses.end(connection, scope=scope, key=key, source=hold_of(tenant), by=actor)
        if done:
            audit.note(connection, actor=actor, verb="resume", subject=f"{scope} {named}", reason=reason, tenant=tenant)
        others = pauses.of(connection, scope, key)
    who = holders(tuple(other.source for other in others))
    if not done:
        raise Conflict(f"{scope} {named} is paused by {who}, not by you" if others else f"{scope} {named} isn't paused")
    Doorbell().ring(connection)
    return Done(outcome="held" if others else "resumed")


def _key_of(connection: Connection, scope: Scope, named: str, tenant: int | None) -> tuple[str, int | None]:
    """Return the key that the dispatcher reads, and the tenant that it concerns, if one."""
    if scope not in get_args(Scope):
        raise Invalid(f"scope: there is no {scope!r}; choose from {', '.join(get_args(Scope))}", field="scope")
    if tenant is not None and scope not in TENANTS_OWN:
        raise Forbidden(f"{scope}: only an operator pauses it", field=scope)
    pools = settings.HARNESS_TOPOLOGY.pools
    match scope:
        case "tenant":
            found = tenant if tenant is not None else queries.tenant_named(connection, named)
            if found is None:
                raise NotFound(f"there is no tenant {named!r}")
            return str(found), found
        case "run":
            run = queries.run_and_tenant(connection, _uuid(named))
            if run is None:
                raise NotFound(f"there is no run {named}")
            return str(run[0]), run[1]
        case "pool":
            fits = named in pools
        case "priority":
            fits = named in PRIORITY_KEYS
        case "pool_priority":
            pool, _, priority = named.rpartition(".")
            fits = pool in pools and priority in PRIORITY_KEYS
    if not fits:
        levels, names = ", ".join(PRIORITY_KEYS), ", ".join(sorted(pools))
        known = {"pool": names, "priority": levels}.get(scope, f"POOL.PRIORITY of {names} and {levels}")
        raise Invalid(f"{scope}: there is no {named!r}; choose from {known}", field=scope)
    return named, None


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise Invalid(f"run: {text!r} is no id of a run", field="run") from None

"""Operators' verbs on limits: a tenant's weight and caps, its quotas, and whether its work may be degraded.

They act while everything runs: the dispatcher looks at them at least once a second. Nothing that is in flight is
stopped; where a cap is lowered below it, nothing more starts until enough has ended. Who changed what, from what, and
why stays in the audit, in the same transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from django.conf import settings

from harness.engine.operate.who import needed_reason
from harness.policy import allowance
from harness.policy.errors import Invalid, NotFound
from harness.policy.settings import SYSTEM
from harness.store import audit, limits
from harness.store.database import Connection
from harness.store.doorbell import Doorbell
from harness.store.limits import QuotaScope


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """What was set: by field, from what to what. Empty: it was so before."""

    before: Mapping[str, float | None]
    after: Mapping[str, float | None]

    def __str__(self) -> str:
        """Tell it in one line.

        >>> str(Changed(before={}, after={}))
        'as it was'
        >>> str(Changed(before={"cap": 5}, after={"cap": 0}))
        'cap 5 -> 0 (nothing)'
        """
        told = [f"{name} {_shown(self.before[name], name)} -> {_shown(to, name)}" for name, to in self.after.items()]
        return ", ".join(told) or "as it was"


def set_tenant(
    connection: Connection,
    name: str,
    *,
    actor: str,
    reason: str,
    weight: float | None = None,
    cap: int | None = None,
    backlog_quota: int | None = None,
    top_priority: int | None = None,
    degrade: bool | None = None,
) -> Changed:
    """Change a tenant's limits; None: as it is. Outside a transaction. Raises: Invalid naming the field; NotFound."""
    why = needed_reason(reason)
    wanted: dict[str, float] = {}
    if weight is not None:
        wanted["weight"] = allowance.weight(weight)
    if cap is not None:
        wanted["cap"] = allowance.count(cap, "cap")
    if backlog_quota is not None:
        wanted["backlog_quota"] = allowance.count(backlog_quota, "backlog_quota")
    if top_priority is not None:
        wanted["top_priority"] = allowance.top_priority(top_priority)
    if degrade is not None:
        wanted["degrade"] = allowance.degrade(degrade)
    with connection.transaction():
        tenant, was = _lock(connection, name)
        after = {field: value for field, value in wanted.items() if was[field] != value}
        changed = Changed(before={field: was[field] for field in after}, after=after)
        if after:
            limits.change_tenant(connection, tenant, after)
            _note(connection, actor=actor, subject=f"tenant {name}", reason=why, changed=changed)
    Doorbell().ring(connection)
    return changed


def set_quota(
    connection: Connection, tenant: str, scope: str, name: str, cap: int, *, actor: str, reason: str
) -> Changed:
    """Cap what a tenant may have in flight on a pool, or hold of a resource. Outside a transaction.

    `cap` 0: nothing of it starts. Raises: Invalid naming the field; NotFound (tenant).
    """
    why = needed_reason(reason)
    cap = allowance.count(cap, "cap")
    on = check_quota(scope, name)
    with connection.transaction():
        number, _ = _lock(connection, tenant)
        before = limits.put_quota(connection, number, on, name, cap)
        changed = Changed(before={"cap": before}, after={"cap": cap}) if before != cap else Changed(before={}, after={})
        if changed.after:
            _note(connection, actor=actor, subject=f"quota {tenant} {scope} {name}", reason=why, changed=changed)
    Doorbell().ring(connection)
    return changed


def clear_quota(connection: Connection, tenant: str, scope: str, name: str, *, actor: str, reason: str) -> Changed:
    """Take a quota away; one on what is no longer configured too. Outside a transaction.

    Raises: Invalid naming the field; NotFound (tenant, quota).
    """
    why = needed_reason(reason)
    on = _scope(scope)
    with connection.transaction():
        number, _ = _lock(connection, tenant)
        before = limits.drop_quota(connection, number, on, name)
        if before is None:
            raise NotFound(
                f"{tenant} has no quota on {scope} {name!r}; `manage.py quota list {tenant}` shows those it has",
                field="name",
            )
        changed = Changed(before={"cap": before}, after={"cap": None})
        _note(connection, actor=actor, subject=f"quota {tenant} {scope} {name}", reason=why, changed=changed)
    Doorbell().ring(connection)
    return changed


def check_quota(scope: str, name: str) -> QuotaScope:
    """Check that there is such a pool or resource. Raises: Invalid naming the field and those there are."""
    on = _scope(scope)
    topology = settings.HARNESS_TOPOLOGY
    known = sorted(topology.pools.keys() - {SYSTEM} if on == "pool" else topology.resources.keys())
    if name not in known:
        raise Invalid(f"name: there is no {scope} {name!r}; choose from {', '.join(known)}", field="name")
    return on


def _scope(scope: str) -> QuotaScope:
    for one in get_args(QuotaScope):
        if scope == one:
            return one  # type: ignore[no-any-return]  # get_args forgets the literals
    raise Invalid(f"scope: must be {' or '.join(get_args(QuotaScope))}, not {scope!r}", field="scope")


def _lock(connection: Connection, name: str) -> tuple[int, dict[str, float]]:
    found = limits.lock_tenant(connection, name)
    if found is None:
        raise NotFound(f"there is no tenant {name!r}; `manage.py tenant list` shows them", field="tenant")
    return found


def _note(connection: Connection, *, actor: str, subject: str, reason: str, changed: Changed) -> None:
    audit.note(
        connection,
        actor=actor,
        verb="limits",
        subject=subject,
        reason=reason,
        data={"before": dict(changed.before), "after": dict(changed.after)},
    )


def _shown(value: float | None, name: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == 0 and name != "top_priority":
        return "0 (nothing)"
    return f"P{value}" if name == "top_priority" else f"{value:g}" if name == "weight" else f"{value:,}"

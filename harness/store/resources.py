"""Resources as they are now: the file with operators' overrides applied, the last state of each, changes of limits.

What operators set stands in store.overrides. Nothing here decides; policy.resources says what an override may do.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from harness.policy.resources import Live, Override, Resource, in_force
from harness.store import sql
from harness.store.database import Connection


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceNow:
    """What was seen of a resource. Moments in epoch seconds; `proven` None: not known here, what is kept stays.

    `seen_s` None: now, by the database's clock.
    """

    resource: str
    limit_now: int
    proven: int | None = None
    mode: str = ""
    breaker: str = ""
    breaker_until_s: float | None = None
    blocked_until_s: float | None = None
    in_flight: int = 0
    waiting: int = 0
    seen_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One change of a limit. `old` None: it began; `at_s` in epoch seconds, None: now, by the database's clock."""

    resource: str
    at_s: float | None
    old: int | None
    new: int
    reason: str
    mode: str


def effective(connection: Connection, configured: Mapping[str, Resource]) -> dict[str, Live]:
    """Return every configured resource as it is now. One statement of three short scans.

    What is set or kept of a resource that is no longer configured is left out. Under role web quotas are the tenant's.
    """
    row = connection.execute(sql.load("resources/effective")).fetchone()
    assert row is not None
    overrides: dict[str, dict[str, Override]] = defaultdict(dict)
    quotas: dict[str, dict[int, int]] = defaultdict(dict)
    for resource, field, value, author, reason, created_s, until_s in row[0]:
        overrides[resource][field] = Override(
            value=value, author=author, reason=reason, created_s=created_s, until_s=until_s
        )
    kept = {resource: (proven, limit_now) for resource, proven, limit_now in row[1]}
    for resource, tenant, cap in row[2]:
        quotas[resource][tenant] = cap
    found = {}
    for name, resource in configured.items():
        proven, limit_now = kept.get(name, (None, None))
        set_of_it = overrides.get(name, {})
        found[name] = Live(
            resource=in_force(resource, {field: one.value for field, one in set_of_it.items()}),
            proven=proven,
            limit_now=limit_now,
            quotas=quotas.get(name, {}),
            overrides=set_of_it,
        )
    return found


def keep(connection: Connection, states: Sequence[ResourceNow], changes: Sequence[Change]) -> tuple[int, int]:
    """Keep what was seen, and the changes of limits since the last time. Returns how many rows of each were written.

    States older than those kept change nothing, so two that observe at once can't put one back.
    """
    row = connection.execute(
        sql.load("resources/keep"),
        {
            "states": json.dumps([asdict(one) for one in sorted(states, key=lambda one: one.resource)]),
            "changes": json.dumps([asdict(one) for one in changes]),
        },
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def forget(connection: Connection, name: str) -> None:
    """Drop what was kept of a resource that nobody observes any more: its limit is its capacity again."""
    connection.execute("DELETE FROM resource_state WHERE resource = %s", (name,))


def kept(connection: Connection) -> dict[str, ResourceNow]:
    """Return what was last kept of each resource, whether it is still configured or not."""
    cursor = connection.execute(
        "SELECT resource, limit_now, proven, mode, breaker, extract(epoch FROM breaker_until)::double precision, "
        "extract(epoch FROM blocked_until)::double precision, in_flight, waiting, "
        "extract(epoch FROM seen_at)::double precision FROM resource_state"
    )
    return {
        row[0]: ResourceNow(
            resource=row[0],
            limit_now=row[1],
            proven=row[2],
            mode=row[3],
            breaker=row[4],
            breaker_until_s=row[5],
            blocked_until_s=row[6],
            in_flight=row[7],
            waiting=row[8],
            seen_s=row[9],
        )
        for row in cursor
    }


def changes(connection: Connection, resource: str | None = None, *, most: int) -> list[Change]:
    """Return the newest changes of limits, of one resource or all."""
    name = "resources/changes" if resource is None else "resources/changes_of"
    cursor = connection.execute(sql.load(name), {"resource": resource, "most": most})
    return [_change(*row) for row in cursor]


def last_changes(connection: Connection, names: Iterable[str]) -> dict[str, Change]:
    """Return the newest change of each resource's limit, of those that have one."""
    cursor = connection.execute(sql.load("resources/last_changes"), {"resources": list(names)})
    return {row[0]: _change(*row) for row in cursor}


def _change(resource: str, at: datetime, old: int | None, new: int, reason: str, mode: str) -> Change:
    return Change(resource=resource, at_s=at.timestamp(), old=old, new=new, reason=reason, mode=mode)


def written_since(connection: Connection, since_s: float) -> list[tuple[str, float, int, str]]:
    """Return the changes of limits since a moment (epoch seconds), as (resource, epoch seconds, new, reason)."""
    cursor = connection.execute(
        "SELECT resource, extract(epoch FROM at)::double precision, new, reason FROM limit_change "
        "WHERE at >= to_timestamp(%s)",
        (since_s,),
    )
    return [(row[0], row[1], row[2], row[3]) for row in cursor]

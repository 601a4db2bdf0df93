"""Operators' verbs on resources: set fields of one until further notice or for a while, and clear what was set.

An override acts within seconds without a restart: workers, dispatcher and admin read it. Nothing under way is stopped:
where a limit is set below what is in flight, nothing more starts until enough has ended. Who set what, from what, and
why stays in the audit, in the same transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings

from harness.engine.operate.who import needed_reason
from harness.policy.errors import Invalid, NotFound
from harness.policy.resources import Live, Resource, Value, checked, in_force
from harness.store import audit, overrides, resources
from harness.store.database import Connection
from harness.store.doorbell import Doorbell

UNTIL_MOST = timedelta(days=366)  # longer is meant to stay, and belongs in resources.toml


@dataclass(frozen=True, kw_only=True, slots=True)
class Overridden:
    """What was set of a resource: by field, from what to what. Empty: it was so before."""

    before: Mapping[str, Value]
    after: Mapping[str, Value]
    until: datetime | None = None

    def __str__(self) -> str:
        """Tell it in one line.

        >>> str(Overridden(before={"capacity": 50, "rpm": None}, after={"capacity": 0, "rpm": 600.0}))
        'capacity 50 -> 0 (nothing uses it), rpm none -> 600'
        """
        told = [
            f"{name} {value_shown(self.before[name], name)} -> {value_shown(to, name)}"
            for name, to in self.after.items()
        ]
        until = f", until {self.until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if self.until and told else ""
        return (", ".join(told) or "as it was") + until


def set_resource(
    connection: Connection,
    name: str,
    changes: Mapping[str, Value],
    *,
    actor: str,
    reason: str,
    until: datetime | None = None,
) -> Overridden:
    """Put values in force over those of resources.toml, all or none. Outside a transaction.

    `changes`: values by field of policy.resources.Resource; None: no such limit. `until` None: until someone clears it.
    What is in force so already is left as it is. Raises: Invalid naming the field; NotFound.
    """
    why = needed_reason(reason)
    _check_until(until)
    if not changes:
        raise Invalid("nothing to set: give at least one field=value", field="field")
    configured = _configured(name)
    with connection.transaction():
        overrides.lock(connection, name)
        live, kept = _checked(connection, configured, changes)
        new = {field: value for field, value in kept.items() if not _stands(live, field, value, until)}
        if not new:
            return Overridden(before={}, after={})
        overrides.put(connection, resource=name, changes=new, author=actor, reason=why, until=until)
        after = resources.effective(connection, {name: configured})[name].resource
        before = {field: getattr(live.resource, field) for field in new}
        done = Overridden(before=before, after={field: getattr(after, field) for field in new}, until=until)
        overrides.note_limit(connection, live, after, at_s=None, reason=f"set by {actor}: {why}")
        _note(connection, actor=actor, name=name, reason=why, done=done)
    Doorbell().ring(connection)
    return done


def check_resource(
    connection: Connection, name: str, changes: Mapping[str, Value], *, until: datetime | None = None
) -> None:
    """Check what would be set, beside what else is in force. Raises: Invalid naming the field; NotFound."""
    _check_until(until)
    _checked(connection, _configured(name), changes)


def clear_resource(
    connection: Connection, name: str, fields: Sequence[str] = (), *, actor: str, reason: str
) -> Overridden:
    """End overrides of a resource; no fields: all of them. Outside a transaction.

    One of a resource or field that is no longer configured too. Raises: Invalid naming the field; NotFound.
    """
    why = needed_reason(reason)
    with connection.transaction():
        overrides.lock(connection, name)
        rows = {row.field: row for row in overrides.standing(connection, name) if not row.over}
        if not rows:
            configured = settings.HARNESS_TOPOLOGY.resources
            if name not in configured:
                _configured(name)
            raise NotFound(f"{name} is as resources.toml says: nothing of it is overridden", field="resource")
        for field in fields:
            if field not in rows:
                raise NotFound(f"{name}: {field} isn't overridden; what is: {', '.join(rows)}", field="field")
        gone = {field: rows[field].value for field in fields or rows}
        one = settings.HARNESS_TOPOLOGY.resources.get(name)
        live = resources.effective(connection, {name: one})[name] if one is not None else None
        overrides.end(connection, resource=name, fields=gone)
        after: Mapping[str, Value] = dict.fromkeys(gone)
        if live is not None and one is not None:
            left = {field: row.value for field, row in rows.items() if field not in gone}
            now = in_force(one, left)
            after = {field: getattr(now, field, None) for field in gone}
            overrides.note_limit(connection, live, now, at_s=None, reason=f"cleared by {actor}: {why}")
        done = Overridden(before=gone, after=after)
        _note(connection, actor=actor, name=name, reason=why, done=done)
    Doorbell().ring(connection)
    return done


def value_shown(value: Value, name: str) -> str:
    """Return a value for people.

    >>> value_shown(None, "rpm"), value_shown(True, "breaker"), value_shown(90000.0, "tpm"), value_shown(0, "capacity")
    ('none', 'on', '90,000', '0 (nothing uses it)')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or isinstance(value, str):
        return value or "none"
    if value == 0 and name in ("capacity", "tenant_cap"):
        return "0 (nothing uses it)"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def _checked(
    connection: Connection, configured: Resource, changes: Mapping[str, Value]
) -> tuple[Live, dict[str, Value]]:
    live = resources.effective(connection, {configured.name: configured})[configured.name]
    others = {field: one.value for field, one in live.overrides.items() if field not in changes}
    return live, checked(in_force(configured, others), changes)


def _stands(live: Live, field: str, value: Value, until: datetime | None) -> bool:
    now = live.overrides.get(field)
    if now is None or now.value != value or isinstance(now.value, bool) is not isinstance(value, bool):
        return False
    if until is None or now.until_s is None:
        return until is None and now.until_s is None
    return abs(now.until_s - until.timestamp()) < 1e-3


def _check_until(until: datetime | None) -> None:
    if until is None:
        return
    now = datetime.now(UTC)
    if until.tzinfo is None or until <= now:
        raise Invalid("until: must be a moment to come, with a zone", field="until")
    if until > now + UNTIL_MOST:
        raise Invalid(
            f"until: must be within {UNTIL_MOST.days} days; leave it out for what stays until it is cleared",
            field="until",
        )


def _configured(name: str) -> Resource:
    found: Resource | None = settings.HARNESS_TOPOLOGY.resources.get(name)
    if found is None:
        known = ", ".join(sorted(settings.HARNESS_TOPOLOGY.resources))
        raise NotFound(f"there is no resource {name!r}; choose from {known or 'none: resources.toml has none'}")
    return found


def _note(connection: Connection, *, actor: str, name: str, reason: str, done: Overridden) -> None:
    audit.note(
        connection,
        actor=actor,
        verb="resource",
        subject=f"resource {name}",
        reason=reason,
        data={
            "before": dict(done.before),
            "after": dict(done.after),
            "until": None if done.until is None else done.until.isoformat(),
        },
    )

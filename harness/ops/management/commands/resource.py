"""`manage.py resource list | set | clear | changes`: downstreams as they are now, and operators' overrides of them."""

import argparse
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.engine import operate
from harness.ops.operators import author, moment, table, told
from harness.policy.resources import Value, fields_of, read
from harness.store import overrides, resources
from harness.store.database import Connection, connect

SHOWN = 20


class Command(BaseCommand):
    """Resources: how they stand, and overrides of what resources.toml says of them."""

    help = "List resources, override what resources.toml says of one for a while, or clear overrides."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        listing = verbs.add_parser("list", help="how each stands, and what of it is overridden")
        setting = verbs.add_parser("set", help="override fields; they act within 5 seconds, without a restart")
        setting.add_argument("name")
        setting.add_argument("what", nargs="+", metavar="FIELD=VALUE", help="capacity=20, rpm=none, breaker=off")
        setting.add_argument("--until", type=moment, metavar="WHEN", help="1h, 30m, or 2026-01-31T18:00+00:00")
        clear = verbs.add_parser("clear", help="let resources.toml hold again")
        clear.add_argument("name")
        clear.add_argument("fields", nargs="*", metavar="FIELD", help="these alone; none: all that are overridden")
        for one in (setting, clear):
            one.add_argument("--reason", required=True, help="kept in the audit, with your name")
        changes = verbs.add_parser("changes", help="the newest changes of limits, each with its reason")
        changes.add_argument("name", nargs="?")
        changes.add_argument("--most", type=int, default=SHOWN, help=f"so many at most ({SHOWN})")
        for one in (listing, setting, clear, changes):
            one.add_argument("--json", action="store_true", help="as JSON alone")

    def handle(self, *args: object, **options: Any) -> None:
        """Do the verb. Raises: CommandError."""
        as_json = options["json"]
        with told(), connect(settings.DATABASE_URL, "staff", application_name="harness-resource") as connection:
            match options["verb"]:
                case "list":
                    self._list(connection, as_json=as_json)
                case "changes":
                    self._changes(connection, options["name"], options["most"], as_json=as_json)
                case verb:
                    who = {"actor": author(), "reason": options["reason"]}
                    if verb == "set":
                        wanted = _pairs(options["what"])
                        done = operate.set_resource(connection, options["name"], wanted, until=options["until"], **who)
                    else:
                        done = operate.clear_resource(connection, options["name"], options["fields"], **who)
                    facts = {
                        "resource": options["name"],
                        "before": dict(done.before),
                        "after": dict(done.after),
                        "until": done.until,
                    }
                    self.stdout.write(json.dumps(facts, default=str) if as_json else f"{options['name']}: {done}")

    def _list(self, connection: Connection, *, as_json: bool) -> None:
        found = resources.effective(connection, settings.HARNESS_TOPOLOGY.resources)
        kept = resources.kept(connection)
        stray = [row for row in overrides.standing(connection) if row.resource not in found and not row.over]
        if as_json:
            every = [
                {
                    "resource": name,
                    "held": live.resource.held,
                    "limit": live.limit,
                    "proven": live.proven,
                    **{field: getattr(live.resource, field) for field in fields_of(live.resource.held)},
                    "seen": None if name not in kept else _seen(kept[name]),
                    "overrides": {
                        field: {
                            "value": one.value,
                            "author": one.author,
                            "reason": one.reason,
                            "until": _iso(one.until_s),
                        }
                        for field, one in live.overrides.items()
                    },
                }
                for name, live in found.items()
            ]
            gone = [{"resource": row.resource, "field": row.field, "value": row.value} for row in stray]
            self.stdout.write(json.dumps({"resources": every, "not_configured": gone}, indent=1))
            return
        rows = []
        for name, live in found.items():
            seen = kept.get(name)
            rows.append(
                (
                    name,
                    live.resource.held,
                    live.resource.limiter if live.resource.held == "call" else "-",
                    f"{live.limit:,}"
                    if not live.resource.adaptive
                    else f"{live.limit:,} of {live.resource.capacity:,}",
                    "-" if seen is None else f"{seen.in_flight:,}",
                    "-" if seen is None else f"{seen.waiting:,}",
                    (seen.breaker if seen else "") or "-",
                    "never" if seen is None else _ago(seen.seen_s),
                    ", ".join(_override(field, one.value, one.until_s) for field, one in live.overrides.items()) or "-",
                )
            )
        heads = ("resource", "held by", "limiter", "limit", "in flight", "waiting", "breaker", "seen", "overridden")
        self.stdout.write(table(heads, rows) if rows else "resources.toml has no resources")
        for row in stray:
            self.stdout.write(
                f"{row.resource} isn't in resources.toml any more, but {row.field} of it is overridden: "
                f"`manage.py resource clear {row.resource} --reason ..` ends that"
            )

    def _changes(self, connection: Connection, name: str | None, most: int, *, as_json: bool) -> None:
        if not 1 <= most <= 10_000:
            raise CommandError("--most: must be from 1 to 10,000")
        found = resources.changes(connection, name, most=most)
        if as_json:
            self.stdout.write(json.dumps([_change(one) for one in found], indent=1))
        elif not found:
            self.stdout.write("no limit has changed")
        else:
            rows = [
                (_utc(one.at_s), one.resource, "-" if one.old is None else one.old, one.new, one.mode, one.reason)
                for one in found
            ]
            self.stdout.write(table(("at (UTC)", "resource", "from", "to", "mode", "reason"), rows))


def _pairs(what: list[str]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for pair in what:
        field, is_one, text = pair.partition("=")
        if not is_one or not field.strip() or not text.strip():
            raise CommandError(f"{pair!r}: must be FIELD=VALUE, such as capacity=20")
        if field.strip() in found:
            raise CommandError(f"{field.strip()}: is given twice")
        found[field.strip()] = read(text)
    return found


def _seen(row: resources.ResourceNow) -> Mapping[str, object]:
    return {
        "in_flight": row.in_flight,
        "waiting": row.waiting,
        "mode": row.mode,
        "breaker": row.breaker,
        "breaker_until": _iso(row.breaker_until_s),
        "blocked_until": _iso(row.blocked_until_s),
        "at": _iso(row.seen_s),
    }


def _change(row: resources.Change) -> Mapping[str, object]:
    return {
        "at": _iso(row.at_s),
        "resource": row.resource,
        "old": row.old,
        "new": row.new,
        "mode": row.mode,
        "reason": row.reason,
    }


def _override(field: str, value: Value, until_s: float | None) -> str:
    return f"{field}={operate.value_shown(value, field)}" + ("" if until_s is None else f" until {_utc(until_s)}")


def _ago(at_s: float | None) -> str:
    passed = max(0.0, datetime.now(UTC).timestamp() - (at_s or 0.0))
    return f"{passed:,.0f} s ago"


def _iso(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat()


def _utc(at_s: float | None) -> str:
    return "-" if at_s is None else f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"

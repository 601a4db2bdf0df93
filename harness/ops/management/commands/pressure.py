"""`manage.py pressure [--history | --refused] [--json]`: the level, each signal, its changes, what doors refused."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isinf
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.ops.operators import table, told
from harness.policy.holds import PRESSURE
from harness.policy.pressure import Reading, Signal
from harness.store import door, pauses, pressure
from harness.store.database import connect
from harness.store.pressure import STALE_S, Standing, Turned

SHOWN = 20
MINUTES, MINUTES_MOST = 15, 1_440
SCORES = ("", "elevated", "high", "critical")


class Command(BaseCommand):
    """Pressure as it was last evaluated."""

    help = "Show the level of pressure and its signals, or the changes of the level with what asked for them."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--history", action="store_true", help="the newest changes of the level instead")
        parser.add_argument("--refused", action="store_true", help="what doors refused or deferred instead")
        parser.add_argument("--minutes", type=int, default=MINUTES, help=f"of --refused: so many ({MINUTES})")
        parser.add_argument("--most", type=int, default=SHOWN, help=f"so many changes at most ({SHOWN})")
        parser.add_argument("--json", action="store_true", help="as JSON alone")

    def handle(self, *args: object, **options: Any) -> None:
        """Show it. Raises: CommandError."""
        if not 1 <= options["most"] <= 10_000:
            raise CommandError("--most: must be from 1 to 10,000")
        if not 1 <= options["minutes"] <= MINUTES_MOST:
            raise CommandError(f"--minutes: must be from 1 to {MINUTES_MOST:,}; older ones are dropped")
        with told(), connect(settings.DATABASE_URL, "staff", application_name="harness-pressure") as connection:
            if options["history"]:
                changes = pressure.changes(connection, most=options["most"])
                self.stdout.write(
                    json.dumps([_change(one) for one in changes], indent=1) if options["json"] else _told(changes)
                )
                return
            if options["refused"]:
                refused = door.told(connection, minutes=options["minutes"], most=10_000)
                self.stdout.write(
                    json.dumps([_answered(one) for one in refused], indent=1) if options["json"] else _refused(refused)
                )
                return
            found, readings = pressure.now(connection), pressure.readings(connection)
            paused = [one for one in pauses.in_force(connection) if one.source == PRESSURE]
        signals = settings.HARNESS_TOPOLOGY.pressure
        if options["json"]:
            until = {one.key: one.until.isoformat() if one.until else None for one in paused}
            self.stdout.write(json.dumps({**_facts(found, readings, signals), "paused": until}, indent=1))
            return
        self.stdout.write(_standing(found))
        for one in paused:
            self.stdout.write(
                f"paused: {one.key}, until {_utc(one.until.timestamp()) if one.until else '-'} UTC at most"
            )
        rows = [_row(name, one, readings.get(name)) for name, one in signals.items()]
        self.stdout.write(table(("signal", "now", "says", "elevated", "high", "critical", "what"), rows))


def _standing(found: Standing | None) -> str:
    if found is None:
        return "nobody has evaluated the pressure yet: is beat running, and a worker of the pool system?"
    said = f"{found.level.word} since {_utc(found.since_s)} UTC"
    age_s = found.now_s - found.seen_s
    if age_s > STALE_S:
        said += f"; last evaluated {age_s:,.0f} s ago, so this holds: is beat running, and a worker of the pool system?"
    return said


def _row(name: str, signal: Signal, seen: Reading | None) -> tuple[str, ...]:
    says = "-" if seen is None else "missing" if seen.missing else SCORES[seen.score]
    now = "-" if seen is None else _number(seen.value, signal.unit)
    limits = [_number(x, signal.unit) for x in (signal.elevated, signal.high, signal.critical)]
    return (name, now, says, *limits, signal.what)


def _number(value: float, unit: str) -> str:
    if isinf(value):
        return "never"
    return f"{value:,.4g} s" if unit == "s" else f"{value:,.4g}"


def _facts(
    found: Standing | None, readings: Mapping[str, Reading], signals: Mapping[str, Signal]
) -> Mapping[str, object]:
    return {
        "level": found.level.word if found else "normal",
        "since": _iso(found.since_s) if found else None,
        "seen_at": _iso(found.seen_s) if found else None,
        "stale": found is None or found.now_s - found.seen_s > STALE_S,
        "signals": {
            name: {
                "value": readings[name].value if name in readings else None,
                "score": readings[name].score if name in readings else None,
                "missing": name not in readings or readings[name].missing,
                "unit": one.unit,
                "hard": one.hard,
                **{key: None if isinf(x) else x for key, x in _thresholds(one).items()},
                "what": one.what,
            }
            for name, one in signals.items()
        },
    }


def _thresholds(signal: Signal) -> Mapping[str, float]:
    return {"elevated": signal.elevated, "high": signal.high, "critical": signal.critical}


def _change(one: Turned) -> Mapping[str, object]:
    return {
        "at": _iso(one.at_s),
        "from": one.before.word,
        "to": one.after.word,
        "signals": {name: {"value": seen.value, "score": seen.score} for name, seen in one.signals.items()},
        "done": one.done,
    }


def _answered(one: door.Told) -> Mapping[str, object]:
    return {
        "minute": one.minute.astimezone(UTC).isoformat(),
        "priority": one.priority,
        "code": one.code,
        "reason": one.reason,
        "tasks": one.tasks,
    }


def _refused(answers: list[door.Told]) -> str:
    if not answers:
        return "no door has refused or deferred anything"
    rows = [
        (_utc(one.minute.timestamp()), f"P{one.priority}", one.code, one.reason, f"{one.tasks:,}") for one in answers
    ]
    return table(("minute (UTC)", "priority", "code", "reason", "tasks"), rows)


def _told(changes: list[Turned]) -> str:
    if not changes:
        return "the level has never changed"
    rows = [
        (
            _utc(one.at_s),
            one.before.word,
            one.after.word,
            ", ".join(f"{name} {seen.value:,.4g}" for name, seen in one.signals.items()) or "-",
            one.done,
        )
        for one in changes
    ]
    return table(("at (UTC)", "from", "to", "by", "what was done"), rows)


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()


def _utc(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"

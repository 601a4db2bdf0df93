"""`manage.py autoscale [--apply] [--once] [--json]`: how many worker processes each pool should have, and why."""

import json
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.ops.local import addresses, more, scaling
from harness.ops.local.interruption import interrupt_on
from harness.ops.local.places import Places, open_places
from harness.ops.local.scaling import Done
from harness.ops.operators import table, told
from harness.policy.autoscale import EVERY_S
from harness.policy.errors import Unavailable
from harness.policy.settings import QUARANTINE, SYSTEM
from harness.store import autoscale
from harness.store.autoscale import Standing, Turned
from harness.store.database import connect

FAILED_S = 60.0  # after a process that could not start no other of its pool is tried for so long
SHOWN = 20


class Command(BaseCommand):
    """The advice on worker processes, and its application to the local stack."""

    help = (
        "Say how many worker processes each pool should have, from what waits and comes and from what its downstreams "
        "carry, and what binds. --apply starts and drains processes of the local stack accordingly, until Ctrl-C."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument(
            "--apply",
            action="store_true",
            help="bring the local stack to it, every 5 s: start what is missing, let what is too many finish and go",
        )
        parser.add_argument(
            "--once", action="store_true", help="one round, which is what happens without --apply anyway"
        )
        parser.add_argument("--pool", default="", metavar="NAME,..", help="these pools only")
        parser.add_argument("--history", action="store_true", help="the newest changes of the advice instead")
        parser.add_argument("--json", action="store_true", help="as JSON alone; with --apply a line a round")

    def handle(self, *args: object, **options: Any) -> None:
        """Say or do it. Raises: CommandError."""
        only = [name for name in options["pool"].split(",") if name]
        if options["history"] and options["apply"]:
            raise CommandError("--history: shows what was advised; without --apply")
        known = settings.HARNESS_TOPOLOGY.pools.keys() - {SYSTEM, QUARANTINE}
        if unknown := sorted(set(only) - known):
            raise CommandError(f"--pool: {', '.join(unknown)} can't be scaled; there are {', '.join(sorted(known))}")
        if options["apply"]:
            self._apply(only, once=options["once"], as_json=options["json"])
            return
        with told(), connect(settings.DATABASE_URL, "staff", application_name="harness-autoscale") as connection:
            if options["history"]:
                self._show_changes(autoscale.changes(connection, most=SHOWN), as_json=options["json"])
                return
            found = {name: one for name, one in autoscale.now(connection).items() if not only or name in only}
        self.stdout.write(json.dumps({"pools": _facts(found)}, indent=1) if options["json"] else _words(found))

    def _apply(self, only: Sequence[str], *, once: bool, as_json: bool) -> None:
        base_dir: Path = settings.BASE_DIR
        home = addresses.home(base_dir)
        if not (home / "stack").is_dir():
            raise CommandError("--apply: no stack was started here; `manage.py stack up`")
        places = open_places(home)
        with told(), more.alone(places):
            if once:
                self._tell(self._round(places, base_dir, only, {}), as_json=as_json)
                return
            interrupt_on(signal.SIGINT, signal.SIGTERM)
            try:
                self._loop(places, base_dir, only, as_json=as_json)
            except KeyboardInterrupt:
                self._say("" if as_json else "stopped; the processes go on as they are")

    def _loop(self, places: Places, base_dir: Path, only: Sequence[str], *, as_json: bool) -> None:
        failed_s: dict[str, float] = {}
        away = ""
        while True:
            try:
                self._tell(self._round(places, base_dir, only, failed_s), as_json=as_json)
                away = ""
            except (psycopg.OperationalError, Unavailable) as error:  # both come back
                if str(error) != away:
                    away = str(error)
                    self._say(json.dumps({"away": away}) if as_json else f"waiting: {away.strip()}")
            time.sleep(EVERY_S)

    def _round(self, places: Places, base_dir: Path, only: Sequence[str], failed_s: dict[str, float]) -> Sequence[Done]:
        now_s = time.monotonic()
        not_now = [pool for pool, at_s in failed_s.items() if now_s - at_s < FAILED_S]
        with connect(settings.DATABASE_URL, "engine", application_name="harness-autoscale") as connection:
            found = scaling.apply(connection, places, base_dir, only=only, not_now=not_now)
        failed_s.update({one.pool: now_s for one in found if one.failed})
        return found

    def _tell(self, found: Sequence[Done], *, as_json: bool) -> None:
        if as_json:
            self._say(json.dumps({"at": _utc(time.time()), "pools": [asdict(one) for one in found]}))
            return
        for one in found:
            for what, names in (
                ("starts", one.started),
                ("lets go", one.drained),
                ("has cleared away", one.cleared),
                ("could not start (see `manage.py stack logs`)", one.failed),
            ):
                if names:
                    self._say(f"{one.pool}: {one.has} of {one.desired}; {what} {', '.join(names)}")

    def _show_changes(self, changes: Sequence[Turned], *, as_json: bool) -> None:
        if as_json:
            self._say(json.dumps([{**asdict(one), "at": _utc(one.at_s)} for one in changes], indent=1))
            return
        rows = [(_utc(one.at_s)[:19], one.pool, one.before, one.after, one.workers, one.reason) for one in changes]
        self._say(table(("at (UTC)", "pool", "from", "to", "running", "why"), rows) if rows else "it has never changed")

    def _say(self, line: str) -> None:
        if line:
            self.stdout.write(line)
            self.stdout.flush()


def _words(found: Mapping[str, Standing]) -> str:
    if not found:
        return "nobody has judged it yet: is beat running, and a worker of the pool system?"
    rows = [
        (name, one.advice.workers, one.advice.desired, _utc(one.since_s)[11:19], one.advice.reason)
        for name, one in found.items()
    ]
    lines = [table(("pool", "running", "desired", "since", "what binds"), rows)]
    if any(one.stale for one in found.values()):
        oldest_s = max(one.now_s - one.seen_s for one in found.values())
        lines.append(
            f"last judged {oldest_s:,.0f} s ago, so nobody acts on it: is beat running, and a worker of the pool "
            "system?"
        )
    return "\n".join(lines)


def _facts(found: Mapping[str, Standing]) -> Sequence[Mapping[str, object]]:
    return [
        {
            "pool": name,
            "workers": one.advice.workers,
            "desired": one.advice.desired,
            "wanted": one.advice.wanted,
            "binds": one.advice.binds,
            "reason": one.advice.reason,
            "holds": one.advice.holds,
            "since": _utc(one.since_s),
            "seen_at": _utc(one.seen_s),
            "stale": one.stale,
        }
        for name, one in found.items()
    ]


def _utc(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()

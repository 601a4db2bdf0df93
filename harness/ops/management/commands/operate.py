"""`manage.py operate <verb>`: people's verbs on a task, on scopes, and on all tasks that match; `operate pauses`."""

import argparse
import json
import signal
import threading
import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.engine import operate
from harness.kinds import registry
from harness.ops.operators import author, table, tenant_named, told
from harness.policy.lifecycle import State
from harness.policy.scopes import PRIORITY_KEYS, Scope
from harness.store import pauses
from harness.store.database import Connection, connect

UNTIL = "--until: only the pause of a pool, priority, tenant or run ends by itself"


class Command(BaseCommand):
    """Do a verb to one task, to a scope, or to all tasks that match."""

    help = (
        "Cancel, pause, resume, requeue, reprioritise or redrive: a task, a scope, or all that match. As an operator."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        for name, verb in operate.VERBS.items():
            one = verbs.add_parser(name, help=verb.help, description=verb.help)
            one.add_argument("--task", type=uuid.UUID, metavar="ID", help="this task alone")
            one.add_argument("--run", type=uuid.UUID, metavar="ID")
            one.add_argument("--tenant", metavar="NAME")
            one.add_argument("--tag", help="of that tenant's tasks")
            one.add_argument("--pool")
            one.add_argument("--priority", choices=PRIORITY_KEYS, help="the tasks' priority")
            one.add_argument("--kind")
            one.add_argument("--state", choices=[str(state) for state in State])
            one.add_argument("--reason", default="", help="kept in the trace, with your name")
            one.add_argument("--preview", action="store_true", help="only count what the filter matches")
            one.add_argument("--json", action="store_true", help="what was done, as JSON alone")
            if name == "priority":
                one.add_argument("--to", choices=PRIORITY_KEYS, required=True, help="the new priority")
            if name == "pause":
                one.add_argument(
                    "--until", type=datetime.fromisoformat, metavar="WHEN", help="of a scope: 2026-01-31T18:00+00:00"
                )
                one.add_argument("--force", action="store_true", help="pause P0 of all or of a pool, too")

        listing = verbs.add_parser("pauses", help="list what is paused, by whom and why")
        listing.add_argument("--json", action="store_true")

    def handle(self, *args: object, **options: Any) -> None:
        """Do it and say what was done. Raises: CommandError."""
        with told(), connect(settings.DATABASE_URL, "staff", application_name="harness-command") as connection:
            registry.discover(*settings.HARNESS_TASK_PACKAGES)  # a redrive asks what the kind is now
            said: dict[str, Any] | None
            if options["verb"] == "pauses":
                said = None
                self._pauses(connection, as_json=options["json"])
            elif options["task"] is not None:
                said = self._task(connection, options)
            elif (scope := _scope(options)) is not None:
                said = self._scope(connection, options, *scope)
            else:
                said = self._many(connection, options)
        if said is None:
            return
        if options["json"]:
            self.stdout.write(json.dumps(said))
        else:
            for name, value in said.items():
                self.stdout.write(f"{name}: {_shown(value)}")

    def _pauses(self, connection: Connection, *, as_json: bool) -> None:
        found = pauses.in_force(connection)
        if as_json:
            self.stdout.write(json.dumps([asdict(one) for one in found], indent=1, default=str))
            return
        heads = ("scope", "what", "whose", "since (UTC)", "until (UTC)", "by", "reason")
        rows = [
            (one.scope, one.key, one.source, _utc(one.created_at), _utc(one.until), one.author, one.reason)
            for one in found
        ]
        self.stdout.write(table(heads, rows) if rows else "nothing is paused")

    def _task(self, connection: Connection, options: dict[str, Any]) -> dict[str, Any]:
        if any(options[name] is not None for name in ("run", "tenant", "tag", "pool", "priority", "kind", "state")):
            raise CommandError("--task: names one task alone; leave the other filters out")
        if options["preview"]:
            raise CommandError("--preview: counts what a filter matches, and --task names one task: nothing was done")
        if options.get("until") is not None:
            raise CommandError(UNTIL)
        more = {"priority": int(options["to"][1])} if "to" in options else {}
        done = operate.VERBS[options["verb"]].run(
            connection, options["task"], tenant=None, actor=author(), reason=options["reason"], **more
        )
        return {"outcome": done.outcome}

    def _scope(
        self, connection: Connection, options: dict[str, Any], scope: Scope, named: str
    ) -> dict[str, Any] | None:
        if options["preview"]:
            self.stdout.write(
                f"{scope} {named}: {options['verb']} changes no task; the dispatcher obeys within a second"
            )
            return None
        if options["verb"] == "resume":
            done = operate.resume_scope(connection, scope, named, tenant=None, actor=author(), reason=options["reason"])
        else:
            done = operate.pause_scope(
                connection,
                scope,
                named,
                tenant=None,
                actor=author(),
                reason=options["reason"],
                until=options["until"],
                force=options["force"],
            )
        return {"outcome": done.outcome, scope: named}

    def _many(self, connection: Connection, options: dict[str, Any]) -> dict[str, Any]:
        if options.get("until") is not None:
            raise CommandError(UNTIL)
        where = operate.Filter(
            tenant=tenant_named(connection, options["tenant"]),
            run=options["run"],
            tag=options["tag"],
            state=None if options["state"] is None else State(options["state"]),
            kind=options["kind"],
            pool=options["pool"],
            priority=None if options["priority"] is None else int(options["priority"][1]),
        )
        if options["preview"]:
            seen = operate.preview(connection, options["verb"], where, tenant=None)
            return asdict(seen) | {"matching": f"more than {seen.matching:,}" if seen.more else seen.matching}
        stop = threading.Event()
        before = signal.signal(signal.SIGINT, lambda *_: stop.set())  # Ctrl-C: after the batch under way
        try:
            done = operate.bulk(
                connection,
                options["verb"],
                where,
                tenant=None,
                actor=author(),
                reason=options["reason"],
                priority=int(options["to"][1]) if "to" in options else None,
                stop=stop.is_set,
            )
        finally:
            signal.signal(signal.SIGINT, before)
        return {
            "matched": done.matched or "nothing",
            "done": dict(done.done),
            "already": done.already,
            "refused": done.reasons(),
            "next": done.next,
            "stopped": done.stopped,
        }


def _scope(options: dict[str, Any]) -> tuple[Scope, str] | None:
    """Return the scope that pause and resume mean, if they mean one; with any other filter they are bulk verbs."""
    if options["verb"] not in ("pause", "resume"):
        return None
    given = {
        name: str(options[name])
        for name in ("run", "tenant", "tag", "pool", "priority", "kind", "state")
        if options[name] is not None
    }
    match given:
        case {"run": run} if len(given) == 1:
            return "run", run
        case {"tenant": tenant} if len(given) == 1:
            return "tenant", tenant
        case {"pool": pool, "priority": priority} if len(given) == 2:
            return "pool_priority", f"{pool}.{priority}"
        case {"pool": pool} if len(given) == 1:
            return "pool", pool
        case {"priority": priority} if len(given) == 1:
            return "priority", priority
    return None


def _utc(moment: datetime | None) -> str:
    return "it is resumed" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {n:,}" for name, n in value.items()) or "none"
    return "-" if value in (None, "") else str(value)

"""`manage.py letters list|groups|show|redrive`: the tasks that have failed for good, and sending them again."""

import argparse
import json
import uuid
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.engine import letters, operate
from harness.engine.letters import Wanted
from harness.kinds import registry
from harness.ops.operators import author, table, tenant_named, told
from harness.store import letters as stored
from harness.store.database import Connection, connect

LIST_MOST = 1000


class Command(BaseCommand):
    """Dead letters: look at them and send them again."""

    help = "List the tasks that have failed for good, count them by reason, and send them again."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        listing = verbs.add_parser("list", help="list them, those that died last first")
        listing.add_argument("--most", type=int, default=50, help=f"at most so many (up to {LIST_MOST})")
        grouping = verbs.add_parser("groups", help="count the newest by reason")
        showing = verbs.add_parser("show", help="one, with input, last events and traceback")
        showing.add_argument("task", type=uuid.UUID)
        sending = verbs.add_parser("redrive", help="send ended tasks again: those named, or all dead letters that fit")
        sending.add_argument("tasks", nargs="*", type=uuid.UUID, metavar="TASK")
        sending.add_argument("--input", help="another input for them, as JSON: they begin anew, under another token")
        sending.add_argument("--why", default="", help="kept in the trace of each")
        sending.add_argument("--yes", action="store_true", help="do it; without this it only says what would happen")
        for one in (listing, grouping, sending):
            one.add_argument("--tenant")
            one.add_argument("--kind")
            one.add_argument("--class", dest="error_class")
            if one is not grouping:
                one.add_argument("--reason", help="the key of a reason; `groups` shows them")
        for one in (listing, grouping, showing, sending):
            one.add_argument("--json", action="store_true")

    def handle(self, *args: object, **options: Any) -> None:
        """Do it. Raises: CommandError."""
        with told():
            registry.discover(*settings.HARNESS_TASK_PACKAGES)
            with connect(settings.DATABASE_URL, "staff", application_name="harness-command") as connection:
                tenant = tenant_named(connection, options.get("tenant"))
                match options["verb"]:
                    case "list":
                        self._list(connection, tenant, options)
                    case "groups":
                        self._groups(connection, tenant, options)
                    case "show":
                        self._show(connection, options)
                    case "redrive":
                        self._redrive(connection, tenant, options)

    def _list(self, connection: Connection, tenant: int | None, options: dict[str, Any]) -> None:
        most = max(1, min(options["most"], LIST_MOST))
        found, following = letters.page(connection, _wanted(options), tenant=tenant, most=most)
        if options["json"]:
            self.stdout.write(json.dumps([asdict(one) for one in found], indent=1, default=str))
            return
        heads = ("died", "task", "tenant", "kind", "class", "attempts", "lost", "message")
        rows = [
            (
                f"{one.dead_at:%Y-%m-%d %H:%M:%S}",
                one.public_id,
                one.tenant,
                one.kind,
                one.error_class,
                one.attempts_used,
                one.lost_starts,
                _short(one.message),
            )
            for one in found
        ]
        self.stdout.write(table(heads, rows) if rows else "no dead letters")
        if following is not None:
            self.stdout.write("there are more; narrow the list, or raise --most")

    def _groups(self, connection: Connection, tenant: int | None, options: dict[str, Any]) -> None:
        found = letters.groups(connection, _wanted(options), tenant=tenant)
        if options["json"]:
            self.stdout.write(json.dumps(asdict(found), indent=1, default=str))
            return
        heads = ("count", "tenants", "reason", "kind", "class", "last", "message")
        rows = [
            (
                group.count,
                group.tenants,
                group.reason.key,
                group.reason.kind,
                group.reason.error_class,
                f"{group.newest:%Y-%m-%d %H:%M:%S}",
                _short(group.reason.pattern),
            )
            for group in found.items
        ]
        self.stdout.write(table(heads, rows) if rows else "no dead letters")
        if found.more:
            self.stdout.write(f"only the newest {found.looked:,} were looked at; there are more")

    def _show(self, connection: Connection, options: dict[str, Any]) -> None:
        one = letters.one(connection, options["task"])
        traceback = stored.traceback(connection, one.id)
        self.stdout.write(json.dumps(asdict(one) | {"traceback": traceback}, indent=1, default=str))

    def _redrive(self, connection: Connection, tenant: int | None, options: dict[str, Any]) -> None:
        wanted, named = _wanted(options), options["tasks"]
        if bool(named) is not wanted.everything:
            raise CommandError("name tasks, or say which by --kind, --class or --reason (`letters groups` shows them)")
        value = operate.KEEP if options["input"] is None else _json(options["input"])
        if value is not operate.KEEP and not named and wanted.kind is None:
            raise CommandError("--input: name the kind (--kind) whose tasks it is for, or the tasks")
        batches: Iterable[list[int]] = (
            [letters.ids(connection, named, tenant=tenant)]
            if named
            else letters.batches(connection, wanted, tenant=tenant)
        )
        if not options["yes"]:
            seen = operate.forecast(connection, batches, tenant=tenant, input=value)
            if options["json"]:
                facts = {name: getattr(seen, name) for name in ("tasks", "anew", "states", "attempts", "slot_s")}
                facts |= {name: getattr(seen, name) for name in ("tokens", "usd", "expected_slot_s", "room")}
                facts |= {name: getattr(seen, name) for name in ("steps_kept", "steps_dropped")}
                self.stdout.write(json.dumps(facts | _plain(seen.tally), indent=1))
                return
            self.stdout.write(
                f"{seen.tasks:,} task{'' if seen.tasks == 1 else 's'} would be sent again, {seen.anew:,} of them anew "
                f"(under another token); used so far: {_seconds(seen.slot_s)}; one more try takes "
                f"{_seconds(seen.expected_slot_s)}"
            )
            if seen.steps_kept or seen.steps_dropped:
                self.stdout.write(
                    f"{seen.steps_kept:,} finished steps stay and are not done again; {seen.steps_dropped:,} are "
                    "dropped and done again, under other tokens"
                )
            self._tell(seen.tally)
            self.stdout.write("nothing was done yet; --yes does it")
            return
        tally = operate.bulk(
            connection,
            "redrive",
            batches,
            tenant=tenant,
            actor=author(),
            reason=options["why"],
            input=value,
            most=operate.MANY_MOST,
        )
        if options["json"]:
            self.stdout.write(json.dumps(_plain(tally), indent=1))
            return
        self.stdout.write(f"{tally.done['redriven']:,} sent again")
        self._tell(tally)

    def _tell(self, tally: operate.Tally) -> None:
        if tally.already:
            self.stdout.write(f"{tally.already:,} wait in line already")
        for code, n in tally.refused.most_common():
            self.stdout.write(f"{n:,} refused: {tally.messages[code]}")
        if tally.stopped:
            self.stdout.write(f"{tally.stopped}; run it again for the rest")
        elif tally.more:
            self.stdout.write(f"at most {operate.MANY_MOST:,} at once; run it again for the rest")


def _wanted(options: dict[str, Any]) -> Wanted:
    return Wanted(kind=options["kind"], error_class=options["error_class"], reason=options.get("reason"))


def _plain(tally: operate.Tally) -> dict[str, Any]:
    return {
        "redriven": tally.done["redriven"],
        "already": tally.already,
        "refused": dict(tally.refused),
        "messages": tally.messages,
        "more": tally.more,
    }


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(f"--input: not JSON: {error}") from None


def _seconds(slot_s: float) -> str:
    """Return slot-seconds as people read them.

    >>> _seconds(0.0), _seconds(0.02), _seconds(12.34)
    ('no slot-seconds', 'less than 0.1 slot-seconds', '12.3 slot-seconds')
    """
    if slot_s <= 0:
        return "no slot-seconds"
    return f"{slot_s:,.1f} slot-seconds" if slot_s >= 0.1 else "less than 0.1 slot-seconds"


def _short(message: str) -> str:
    return " ".join(message.split())[:90]

"""`manage.py tenant create | set | list | artifacts | delete`."""

import argparse
import json
import re
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.engine import housekeeping, operate
from harness.ops.operators import author, table, told
from harness.policy import allowance
from harness.store import artifacts, keys
from harness.store import housekeeping as stored
from harness.store.database import Connection, connect

_SIZE = re.compile(r"(\d{1,15})([KMGT]?)(?:i?B)?", re.IGNORECASE)
PATIENCE_S = 120.0


def size_bytes(text: str) -> int:
    """Return a size as bytes: a number, or one with K, M, G or T (powers of 1024).

    >>> size_bytes("10G"), size_bytes("512")
    (10737418240, 512)
    """
    shape = _SIZE.fullmatch(text.strip())
    if shape is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write bytes, or a number with K, M, G or T")
    power = " KMGT".index(shape[2].upper() or " ")
    return int(shape[1]) << (10 * power)


class Command(BaseCommand):
    """Tenants: make, change, list and delete them; see and set the room of their artifacts."""

    help = "Make, change, list or delete tenants; the room of their artifacts."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        create = verbs.add_parser("create", help="make a tenant")
        create.add_argument("name")
        create.add_argument("--weight", default="1", help="its share against others (default 1)")
        create.add_argument("--cap", default="1000", help="most of its tasks in flight (default 1000)")
        create.add_argument("--backlog-quota", default="100000", help="most unfinished tasks (default 100,000)")
        create.add_argument(
            "--top-priority", default="1", help="the most urgent priority it may ask for, 0 to 3 (default 1)"
        )
        create.add_argument(
            "--artifact-quota",
            type=size_bytes,
            default=keys.ARTIFACT_QUOTA_BYTES,
            metavar="SIZE",
            help="most that its artifacts may hold, such as 500M (default 10G)",
        )
        create.add_argument(
            "--degrade", default="yes", help="yes: cheaper forms of its work under pressure (default); no"
        )
        change = verbs.add_parser("set", help="change its limits while everything runs; nothing in flight is stopped")
        change.add_argument("name")
        change.add_argument("--weight", help="its share against others; 1 is the usual")
        change.add_argument("--cap", help="most of its tasks in flight; 0: nothing starts")
        change.add_argument("--backlog-quota", help="most unfinished tasks; 0: nothing is accepted")
        change.add_argument("--top-priority", help="the most urgent priority it may ask for, 0 to 3")
        change.add_argument("--degrade", help="yes: cheaper forms of its work under pressure; no: always whole")
        change.add_argument("--reason", required=True, help="kept in the audit, with your name")
        room = verbs.add_parser("artifacts", help="show what its artifacts hold and may hold")
        room.add_argument("name")
        room.add_argument("--quota", type=size_bytes, metavar="SIZE", help="set it, such as 500M")
        delete = verbs.add_parser("delete", help="delete a tenant with all that is its own; an audit entry stays")
        delete.add_argument("name")
        delete.add_argument("--yes", action="store_true", help="really; without it you see what would go")
        delete.add_argument("--cancel", action="store_true", help="cancel its unfinished tasks first")
        delete.add_argument("--reason", default="", help="kept in the audit entry")
        delete.add_argument(
            "--wait-s", type=float, default=PATIENCE_S, help="how long running tasks may take to stop (default 120)"
        )
        listing = verbs.add_parser("list", help="list all")
        listing.add_argument("--json", action="store_true")

    def handle(self, *args: object, **options: Any) -> None:
        """Do the verb. Raises: CommandError."""
        with told():
            if options["verb"] == "create":
                tenant = keys.create_tenant(
                    options["name"],
                    weight=allowance.weight(options["weight"]),
                    cap=allowance.count(options["cap"], "cap"),
                    backlog_quota=allowance.count(options["backlog_quota"], "backlog_quota"),
                    top_priority=allowance.top_priority(options["top_priority"]),
                    artifact_quota_bytes=options["artifact_quota"],
                    degrade=allowance.degrade(options["degrade"]),
                )
                self.stdout.write(f"tenant {tenant.name} made; `manage.py key create {tenant.name}` gives it a key")
                return
            if options["verb"] == "set":
                self._set(options)
                return
            if options["verb"] == "artifacts":
                self._artifacts(options["name"], options["quota"])
                return
            if options["verb"] == "delete":
                self._delete(options)
                return
            found = keys.tenants()
        if options["json"]:
            self.stdout.write(json.dumps([asdict(tenant) for tenant in found], indent=1))
        elif not found:
            self.stdout.write("no tenants; `manage.py tenant create NAME` makes one")
        else:
            rows = [
                (
                    *(t.name, t.weight, t.cap, t.backlog_quota, f"P{t.top_priority}", f"{t.artifact_quota_bytes:,}"),
                    "yes" if t.degrade else "no",
                )
                for t in found
            ]
            heads = ("name", "weight", "cap", "backlog quota", "top priority", "artifact quota bytes", "degrade")
            self.stdout.write(table(heads, rows))

    def _set(self, options: dict[str, Any]) -> None:
        given = {name: options[name] for name in ("weight", "cap", "backlog_quota", "top_priority", "degrade")}
        if all(text is None for text in given.values()):
            raise CommandError("nothing to set: give --weight, --cap, --backlog-quota, --top-priority or --degrade")
        with connect(settings.DATABASE_URL, "staff", application_name="harness-tenant") as connection:
            changed = operate.set_tenant(
                connection,
                options["name"],
                actor=author(),
                reason=options["reason"],
                weight=None if given["weight"] is None else allowance.weight(given["weight"]),
                cap=None if given["cap"] is None else allowance.count(given["cap"], "cap"),
                backlog_quota=None
                if given["backlog_quota"] is None
                else allowance.count(given["backlog_quota"], "backlog_quota"),
                top_priority=None if given["top_priority"] is None else allowance.top_priority(given["top_priority"]),
                degrade=None if given["degrade"] is None else allowance.degrade(given["degrade"]),
            )
        self.stdout.write(f"tenant {options['name']}: {changed}; the dispatcher obeys within a second")

    def _artifacts(self, name: str, quota_bytes: int | None) -> None:
        if quota_bytes is not None:
            keys.set_artifact_quota(name, quota_bytes)
        with _owner() as connection:
            tenant, _, _ = housekeeping.look(connection, name)
            room = artifacts.room(connection, tenant)
        self.stdout.write(f"{name}: {room.n:,} artifacts hold {room.held_bytes:,} of {room.quota_bytes:,} bytes")

    def _delete(self, options: dict[str, Any]) -> None:
        name = options["name"]
        with told(after="what was deleted is gone: run this again"), _owner() as connection:
            if not options["yes"]:
                _, rows, now = housekeeping.look(connection, name)
                self.stdout.write(table(("table", "rows"), sorted(rows.items())))
                raise CommandError(
                    f"nothing was deleted; `manage.py tenant delete {name} --yes"
                    f"{' --cancel' if now.tasks or now.slots else ''}` deletes all of it, for good"
                )
            done = housekeeping.delete_tenant(
                connection,
                name,
                actor=author(),
                reason=options["reason"],
                cancel=options["cancel"],
                patience_s=options["wait_s"],
                say=lambda line: self.stdout.write(f"  {line}"),
            )
            rows = stored.audit(connection, done.audit)
        self.stdout.write(table(("table", "rows"), sorted(rows.items())))
        self.stdout.write(
            f"tenant {name} is gone ({done.cancelled:,} tasks were cancelled first); audit entry {done.audit} stays"
        )


def _owner() -> AbstractContextManager[Connection]:
    return stored.as_owner(settings.DATABASE_URL, application_name="harness-tenant")

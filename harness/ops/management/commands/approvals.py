"""`manage.py approvals list | approve | deny | reask | link | hook`: what tasks ask people, and who is told of it."""

import argparse
import json
import uuid
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from harness.engine import approve
from harness.engine.approve import Link, links
from harness.ops.operators import author, table, tenant_named, told
from harness.policy.approvals import waits
from harness.policy.errors import Conflict
from harness.store import approvals, queries
from harness.store.approvals import Asked
from harness.store.database import Connection, connect

LIST_MOST = 1000
SHOWN_CHARS = 60


class Command(BaseCommand):
    """Questions to people: list and decide them, ask again, make a link; set a tenant's hook."""

    help = "List and decide what tasks ask people; set where a tenant hears of it."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        listing = verbs.add_parser("list", help="list what waits for a decision, the oldest first")
        listing.add_argument("tenant", nargs="?")
        listing.add_argument("--json", action="store_true")
        for name, help_ in (
            ("approve", "say yes; the task goes on when a slot is free"),
            ("deny", "say no; it ends the task, or is the answer, as its kind wants"),
            ("reask", "ask again what nobody decided in time"),
        ):
            one = verbs.add_parser(name, help=help_)
            one.add_argument("task", type=uuid.UUID)
            one.add_argument("--reason", default="", help="kept with the decision, with your name")
            if name == "approve":
                one.add_argument("--choice", help="one of those offered; needed where there are several")
        link = verbs.add_parser("link", help="make a signed link by which somebody without a login decides once")
        link.add_argument("task", type=uuid.UUID)
        link.add_argument("--for", dest="label", required=True, help="who will get it; kept with the decision")
        link.add_argument("--hours", type=float, default=links.LIFE_S / 3600, help="how long it is good (default 168)")
        hook = verbs.add_parser("hook", help="set where a tenant is told (POST) of what is asked from now on")
        hook.add_argument("tenant")
        where = hook.add_mutually_exclusive_group(required=True)
        where.add_argument("--url", help="http or https; private addresses only by HARNESS_EGRESS_ALLOW")
        where.add_argument("--off", action="store_true")
        hook.add_argument("--reason", required=True, help="kept in the audit, with your name")

    def handle(self, *args: object, **options: Any) -> None:
        """Do the verb. Raises: CommandError."""
        with told(), connect(settings.DATABASE_URL, "staff", application_name="harness-approvals") as connection:
            match options["verb"]:
                case "list":
                    self._list(connection, options)
                case "link":
                    self.stdout.write(_link(connection, options))
                case "hook":
                    url = None if options["off"] else options["url"]
                    approve.set_hook(connection, options["tenant"], url, actor=author(), reason=options["reason"])
                    self.stdout.write(
                        f"{options['tenant']} hears of nothing" if url is None else f"{options['tenant']} is told there"
                    )
                case verb:
                    run = {"approve": approve.approve, "deny": approve.deny, "reask": approve.reask}[verb]
                    more = {"choice": options["choice"]} if verb == "approve" else {}
                    done = run(
                        connection, options["task"], tenant=None, actor=author(), reason=options["reason"], **more
                    )
                    self.stdout.write(f"outcome: {done.outcome}" + (f" ({done.choice})" if done.choice else ""))

    def _list(self, connection: Connection, options: dict[str, Any]) -> None:
        tenant = tenant_named(connection, options["tenant"])
        found = approvals.page(connection, tenant, most=LIST_MOST)
        if options["json"]:
            self.stdout.write(json.dumps([_plain(one) for one in found], indent=1))
        elif not found:
            self.stdout.write("nothing waits for a decision")
        else:
            heads = ("task", "kind", "asked (UTC)", "until (UTC)", "choices", "asks")
            rows = [
                (
                    str(one.task_id),
                    one.kind,
                    f"{one.approval.asked_at.astimezone(UTC):%Y-%m-%d %H:%M}",
                    "" if one.approval.deadline is None else f"{one.approval.deadline.astimezone(UTC):%Y-%m-%d %H:%M}",
                    ", ".join(one.approval.choices),
                    " ".join(one.approval.prompt.split())[:SHOWN_CHARS],
                )
                for one in found
            ]
            self.stdout.write(table(heads, rows))


def _link(connection: Connection, options: dict[str, Any]) -> str:
    task = queries.the_task(connection, options["task"])
    last = approvals.last(connection, task.id)
    if last is None or not waits(task.state, is_open=last.open):
        raise Conflict(f"the task doesn't wait for a decision: it is {task.state.replace('_', ' ')}")
    asked = approvals.one(connection, last.id)
    assert asked is not None
    link = Link(approval=last.id, asks=last.asks, tenant=asked.tenant, label=options["label"])
    return links.address(links.made(link, now=datetime.now(UTC), life_s=3600 * options["hours"]))


def _plain(one: Asked) -> dict[str, Any]:
    return {
        "task_id": str(one.task_id),
        "kind": one.kind,
        "title": one.title or "",
        "prompt": one.approval.prompt,
        "choices": one.approval.choices,
        "asked_at": one.approval.asked_at.astimezone(UTC).isoformat(),
        "deadline": None if one.approval.deadline is None else one.approval.deadline.astimezone(UTC).isoformat(),
        "asks": one.approval.asks,
    }

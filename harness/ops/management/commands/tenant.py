"""`manage.py tenant create | list`."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from harness.ops.operators import table, told
from harness.store import keys


class Command(BaseCommand):
    """Tenants: make and list them."""

    help = "Make a tenant, or list them."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        create = verbs.add_parser("create", help="make a tenant")
        create.add_argument("name")
        create.add_argument("--weight", type=float, default=1.0, help="its share against others (default 1)")
        create.add_argument("--cap", type=int, default=1000, help="most of its tasks in flight (default 1000)")
        create.add_argument(
            "--backlog-quota", type=int, default=100_000, help="most unfinished tasks (default 100,000)"
        )
        create.add_argument(
            "--top-priority", type=int, default=1, help="the most urgent priority it may ask for, 0 to 3 (default 1)"
        )
        listing = verbs.add_parser("list", help="list all")
        listing.add_argument("--json", action="store_true")

    def handle(self, *args: object, **options: Any) -> None:
        """Do the verb. Raises: CommandError."""
        with told():
            if options["verb"] == "create":
                tenant = keys.create_tenant(
                    options["name"],
                    weight=options["weight"],
                    cap=options["cap"],
                    backlog_quota=options["backlog_quota"],
                    top_priority=options["top_priority"],
                )
                self.stdout.write(f"tenant {tenant.name} made; `manage.py key create {tenant.name}` gives it a key")
                return
            found = keys.tenants()
        if options["json"]:
            self.stdout.write(json.dumps([asdict(tenant) for tenant in found], indent=1))
        elif not found:
            self.stdout.write("no tenants; `manage.py tenant create NAME` makes one")
        else:
            rows = [(t.name, t.weight, t.cap, t.backlog_quota, f"P{t.top_priority}") for t in found]
            self.stdout.write(table(("name", "weight", "cap", "backlog quota", "top priority"), rows))

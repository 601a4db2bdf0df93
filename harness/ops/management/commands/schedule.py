"""`manage.py schedule list`: the schedules of all tenants, or of one."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from harness.ops.operators import table, tenant_named, told
from harness.store import schedules
from harness.store.database import connect

MOST = 10_000


class Command(BaseCommand):
    """Schedules: list them."""

    help = "List the schedules."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        listing = verbs.add_parser("list", help="list them, oldest first")
        listing.add_argument("--tenant")
        listing.add_argument("--json", action="store_true")

    def handle(self, *args: object, **options: Any) -> None:
        """List them. Raises: CommandError."""
        with told(), connect(settings.DATABASE_URL, "staff", application_name="harness-command") as connection:
            tenant = tenant_named(connection, options["tenant"])
            found = schedules.page(connection, tenant=tenant, most=MOST)
        if options["json"]:
            self.stdout.write(json.dumps([asdict(one) for one in found], indent=1, default=str))
        elif not found:
            self.stdout.write("no schedules; POST /api/v1/schedules makes one")
        else:
            rows = [
                (
                    one.tenant,
                    one.name,
                    one.kind,
                    one.cron,
                    one.zone,
                    one.catch_up,
                    f"{one.next_at:%Y-%m-%d %H:%M:%S%z}" if one.enabled and one.next_at else "-",
                    one.fired,
                    one.stopped_because or ("on" if one.enabled else "paused"),
                )
                for one in found
            ]
            heads = ("tenant", "name", "kind", "cron", "zone", "catch up", "next", "brought", "state")
            self.stdout.write(table(heads, rows))

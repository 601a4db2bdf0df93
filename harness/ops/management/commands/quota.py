"""`manage.py quota set | clear | list`: a tenant's caps on pools and resources."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from harness.engine import operate
from harness.ops.operators import author, table, tenant_named, told
from harness.policy import allowance
from harness.store import limits
from harness.store.database import connect


class Command(BaseCommand):
    """Quotas: set, clear and list them. The dispatcher obeys within a second."""

    help = "Set, clear or list what a tenant may have in flight on a pool, or hold of a resource."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        setting = verbs.add_parser("set", help="cap a tenant on a pool or resource; it replaces the cap before")
        clear = verbs.add_parser("clear", help="take a quota away")
        for one in (setting, clear):
            one.add_argument("tenant")
            one.add_argument("scope", choices=("pool", "resource"))
            one.add_argument("name", help="of the pool or resource, as in resources.toml")
            if one is setting:
                one.add_argument("cap", help="tasks in flight, or how many of the resource; 0: nothing of it starts")
            one.add_argument("--reason", required=True, help="kept in the audit, with your name")
        listing = verbs.add_parser("list", help="list those of a tenant, or all")
        listing.add_argument("tenant", nargs="?")
        listing.add_argument("--json", action="store_true")

    def handle(self, *args: object, **options: Any) -> None:
        """Do the verb. Raises: CommandError."""
        with told(), connect(settings.DATABASE_URL, "staff", application_name="harness-quota") as connection:
            if options["verb"] == "list":
                tenant_named(connection, options["tenant"])
                found = limits.quotas(connection, options["tenant"])
            else:
                on = (options["tenant"], options["scope"], options["name"])
                who = {"actor": author(), "reason": options["reason"]}
                if options["verb"] == "set":
                    changed = operate.set_quota(connection, *on, allowance.count(options["cap"], "cap"), **who)
                else:
                    changed = operate.clear_quota(connection, *on, **who)
                self.stdout.write(f"{options['tenant']}, {options['scope']} {options['name']}: {changed}")
                return
        if options["json"]:
            self.stdout.write(json.dumps([asdict(one) for one in found], indent=1))
        elif not found:
            self.stdout.write("no quotas; `manage.py quota set TENANT pool NAME CAP --reason WHY` makes one")
        else:
            rows = [(one.tenant, one.scope, one.name, one.cap) for one in found]
            self.stdout.write(table(("tenant", "scope", "name", "cap"), rows))

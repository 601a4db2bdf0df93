"""`manage.py budget set | clear | list`: what tenants may spend."""

import argparse
import getpass
import json
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from harness.ops.operators import table, told
from harness.policy import money as policy
from harness.store import money
from harness.store.database import connect


class Command(BaseCommand):
    """Budgets of tenants: set, clear and list them."""

    help = "Set, clear or list what tenants may spend, in USD by UTC day and month."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        setting = verbs.add_parser("set", help="give a tenant a budget; it replaces the one before")
        setting.add_argument("tenant")
        setting.add_argument("--day", type=float, help="USD for a day (UTC); without it: no limit")
        setting.add_argument("--month", type=float, help="USD for a month (UTC); without it: no limit")
        setting.add_argument(
            "--soft",
            type=float,
            default=policy.SOFT_RATIO,
            help=f"from this share on, answers warn (default {policy.SOFT_RATIO})",
        )
        clear = verbs.add_parser("clear", help="let a tenant spend without limit")
        clear.add_argument("tenant")
        listing = verbs.add_parser("list", help="list all, with what is spent")
        listing.add_argument("tenant", nargs="?")
        listing.add_argument("--json", action="store_true")

    def handle(self, *args: object, **options: Any) -> None:
        """Do the verb. Raises: CommandError."""
        tenant = options["tenant"]
        with told():
            if options["verb"] == "set":
                budget = policy.budget(day_usd=options["day"], month_usd=options["month"], soft_ratio=options["soft"])
                money.set_budget(tenant, budget, author=getpass.getuser())
                self.stdout.write(
                    f"budget of {tenant}: {_usd(budget.day_usd)} a day, {_usd(budget.month_usd)} a month, warned from "
                    f"{budget.soft_ratio:.0%} on; it holds within 2 s"
                )
                return
            if options["verb"] == "clear":
                had = money.clear_budget(tenant)
                self.stdout.write(f"{tenant} may spend without limit" if had else f"{tenant} had no budget")
                return
            with connect(settings.DATABASE_URL, "staff", application_name="harness-budget") as connection:
                found = money.budgets(connection, tenant)
        if options["json"]:
            self.stdout.write(json.dumps([asdict(one) for one in found], indent=1))
        elif not found:
            self.stdout.write("no budgets; `manage.py budget set TENANT --month 100` makes one")
        else:
            rows = [
                (
                    one.tenant,
                    f"{_usd(one.spent.day_usd)} of {_usd(one.budget.day_usd)}",
                    f"{_usd(one.spent.month_usd)} of {_usd(one.budget.month_usd)}",
                    f"{one.budget.soft_ratio:.0%}",
                    one.standing.line,
                    one.author,
                )
                for one in found
            ]
            self.stdout.write(table(("tenant", "day", "month", "soft from", "line", "set by"), rows))


def _usd(amount: float | None) -> str:
    return "any amount" if amount is None else policy.shown(amount)

"""`manage.py people setup | add | list`: groups and logins of the admin. A superuser: `manage.py createsuperuser`."""

import argparse
import getpass
import json
import sys
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from harness.ops.operators import table, told
from harness.store import people


class Command(BaseCommand):
    """Groups and logins of the admin."""

    help = "Make the admin's groups; add or list logins."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        verbs.add_parser("setup", help="make the groups, or bring their permissions up to date")
        add = verbs.add_parser("add", help="make a login; asks for its password, or reads it from standard input")
        add.add_argument("name")
        add.add_argument("--group", required=True, choices=list(people.GROUPS))
        add.add_argument("--tenant", help="of a tenant admin: the tenant that it sees, alone")
        listing = verbs.add_parser("list", help="list the logins")
        listing.add_argument("--json", action="store_true")

    def handle(self, *args: object, **options: Any) -> None:
        """Do the verb. Raises: CommandError."""
        match options["verb"]:
            case "setup":
                with told():
                    names = people.setup()
                self.stdout.write(f"groups: {', '.join(names)}; `manage.py people add NAME --group GROUP` adds a login")
            case "add":
                password = getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
                with told():
                    people.add(options["name"], password, group=options["group"], tenant=options["tenant"])
                self.stdout.write(f"{options['name']} may log in at /admin/")
            case _:
                self._list(as_json=options["json"])

    def _list(self, *, as_json: bool) -> None:
        with told():
            found = people.people()
        if as_json:
            self.stdout.write(json.dumps([asdict(person) for person in found], indent=1))
        elif not found:
            self.stdout.write("no logins; `manage.py createsuperuser` or `manage.py people add` makes one")
        else:
            rows = [
                (
                    person.name,
                    "superuser" if person.superuser else ", ".join(person.groups) or "–",
                    person.tenant or "–",
                    "" if person.active else "not active",
                )
                for person in found
            ]
            self.stdout.write(table(("name", "groups", "tenant", ""), rows))

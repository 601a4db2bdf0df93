"""`manage.py key create | revoke | list`. A key is printed once, alone on standard output, when it is made."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from harness.ops.operators import table, told
from harness.store import keys


class Command(BaseCommand):
    """API keys: make, revoke and list them."""

    help = "Make, revoke or list API keys."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their options."""
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        create = verbs.add_parser("create", help="make a key; it is shown this once")
        create.add_argument("tenant")
        create.add_argument("--scopes", default=",".join(keys.SCOPES), help="comma-separated (default read,write)")
        create.add_argument("--label", default="", help="what it is for")
        revoke = verbs.add_parser("revoke", help="refuse a key from now on")
        revoke.add_argument("prefix")
        listing = verbs.add_parser("list", help="list them by prefix")
        listing.add_argument("--tenant")
        listing.add_argument("--json", action="store_true")

    def handle(self, *args: object, **options: Any) -> None:
        """Do the verb. Raises: CommandError."""
        match options["verb"]:
            case "create":
                scopes = [scope.strip() for scope in options["scopes"].split(",") if scope.strip()]
                with told():
                    key = keys.create_key(options["tenant"], scopes=scopes, label=options["label"])
                self.stdout.write(key)
                self.stderr.write("keep it now: it is not shown again")
            case "revoke":
                with told():
                    keys.revoke_key(options["prefix"])
                self.stdout.write("revoked; it is refused from now on")
            case _:
                self._list(options["tenant"], as_json=options["json"])

    def _list(self, tenant: str | None, *, as_json: bool) -> None:
        with told():
            found = keys.keys(tenant)
        if as_json:
            self.stdout.write(json.dumps([asdict(key) for key in found], indent=1, default=str))
        elif not found:
            self.stdout.write("no keys; `manage.py key create TENANT` makes one")
        else:
            rows = [
                (
                    key.prefix,
                    key.tenant,
                    ",".join(key.scopes),
                    f"{key.created_at:%Y-%m-%d}",
                    f"revoked {key.revoked_at:%Y-%m-%d %H:%M}" if key.revoked_at else "valid",
                    key.label,
                )
                for key in found
            ]
            self.stdout.write(table(("prefix", "tenant", "scopes", "made", "state", "label"), rows))

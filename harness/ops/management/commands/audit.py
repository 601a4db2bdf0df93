"""`manage.py audit`: looks at all by the auditor's rules, and again a few seconds later at what seems wrong.

Exit code 1: a fault stands that wasn't repaired. Any number may run, also beside the leading dispatcher's own.
"""

import json
import sys
import time
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.engine.audit import RULES
from harness.engine.auditor import NEVER_S, Alerts, Auditor, Finding
from harness.ops.operators import table, told
from harness.store import findings as stored
from harness.store.broker import Broker
from harness.store.database import Connection, connect


class Command(BaseCommand):
    """Audits."""

    help = "Look for what is at odds: leases, tasks, caps, flows, charges, trace; and for an old transaction."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        way = parser.add_mutually_exclusive_group()
        way.add_argument("--repair", action="store_true", help="repair what is safe to repair")
        way.add_argument("--dry-run", action="store_true", help="write nothing, not even the findings")
        parser.add_argument("--rules", action="store_true", help="only show the rules")
        parser.add_argument("--json", action="store_true", help="as JSON alone")
        parser.add_argument(
            "--patience-s",
            type=float,
            default=NEVER_S,
            help="most seconds between the two looks, of 3 (70 for a missing flow, which may come back by itself)",
        )

    def handle(self, *args: object, **options: Any) -> None:
        """Audit and print what was found. Raises: CommandError."""
        if options["rules"]:
            self._rules(as_json=options["json"])
            return
        if not options["patience_s"] >= 0:
            raise CommandError(f"--patience-s: must be at least 0, not {options['patience_s']:g}")
        auditor = Auditor(
            topology=settings.HARNESS_TOPOLOGY,
            alerts=Alerts(
                transaction_s=settings.HARNESS_ALERT_TRANSACTION_S, dead_rows=settings.HARNESS_ALERT_DEAD_ROWS
            ),
            depths=Broker(settings.BROKER_URL).depths if settings.BROKER_URL else None,
            repair=options["repair"],
            dry=options["dry_run"],
            patience_s=options["patience_s"],
        )
        began_s = time.monotonic()
        with told(), connect(settings.DATABASE_URL, "engine", application_name="harness-audit") as connection:
            findings, gone = _audit(auditor, connection)
            counts = stored.counts(connection)
        took_s = round(time.monotonic() - began_s, 1)
        left = [one for one in findings if one.level == "fault" and not one.repaired]
        if options["json"]:
            report = {
                "findings": [asdict(one) for one in findings],
                "gone": gone,
                "counts": {rule: asdict(one) for rule, one in counts.items()},
                "looks": {
                    look: {"statements": cost.statements, "ms": round(cost.ms, 1), "most_ms": round(cost.most_ms, 1)}
                    for look, cost in auditor.costs.items()
                },
                "took_s": took_s,
            }
            self.stdout.write(json.dumps(report, indent=1, default=str))
        else:
            self._tell(findings, gone, counts, took_s)
        if left:
            sys.exit(1)

    def _tell(self, findings: list[Finding], gone: int, counts: dict[str, stored.Counted], took_s: float) -> None:
        for one in findings:
            facts = ", ".join(f"{name} {value}" for name, value in one.facts.items())
            after = f"repaired: {one.how}" if one.repaired else "not repaired"
            self.stdout.write(f"{one.level}: {one.rule}: {one.subject}: {RULES[one.rule].means} ({facts}); {after}")
        repaired = sum(one.repaired for one in findings)
        self.stdout.write(
            f"{len(RULES)} rules, {took_s:g} s: {len(findings)} found, {repaired} repaired"
            + (f"; {gone} found before are no longer so" if gone else "")
        )
        if counts:
            rows = [(rule, one.found, one.repaired, one.open) for rule, one in counts.items()]
            self.stdout.write(table(("rule, in all that is kept", "found", "repaired", "open"), rows))

    def _rules(self, *, as_json: bool) -> None:
        rows = [(rule.name, rule.level, rule.means, rule.does or "-") for rule in RULES.values()]
        heads = ("rule", "level", "means", "repair")
        if as_json:
            self.stdout.write(json.dumps([dict(zip(heads, row, strict=True)) for row in rows], indent=1))
        else:
            self.stdout.write(table(heads, rows))


def _audit(auditor: Auditor, connection: Connection) -> tuple[list[Finding], int]:
    """Look at all, wait until what is suspected can be confirmed, and do. Returns findings and how many ended."""
    auditor.look(connection, now_s=time.monotonic())
    findings: list[Finding] = []
    while (wait_s := auditor.due_in_s(time.monotonic())) is not None:
        time.sleep(wait_s)  # what is under way in other processes ends meanwhile
        findings += auditor.confirm(connection, now_s=time.monotonic())
    return findings, auditor.close_gone(connection, now_s=time.monotonic())

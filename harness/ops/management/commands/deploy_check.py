"""`manage.py deploy_check [--only NAME,..] [--strict] [--json]`: is this deployment fit to be sent traffic?

Run it where a process of the deployment runs, with that process's environment. Exit code 0: yes; 1: no.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.kinds import registry
from harness.ops.deployment import configured, running, servers
from harness.ops.deployment.finding import Finding
from harness.ops.operators import told
from harness.store.database import Connection, connect

Check = Callable[[Connection], Iterable[Finding]]
MARKS = {"ok": "ok", "warning": "warning", "error": "ERROR"}


class Command(BaseCommand):
    """Checks a deployment."""

    help = (
        "Check settings, migrations, connections, broker, clocks, and that a dispatcher, beat and a worker for every "
        "pool live. The exit code is 1 unless all is well."
    )
    requires_system_checks = ()  # `settings` runs them, and says what they found

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument(
            "--only", default="", metavar="NAME,..", help=f"these checks alone: {', '.join([*_before(), *_checks()])}"
        )
        parser.add_argument("--strict", action="store_true", help="warnings count as errors")
        parser.add_argument("--json", action="store_true", help="as JSON alone")

    def handle(self, *args: object, **options: Any) -> None:
        """Check and tell. Raises: CommandError for an unknown check."""
        only = [name.strip() for name in options["only"].split(",") if name.strip()]
        if unknown := sorted(set(only) - {*_before(), *_checks()}):
            raise CommandError(
                f"--only: there is no check {', '.join(unknown)}; there are {', '.join([*_before(), *_checks()])}"
            )
        registry.discover(*settings.HARNESS_TASK_PACKAGES)
        found = list(_look(only))
        bad = {"error", "warning"} if options["strict"] else {"error"}
        fit = not any(one.level in bad for one in found)
        if options["json"]:
            self.stdout.write(json.dumps({"fit": fit, "findings": [asdict(one) for one in found]}, indent=1))
        else:
            for one in found:
                self.stdout.write(f"{MARKS[one.level]:8}{one.check}: {one.says}" + (f"; {one.fix}" if one.fix else ""))
            self.stdout.write("fit" if fit else "not fit")
        if not fit:
            sys.exit(1)


def _before() -> Mapping[str, Callable[[], Iterable[Finding]]]:
    """The checks that need no connection of the engine's, by name."""
    return {
        "settings": lambda: configured.findings(settings, os.environ),
        "migrations": servers.migrations,
        "broker": lambda: servers.broker(settings.BROKER_URL, settings.HARNESS_LIVE_URL),
    }


def _checks() -> Mapping[str, Check]:
    topology = settings.HARNESS_TOPOLOGY
    return {
        "database": servers.database,
        "connections": lambda connection: servers.connections(connection, topology),
        "clock": lambda connection: servers.clocks(connection, settings.BROKER_URL, settings.HARNESS_LIVE_URL),
        "dispatcher": running.dispatcher,
        "beat": running.beat,
        "workers": lambda connection: running.workers(connection, topology),
        "kinds": lambda connection: running.kinds(connection, topology),
    }


def _look(only: list[str]) -> Iterator[Finding]:
    def chosen(name: str) -> bool:
        return not only or name in only

    for name, check in _before().items():
        if chosen(name):
            yield from _told(name, check)
    names = [name for name in _checks() if chosen(name)]
    if not names:
        return
    with suppress(psycopg.Error):  # of a connection that broke: closing it fails, too
        try:
            with told():
                connection = connect(settings.DATABASE_URL, "engine", application_name="harness-deploy-check")
        except CommandError as error:
            yield Finding(
                check="database", level="error", says=f"{error}", fix="without it nobody knows about the rest"
            )
            return
        with connection:
            for name in names:
                yield from _told(name, partial(_checks()[name], connection))


def _told(name: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What a check finds; that it could not look is an error of its own."""
    try:
        with told():
            return list(check())
    except CommandError as error:
        return [Finding(check=name, level="error", says=str(error), fix="then run it again")]

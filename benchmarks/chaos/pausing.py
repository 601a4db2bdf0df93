"""Pauses scopes and resumes them, as an operator does: by the engine's verb, in this process.

The verb wants the product's settings (its topology), so `open_operator` comes before everything else.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from benchmarks.chaos.schedule import Pausing
from harness.policy.errors import Conflict, Unavailable

ACTOR = "chaos"
PATIENCE_S = 30.0  # with a database that is just starting
AGAIN_S = 0.2


def open_operator(database_url: str) -> None:
    """Load the product's settings into this process, once."""
    import django
    from django.conf import settings

    if not settings.configured:
        os.environ |= {"DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "config.settings"}
        os.environ.setdefault("SECRET_KEY", "only-for-benchmarks")
        django.setup()


def play(database_url: str, pauses: Sequence[Pausing], began_s: float, done: list[Pausing]) -> None:
    """Pause and resume at the times after `began_s` (epoch); `done` grows. Raises: psycopg.Error."""
    for one in pauses:
        time.sleep(max(0.0, began_s + one.at_s - time.time()))
        pause(database_url, one)
        time.sleep(one.for_s)
        resume(database_url, one)
        done.append(one)


def pause(database_url: str, one: Pausing) -> None:
    """Pause a scope."""
    from harness.engine import operate

    _insist(database_url, lambda c: operate.pause_scope(c, one.scope, one.key, tenant=None, actor=ACTOR, reason=ACTOR))


def resume(database_url: str, one: Pausing) -> None:
    """Resume a scope: its slots come back by the ramp."""
    from harness.engine import operate

    def act(connection: Any) -> None:
        with contextlib.suppress(Conflict):  # it was resumed by a try whose answer was lost
            operate.resume_scope(connection, one.scope, one.key, tenant=None, actor=ACTOR, reason=ACTOR)

    _insist(database_url, act)


def _insist(database_url: str, act: Callable[[Any], object]) -> None:
    from harness.store.database import connect

    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            with connect(database_url, "staff", application_name="harness-chaos") as connection:
                act(connection)
                return
        except (psycopg.OperationalError, Unavailable):
            if time.monotonic() > until_s:
                raise
            time.sleep(AGAIN_S)

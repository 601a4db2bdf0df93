"""What operators' commands share: every error of Harness or of the database becomes one line that names the fix."""

import argparse
import getpass
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
from django.core.management.base import CommandError
from django.db import OperationalError, ProgrammingError

from harness.policy.errors import HarnessError, NotFound
from harness.store import queries
from harness.store.database import LOCKED, Connection

NO_TABLES = "the database has no tables of Harness, or older ones; `manage.py migrate` makes them"


def author() -> str:
    """Return the name under which what this person does is kept in the trace and the audit."""
    return f"operator:{getpass.getuser()}"


@contextmanager
def told(*, after: str = "") -> Iterator[None]:
    """Turn errors into CommandError, those of Django's connections and of our own.

    `after`: what to say of work that was under way when the database refused more.
    """
    try:
        yield
    except HarnessError as error:
        raise CommandError(error.message) from None
    except psycopg.errors.LockNotAvailable:
        raise CommandError(LOCKED) from None
    except psycopg.errors.QueryCanceled as error:
        raise CommandError(f"the database took too long ({error.diag.message_primary}); try again shortly") from None
    except (OperationalError, psycopg.OperationalError) as error:
        if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            raise CommandError(LOCKED) from None
        reason = _first_line(error)
        what = "is not there" if "does not exist" in reason else "doesn't answer"
        raise CommandError(f"the database {what} ({reason}); check DATABASE_URL, or `manage.py stack up`") from None
    except (
        ProgrammingError,
        psycopg.errors.UndefinedColumn,
        psycopg.errors.UndefinedObject,
        psycopg.errors.UndefinedTable,
    ):
        raise CommandError(NO_TABLES) from None
    except psycopg.Error as error:
        reason = _first_line(error)
        if isinstance(error, psycopg.errors.InvalidParameterValue) and reason.startswith("role "):  # made with them
            raise CommandError(NO_TABLES) from None
        raise CommandError(f"the database: {reason}{after and f'; {after}'}") from None


def moment(text: str) -> datetime:
    """Return a moment to come that was written as a time from now (90s, 30m, 1h, 2d) or as it is, with its zone.

    Raises: argparse.ArgumentTypeError, for an option's `type`.
    """
    span = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd])", text.strip())
    try:
        if span:
            return datetime.now(UTC) + float(span[1]) * _SPANS[span[2]]
        found = datetime.fromisoformat(text)
    except (OverflowError, ValueError):
        found = None
    if found is None or found.tzinfo is None:
        raise argparse.ArgumentTypeError(
            "must be a time from now (90s, 30m, 1h, 2d) or a moment with its zone (2026-01-31T18:00+00:00), "
            f"not {text!r}"
        )
    return found


_SPANS = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def tenant_named(connection: Connection, name: str | None) -> int | None:
    """Return the number of a tenant; None for no name. Raises: NotFound."""
    if name is None:
        return None
    found = queries.tenant_named(connection, name)
    if found is None:
        raise NotFound(f"there is no tenant {name!r}; `manage.py tenant list` shows them", field="tenant")
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows as text in columns.

    >>> print(table(("a", "b"), [("x", 1)]))
    a  b
    x  1
    """
    lines = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )

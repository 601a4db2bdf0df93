"""What operators' commands share: every error of Harness or of the database becomes one line that names the fix."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from django.core.management.base import CommandError
from django.db import OperationalError, ProgrammingError

from harness.policy.errors import HarnessError, NotFound
from harness.store import queries
from harness.store.database import LOCKED, Connection


@contextmanager
def told() -> Iterator[None]:
    """Turn errors into CommandError, those of Django's connections and of our own."""
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
        reason = str(error).strip().splitlines()[0]
        raise CommandError(
            f"the database doesn't answer ({reason}); check DATABASE_URL, or `manage.py stack up`"
        ) from None
    except (
        ProgrammingError,
        psycopg.errors.UndefinedColumn,
        psycopg.errors.UndefinedObject,
        psycopg.errors.UndefinedTable,
    ):
        raise CommandError(
            "the database has no tables of Harness, or older ones; `manage.py migrate` makes them"
        ) from None


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

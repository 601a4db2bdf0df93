"""The admin's way to the database: Django's connection under role `staff`, held to a tenant where the person is.

Django's connection is the tables' owner's otherwise. Whatever the admin's own filters forget, row-level security
keeps (sql/schema/staff.sql).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.conf import settings
from django.db import connection
from psycopg import sql

from harness.policy.errors import Unavailable
from harness.store.database import LOCKED, Connection, connect, database_name, role_names

STATEMENT_TIMEOUT_S = 10  # a person waits no longer for a page


def assume() -> None:
    """Make Django's connection of this thread act as `staff`, seeing every tenant. Raises: OperationalError."""
    role = role_names(database_name(settings.DATABASE_URL))["staff"]
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        cursor.execute(f"SET statement_timeout = '{STATEMENT_TIMEOUT_S}s'")


def hold_to(tenant: int) -> None:
    """Let this thread's connection see one tenant only, until `resign`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('harness.tenant', %s, false)", (str(tenant),))


def resign() -> None:
    """Make Django's connection the owner's again; one that can't is closed."""
    if connection.connection is None:
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute("RESET ROLE; RESET statement_timeout; SELECT set_config('harness.tenant', '', false)")
    except Exception:  # noqa: BLE001  (whatever it was, the connection must not keep the role)
        connection.close()


@contextmanager
def own_connection(tenant: int | None) -> Iterator[Connection]:
    """A connection outside Django's transactions, for verbs: they open their own. Held to a tenant, unless None.

    Raises: Unavailable.
    """
    try:
        opened = connect(settings.DATABASE_URL, "staff", application_name="harness-admin")
    except psycopg.OperationalError as error:
        raise Unavailable("the database doesn't answer; try again shortly") from error
    with opened:
        if tenant is not None:
            opened.execute("SELECT set_config('harness.tenant', %s, false)", (str(tenant),))
        try:
            yield opened
        except psycopg.errors.LockNotAvailable as error:
            raise Unavailable(LOCKED) from error
        except psycopg.OperationalError as error:
            raise Unavailable("the connection to the database broke; try again shortly") from error


def last_id(table: str) -> int:
    """Return the last id that a table gave out, without looking at its rows (0: none yet)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence(%s, 'id')::regclass), 0)", (table,)
        )
        row = cursor.fetchone()
    return int(row[0])

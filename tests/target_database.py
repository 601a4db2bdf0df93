"""A target database of a test's own: on the test's server, under a role with a limit, with clients that aren't ours."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tests.stage import wait_until

PASSWORD = "Tr0ub4dor-of-the-target"
VARIABLE = "HARNESS_TARGET_MAIN_URL"


class TargetDatabase:
    """Its address, and who is connected."""

    def __init__(self, name: str, limit: int | None) -> None:
        self.name = name
        self._owner = os.environ["DATABASE_URL"]
        parts = urlsplit(self._owner)
        host = f"{name}:{PASSWORD}@{parts.hostname}:{parts.port}"
        self.url = urlunsplit(parts._replace(netloc=host, path=f"/{name}"))
        with psycopg.connect(self._owner, autocommit=True) as owner:
            owner.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} CONNECTION LIMIT {}").format(
                    sql.Identifier(name), sql.Literal(PASSWORD), sql.Literal(-1 if limit is None else limit)
                )
            )
            owner.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(name)))  # to end what it runs
            owner.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def drop(self) -> None:
        with psycopg.connect(self._owner, autocommit=True) as owner:
            owner.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(self.name)))
            # Autovacuum may be there, which only a superuser may end; it is gone in a moment.
            wait_until(lambda: self._dropped(owner), within_s=20)
            owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(self.name)))

    def _dropped(self, owner: psycopg.Connection[TupleRow]) -> bool:
        try:
            owner.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self.name)))
        except psycopg.errors.InsufficientPrivilege:
            return False
        return True

    def foreign(self) -> psycopg.Connection[TupleRow]:
        """A connection of somebody else; the caller closes it."""
        return psycopg.connect(self.url, autocommit=True, application_name="somebody-else")

    def set_limit(self, limit: int) -> None:
        """Give its role another limit."""
        with psycopg.connect(self._owner, autocommit=True) as owner:
            owner.execute(
                sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}").format(sql.Identifier(self.name), sql.Literal(limit))
            )

    def ours(self) -> int:
        """How many connections of tasks are open, by the server's own count."""
        with psycopg.connect(self._owner, autocommit=True) as owner:
            row = owner.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = %s AND application_name LIKE 'harness-%%:db:main'",
                (self.name,),
            ).fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def target_database(*, limit: int | None = None) -> Iterator[TargetDatabase]:
    """Make one, and drop it. `limit`: connections of its role; None: any number."""
    made = TargetDatabase(f"target_{secrets.token_hex(4)}", limit)
    try:
        yield made
    finally:
        made.drop()

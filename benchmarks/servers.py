"""The one PostgreSQL and the one Redis that all arms share: addresses, fresh databases, emptied brokers.

DATABASE_URL and BROKER_URL name real servers; without them a pair of embedded servers is started for the run and
deleted after it. A Redis database that holds keys of somebody else is refused, never emptied.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from harness.policy.errors import Refused

_MARK = "harness-benchmark"  # the key that says: this Redis database is ours to empty


@dataclass(frozen=True, kw_only=True, slots=True)
class Servers:
    """Addresses of both servers. What restarts them is there only where they were started for this run.

    `restart_database(immediate)`: as after a crash (its memory is lost, it recovers), or with a fast shutdown.
    """

    database_url: str
    broker_url: str
    restart_broker: Callable[[], None] | None = None
    restart_database: Callable[[bool], None] | None = None

    def database(self, name: str) -> str:
        """Return the URL of another database of the same server."""
        return _with_path(self.database_url, name)

    def broker(self, offset: int) -> str:
        """Return the URL of the Redis database `offset` after the one named by broker_url (16 in all)."""
        first = int(urlsplit(self.broker_url).path.strip("/") or 0)
        return _with_path(self.broker_url, str((first + offset) % 16))


def _with_path(url: str, path: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, f"/{path}", parts.query, parts.fragment))


@contextmanager
def maintenance(database_url: str, database: str | None = None) -> Iterator[psycopg.Connection[Any]]:
    """Yield an autocommit connection to a database of that server; by default the one that always exists."""
    with psycopg.connect(_with_path(database_url, database or "postgres"), autocommit=True) as connection:
        yield connection


def database_name(database_url: str) -> str:
    """Return the database that a URL names."""
    return str(conninfo_to_dict(database_url).get("dbname", ""))


def recreate_database(database_url: str, *, template: str = "template1") -> None:
    """Drop the database that the URL names and create it again, as a copy of the template."""
    name = sql.Identifier(database_name(database_url))
    with maintenance(database_url) as connection:
        _drop(connection, database_name(database_url))
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, sql.Identifier(template)))


def _drop(connection: psycopg.Connection[Any], name: str) -> None:
    """Drop a database and end its clients first.

    FORCE is refused to an ordinary role while autovacuum, which runs as the superuser, is in that database; a plain
    DROP sends autovacuum away itself, and waits up to 5 s for those who leave.
    """
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = %s AND backend_type = 'client backend' AND usename = current_user",
        [name],
    )
    connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def drop_database(database_url: str) -> None:
    """Drop the database that the URL names, whoever is in it."""
    with maintenance(database_url) as connection:
        _drop(connection, database_name(database_url))


def rename_database(database_url: str, new_name: str) -> None:
    """Rename the database that the URL names; one of the new name is dropped first."""
    old, new = sql.Identifier(database_name(database_url)), sql.Identifier(new_name)
    with maintenance(database_url) as connection:
        _drop(connection, new_name)
        connection.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(old, new))


def flush_broker(broker_url: str) -> None:
    """Empty a Redis database that a benchmark used before, or that is empty. Raises: Refused when it isn't ours."""
    with redis.Redis.from_url(broker_url) as client:
        if client.dbsize() and not client.exists(_MARK):
            raise Refused(
                f"BROKER_URL: Redis database {urlsplit(broker_url).path.strip('/')} holds keys that no benchmark "
                "wrote; name another database number (benchmarks use it and the six after it)",
                field="BROKER_URL",
            )
        client.flushdb()
        client.set(_MARK, int(time.time()))


def django_database(database_url: str) -> dict[str, object]:
    """Return Django's DATABASES entry for a URL, with connections that live on between uses."""
    parts = conninfo_to_dict(database_url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.get("dbname", ""),
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
        "HOST": parts.get("host", ""),
        "PORT": parts.get("port", ""),
        "CONN_MAX_AGE": 600,
    }

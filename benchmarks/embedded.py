"""A PostgreSQL and a Valkey for one run: the embedded servers of the local stack, durable as in daily use.

Beyond what the stack sets: the role may create databases (one for each arm), and pg_stat_statements is loaded with
nested statements tracked, for every arm alike, so that commits that carry NOTIFY can be counted.
"""

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from benchmarks.servers import Servers
from harness.ops.local.places import make_servers_folder, open_places
from harness.ops.local.ports import PortTaken, free_port
from harness.ops.local.postgres import ROLE, SUPERUSER, Postgres
from harness.ops.local.valkey import Valkey

CRASH_S = 5.0  # after that PostgreSQL kills what is left itself
_PORT_TRIES = 5  # a port found free may be taken before the server binds it


class _Server(Protocol):
    def start(self, port: int) -> str: ...
    def stop(self) -> None: ...


@contextmanager
def embedded() -> Iterator[Servers]:
    """Start both servers on free ports, yield their addresses, then stop them and delete their data."""
    home = Path(tempfile.mkdtemp(prefix="harness-bench-servers-"))
    home.chmod(0o711)  # the servers' user passes through to its own folder
    places = open_places(home)
    superuser_password = secrets.token_hex(24)
    make_servers_folder(places)
    database = Postgres(places, password=secrets.token_hex(24), superuser_password=superuser_password)
    broker = Valkey(places, password=secrets.token_hex(24))
    try:
        database_url = _start(database)
        _equip(database_url, superuser_password)
        database.stop()  # a preloaded library comes in at a start only
        database.start(urlsplit(database_url).port or 0)
        _extend(database_url, superuser_password)
        broker_url = _start(broker)

        def restart_broker() -> None:
            broker.stop()
            broker.start(urlsplit(broker_url).port or 0)

        def restart_database(immediate: bool) -> None:
            if immediate:
                crash(database)
            database.stop()
            database.start(urlsplit(database_url).port or 0)

        yield Servers(
            database_url=database_url,
            broker_url=broker_url,
            restart_broker=restart_broker,
            restart_database=restart_database,
        )
    finally:
        broker.stop()
        database.stop()
        shutil.rmtree(places.servers, ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)


def crash(database: Postgres) -> None:
    """Send PostgreSQL what its own "immediate" shutdown is: it ends without a checkpoint, as in a crash."""
    first_line = (database.data / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0]
    os.kill(int(first_line), signal.SIGQUIT)
    until_s = time.monotonic() + CRASH_S
    while database.alive() and time.monotonic() < until_s:
        time.sleep(0.01)


def _start(server: _Server) -> str:
    for _ in range(_PORT_TRIES - 1):
        try:
            return server.start(free_port())
        except PortTaken:
            continue
    return server.start(free_port())


def _superuser(database_url: str, password: str) -> psycopg.Connection[tuple[object, ...]]:
    parts = urlsplit(database_url)
    return psycopg.connect(
        host=parts.hostname,
        port=parts.port,
        user=SUPERUSER,
        password=password,
        dbname="postgres",
        autocommit=True,
    )


def _equip(database_url: str, password: str) -> None:
    with _superuser(database_url, password) as connection:
        connection.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(sql.Identifier(ROLE)))
        connection.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        connection.execute("ALTER SYSTEM SET pg_stat_statements.track = 'all'")


def _extend(database_url: str, password: str) -> None:
    with _superuser(database_url, password) as connection:
        connection.execute("CREATE EXTENSION pg_stat_statements")
        connection.execute(sql.SQL("ALTER ROLE {} CREATEDB").format(sql.Identifier(ROLE)))  # each start takes it away

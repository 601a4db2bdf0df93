"""Target databases, reached: a task's connection, and a look at who is connected. No row of Harness's own is touched.

Connections are opened where they are needed and closed by who opened them; how many there may be, others decide. A
connection of a task carries the name of this Harness and the target, by which a look tells it from other clients'.
"""

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import conninfo, pq, sql
from psycopg.rows import TupleRow

from harness.policy.targets import Away, Ceiling, Full, Seen
from harness.store import sql as files
from harness.store.database import Connection

Target = psycopg.Connection[TupleRow]

CONNECT_TIMEOUT_S = 3  # libpq's least is 2
LOOK_TIMEOUT_S = 2
IDLE_IN_TRANSACTION_S = 60.0  # a worker that is stopped holds nobody's rows for longer
# A server that looks whether its client is still there ends the statement of a killed worker by itself (PostgreSQL 14).
CLIENT_CHECK_S = 2.0
IDLE_S = 15.0  # and closes what a worker that stands still keeps (PostgreSQL 14)
_SINCE_14 = 140_000
_LOOKS = "harness-look:"
# libpq tells no SQLSTATE of a connection that was refused. Servers that speak another language count as unreachable.
_FULL = (
    "too many connections for role",
    "too many connections for database",
    "too many clients already",
    "remaining connection slots are reserved",
)


def mark(connection: Connection) -> str:
    """Return eight letters that tell this Harness, by its own database, from another one on the same target."""
    row = connection.execute(
        "SELECT substr(md5(system_identifier::text || current_database()), 1, 8) FROM pg_control_system()"
    ).fetchone()
    assert row is not None
    return str(row[0])


def task_name(own_mark: str, target: str) -> str:
    """Return the application name of a task's connection.

    >>> task_name("0123abcd", "db:main")
    'harness-0123abcd:db:main'
    """
    return f"harness-{own_mark}:{target}"[:63]


def open_target(address: Mapping[str, str], *, application_name: str, statement_s: float) -> Target:
    """Open one connection for a task, in autocommit; as `begin_use` sets it.

    Raises: psycopg.OperationalError; see `is_full`.
    """
    connection = _connect(address, application_name)
    try:
        connection.prepare_threshold = None  # `forget` drops what is prepared, behind psycopg's back
        begin_use(connection, statement_s=statement_s)
    except BaseException:
        connection.close()
        raise
    return connection


def begin_use(connection: Target, *, statement_s: float) -> None:
    """Set what a task's connection has to keep to: no statement takes longer. Raises: psycopg.Error; it is broken."""
    settings = {
        "statement_timeout": statement_s,
        "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_S,
    }
    if connection.info.server_version >= _SINCE_14:
        settings |= {"client_connection_check_interval": CLIENT_CHECK_S, "idle_session_timeout": IDLE_S}
    connection.execute(
        sql.SQL("; ").join(
            sql.SQL("SET {} = {}").format(sql.Identifier(key), sql.Literal(int(seconds * 1000)))
            for key, seconds in settings.items()
        )
    )


def forget(connection: Target) -> bool:
    """Let a connection forget what its task left there, all but the time it may lie idle. False: it is of no use."""
    try:
        connection.execute("DISCARD ALL")
        if connection.info.server_version >= _SINCE_14:
            connection.execute(sql.SQL("SET idle_session_timeout = {}").format(sql.Literal(int(IDLE_S * 1000))))
    except psycopg.Error:
        return False
    return connection.info.transaction_status == pq.TransactionStatus.IDLE


def is_full(error: psycopg.OperationalError) -> bool:
    """Whether a connection was refused because there are too many."""
    text = str(error)
    return any(words in text for words in _FULL)


def look(address: Mapping[str, str], *, own_mark: str, target: str) -> Seen | Full | Away:
    """Look who is connected to a target, over a connection that lives for this look alone."""
    try:
        with _connect(address, f"{_LOOKS}{own_mark}") as connection:
            connection.execute(sql.SQL("SET statement_timeout = {}").format(sql.Literal(LOOK_TIMEOUT_S * 1000)))
            row = connection.execute(
                files.load("targets/look"), {"ours": task_name(own_mark, target), "looks": f"{_LOOKS}%"}
            ).fetchone()
    except psycopg.OperationalError as error:
        return Full() if is_full(error) else Away(mode="unreachable", why=_said(error))
    except psycopg.Error as error:
        return Away(mode="unreachable", why=_said(error))
    assert row is not None
    others, ours, all_ours, *pairs = row
    return Seen(others=others, ours=ours, kept=all_ours - ours, ceilings=_ceilings(pairs))


def leases(connection: Connection) -> dict[str, int]:
    """Return how many of each resource the tasks in flight hold."""
    return {row[0]: row[1] for row in connection.execute(files.load("targets/leases"))}


def _ceilings(pairs: list[Any]) -> tuple[Ceiling, ...]:
    role, of_role, database, of_database, server, of_server = pairs
    found = (("role", role, of_role), ("database", database, of_database), ("server", server, of_server))
    return tuple(
        Ceiling(of=of, limit=limit, others=others)  # type: ignore[arg-type]  # one of the three words
        for of, limit, others in found
        if limit is not None
    )


def _connect(address: Mapping[str, str], application_name: str) -> Target:
    own: dict[str, Any] = {
        "application_name": application_name,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    return psycopg.connect(conninfo.make_conninfo(**{**address, **own}), autocommit=True)


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:300]

"""Connections to Harness's own database for hot statements: psycopg 3, prepared, under a role.

Django's connection (the tables' owner) serves migrations, commands and admin. Everything on the route of a task
goes through here: Django's cursors don't prepare, which costs a fifth of the throughput (hotpath.md, section 1).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import psycopg
from psycopg import _queries, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolTimeout

from harness.policy.errors import Unavailable

Role = Literal["web", "engine", "staff"]
Connection = psycopg.Connection[TupleRow]

# psycopg keeps how it parsed a statement only up to 4096 bytes, for fear of generated ones; ours are a fixed set, and a
# settle, parsed anew each time, took its worker a sixth longer. A psycopg without this name would only be slower again.
_queries.MAX_CACHED_STATEMENT_LENGTH = 16_384

CONNECT_TIMEOUT_S = 5
RECONNECT_S = 3.0  # the pool's back-off between tries never grows beyond this
# No statement of the route takes longer; it also bounds how long a deleted flow must be looked at again.
STATEMENT_TIMEOUT_S = {"web": 10, "engine": 30, "staff": 30}
LOCKED = (
    "someone else holds a lock on what this needs (a transaction left open?): nothing was changed, try again shortly"
)
IDLE_IN_TRANSACTION_S = {"web": 10, "engine": 30, "staff": 30}


def role_names(database: str) -> dict[str, str]:
    """Return the cluster-wide names of the roles of one database (63 bytes at most).

    >>> role_names("harness")["web"]
    'harness_web'
    """
    return {role: f"{database[:55]}_{role}" for role in ("web", "engine", "staff")}


def database_name(url: str) -> str:
    """Return the name of the database that a URL leads to."""
    return str(conninfo_to_dict(url).get("dbname") or "harness")


def connect(url: str, role: Role, *, application_name: str, idle_in_transaction_s: float | None = None) -> Connection:
    """Open one connection, in autocommit, acting as `role`. Raises: psycopg.OperationalError."""
    connection = psycopg.connect(
        url,
        autocommit=True,
        prepare_threshold=1,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name=application_name,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
    )
    _assume(connection, url, role, idle_in_transaction_s)
    return connection


def open_pool(
    url: str, role: Role, *, size: int, application_name: str, wait_s: float = 10.0
) -> ConnectionPool[Connection]:
    """Open a bounded pool of such connections. It fills in the background and reconnects by itself."""

    def configure(connection: Connection) -> None:
        _assume(connection, url, role, None)

    return ConnectionPool(
        url,
        min_size=size,
        max_size=size,
        timeout=wait_s,
        reconnect_timeout=RECONNECT_S,
        open=True,
        configure=configure,
        check=None,
        kwargs={
            "autocommit": True,
            "prepare_threshold": 1,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": application_name,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
        },
    )


@contextmanager
def borrowed(pool: ConnectionPool[Connection], *, wait_s: float | None = None) -> Iterator[Connection]:
    """Borrow a connection (within `wait_s`, by default the pool's own patience).

    Raises: Unavailable when the database doesn't answer or all are busy.
    """
    try:
        # Not `pool.connection()`: its commit at the end costs as much as all the rest, and here is nothing to commit.
        connection = pool.getconn(wait_s)
        try:
            yield connection
        finally:
            pool.putconn(connection)
    except PoolTimeout as error:
        raise Unavailable("the database doesn't answer; try again shortly") from error
    except psycopg.errors.LockNotAvailable as error:
        raise Unavailable(LOCKED) from error
    except psycopg.OperationalError as error:
        raise Unavailable("the connection to the database broke; try again shortly") from error


def _assume(connection: Connection, url: str, role: Role, idle_in_transaction_s: float | None) -> None:
    name = role_names(database_name(url))[role]
    idle_s = IDLE_IN_TRANSACTION_S[role] if idle_in_transaction_s is None else idle_in_transaction_s
    settings: dict[str, Any] = {
        "statement_timeout": f"{STATEMENT_TIMEOUT_S[role]}s",
        "idle_in_transaction_session_timeout": f"{int(idle_s * 1000)}ms",
        "lock_timeout": "5s",
        # One plan a statement and connection, made for rows found by index. The hot statements are large (planning one
        # costs ten times its execution), and statistics of tables that fill and empty all day must not change them.
        "plan_cache_mode": "force_generic_plan",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "enable_seqscan": "off",
        "random_page_cost": "1.1",
        "jit": "off",
    }
    connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(name)))
    for key, value in settings.items():
        connection.execute(sql.SQL("SET {} = {}").format(sql.Identifier(key), sql.Literal(value)))

"""Faults at the boundaries of single statements, inside the product's own processes.

`install` makes psycopg's cursors look, at each of STATEMENTS, for an order in the folder of HARNESS_BENCH_SABOTAGE: a
file `STATEMENT.POINT.HOW` that one process takes, by renaming it, and obeys; Redis pipelines that send output look for
those of EMIT:

    POINT before: the statement has not been sent       after: it is committed, its answer has not been seen
    HOW   exit: the process ends at once (os._exit)     cut: the connection is closed, as by a network

Inside a transaction `after` is after its COMMIT, and `before` leaves nothing of it. The benchmark's settings install
it; nothing in the product knows of it. A process without the variable is untouched.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
import redis
from psycopg.pq import TransactionStatus
from redis.client import Pipeline

from harness.store import lua, sql

VARIABLE = "HARNESS_BENCH_SABOTAGE"
STATEMENTS = {
    "release": "transitions/release",
    "claim": "transitions/claim",
    "tell_expired": "transitions/tell_expired",  # the second of a claim
    "settle": "transitions/settle",
    "step_begin": "steps/begin",
    "step_finish": "steps/finish",
    "spawn": "children/link",  # the children are inserted, the step isn't recorded
    "park": "children/wait",
    "unpark": "transitions/rouse",
    "ask": "approvals/ask",
    "answer": "transitions/answer",
    "deny": "transitions/deny",
    "ask_timeout": "transitions/approval_timeout",
}
EMIT = "emit"
POINTS = ("before", "after")
HOWS = ("exit", "cut")
TAKEN = "taken"
EXIT_CODE = 137

Cut = Callable[[str], None]


def orders() -> list[str]:
    """Return every order that can be given, as a file name."""
    return [f"{name}.{point}.{how}" for name in (*STATEMENTS, EMIT) for point in POINTS for how in HOWS]


def order(folder: Path, name: str) -> None:
    """Give an order; it stands until a process takes it."""
    (folder / TAKEN).mkdir(exist_ok=True)
    (folder / name).touch()


def taken(folder: Path) -> list[tuple[str, int, float]]:
    """Return the orders that were obeyed: (order, process id, epoch seconds)."""
    found = []
    for path in sorted((folder / TAKEN).glob("*")):
        name, _, rest = path.name.partition("@")
        pid, _, at_s = rest.partition("@")
        found.append((name, int(pid), float(at_s)))
    return found


def install(folder: str) -> None:
    """Let the cursors and pipelines of this process, and of those that it forks, obey orders."""
    _watch_statements(folder)
    _watch_output(folder)


def _watch_statements(folder: str) -> None:
    names = {sql.load(file): name for name, file in STATEMENTS.items()}
    plain, plain_transaction = psycopg.Cursor.execute, psycopg.Connection.transaction
    sent: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()  # by connection: of a transaction under way

    def execute(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        name = names.get(query) if type(query) is str else None
        if name is None:
            return plain(self, query, *arguments, **options)
        connection = self.connection
        _obey(folder, f"{name}.before", lambda point: _cut(connection, point))
        answer = plain(self, query, *arguments, **options)
        if connection.info.transaction_status == TransactionStatus.INTRANS:
            sent.setdefault(connection, []).append(name)
        else:
            _obey(folder, f"{name}.after", lambda point: _cut(connection, point))
        return answer

    @contextmanager
    def transaction(self: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
        over: list[str] = []
        try:
            with plain_transaction(self, *arguments, **options) as inner:
                yield inner
        finally:
            if self.info.transaction_status != TransactionStatus.INTRANS:
                over = sent.pop(self, [])
        for name in over:  # only what was committed gets here
            _obey(folder, f"{name}.after", lambda point: _cut(self, point))

    psycopg.Cursor.execute = execute  # type: ignore[method-assign]  # every cursor of the process, pools' too
    psycopg.Connection.transaction = transaction  # type: ignore[method-assign]


def _watch_output(folder: str) -> None:
    emit = lua.load("emit")
    plain = Pipeline.execute

    def execute(self: Any, *arguments: Any, **options: Any) -> Any:
        if not any(script.script == emit for script in self.scripts):
            return plain(self, *arguments, **options)
        pool = self.connection_pool
        _obey(folder, f"{EMIT}.before", lambda point: _cut_redis(pool, point))
        answer = plain(self, *arguments, **options)
        _obey(folder, f"{EMIT}.after", lambda point: _cut_redis(pool, point))
        return answer

    Pipeline.execute = execute  # type: ignore[method-assign]


def _cut(connection: Any, point: str) -> None:
    connection.close()
    raise psycopg.OperationalError(f"the connection was cut by an order: {point}")


def _cut_redis(pool: Any, point: str) -> None:
    pool.disconnect()
    raise redis.ConnectionError(f"the connection was cut by an order: {point}")


def _obey(folder: str, point: str, cut: Cut) -> None:
    for how in HOWS:
        path = f"{folder}/{point}.{how}"
        if not os.path.exists(path):  # noqa: PTH110  # on the hot path of a process that is measured too
            continue
        try:
            os.rename(path, f"{folder}/{TAKEN}/{point}.{how}@{os.getpid()}@{time.time():.6f}")  # noqa: PTH104
        except FileNotFoundError:
            continue  # another process was quicker
        if how == "exit":
            os._exit(EXIT_CODE)
        cut(point)

"""Faults at the boundaries of single statements, inside the product's own processes.

`install` makes psycopg's cursors look, at each of STATEMENTS, for an order in the folder of HARNESS_BENCH_SABOTAGE: a
file `STATEMENT.POINT.HOW` that one process takes, by renaming it, and obeys:

    POINT before: the statement has not been sent       after: it is committed, its answer has not been seen
    HOW   exit: the process ends at once (os._exit)     cut: the connection is closed, as by a network

The benchmark's settings install it; nothing in the product knows of it. A process without the variable is untouched.
"""

import os
import time
from pathlib import Path
from typing import Any

import psycopg

from harness.store import sql

VARIABLE = "HARNESS_BENCH_SABOTAGE"
STATEMENTS = {
    "release": "transitions/release",
    "claim": "transitions/claim",
    "tell_expired": "transitions/tell_expired",  # the second of a claim
    "settle": "transitions/settle",
    "step_begin": "steps/begin",
    "step_finish": "steps/finish",
}
POINTS = ("before", "after")
HOWS = ("exit", "cut")
TAKEN = "taken"
EXIT_CODE = 137


def orders() -> list[str]:
    """Return every order that can be given, as a file name."""
    return [f"{name}.{point}.{how}" for name in STATEMENTS for point in POINTS for how in HOWS]


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
    """Let the cursors of this process, and of those that it forks, obey orders."""
    names = {sql.load(file): name for name, file in STATEMENTS.items()}
    plain = psycopg.Cursor.execute

    def execute(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        name = names.get(query) if type(query) is str else None
        if name is None:
            return plain(self, query, *arguments, **options)
        _obey(self, folder, f"{name}.before")
        answer = plain(self, query, *arguments, **options)
        _obey(self, folder, f"{name}.after")
        return answer

    psycopg.Cursor.execute = execute  # type: ignore[method-assign]  # every cursor of the process, pools' too


def _obey(cursor: Any, folder: str, point: str) -> None:
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
        cursor.connection.close()
        raise psycopg.OperationalError(f"the connection was cut by an order: {point}")

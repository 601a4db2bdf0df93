"""One side connection of a worker process, opened when needed and opened anew after it broke."""

import threading
from collections.abc import Callable
from typing import TypeVar

import psycopg

from harness.store.database import Connection, connect

T = TypeVar("T")


class Link:
    """A connection in autocommit that outlives the server. Statements that take longer than `statement_s` fail.

    Calls from several threads run one after the other. A failed call is not repeated: the caller comes again.
    """

    def __init__(self, url: str, *, application_name: str, statement_s: float) -> None:
        self._url = url
        self._name = application_name
        self._statement_ms = int(statement_s * 1000)
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def run(self, statement: Callable[[Connection], T]) -> T:
        """Call `statement` with the connection. Raises: psycopg.Error, also when the server can't be reached."""
        with self._lock:
            connection = self._open()
            try:
                return statement(connection)
            except psycopg.OperationalError:
                # Whatever broke: a new connection is cheap beside doubting this one.
                self._drop()
                raise

    def close(self) -> None:
        """Close the connection, if one is open."""
        with self._lock:
            self._drop()

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            connection = connect(self._url, "engine", application_name=self._name)
            connection.execute(f"SET statement_timeout = {self._statement_ms}")
            self._connection = connection
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

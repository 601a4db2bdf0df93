"""A context for the kinds' own tests: real objects, no queue behind it."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg
import pytest

from harness.kinds import Cancelled, Context

T = TypeVar("T")


class Alone:
    """A `Context` for one call of a kind: calls go straight through, `stop` plays a person's cancel."""

    def __init__(self, connection: "psycopg.Connection[Any] | None" = None, *, tenant_id: int = 1) -> None:
        self.calls: list[str] = []
        self.stop = False
        self._connection = connection
        self._tenant_id = tenant_id

    @property
    def task_id(self) -> str:
        return "00000000-0000-4000-8000-000000000001"

    @property
    def tenant_id(self) -> int:
        return self._tenant_id

    @property
    def token(self) -> str:
        return "token-1"

    def cancelled(self) -> bool:
        return self.stop

    def checkpoint(self) -> None:
        if self.stop:
            raise Cancelled

    def call(self, resource: str, fn: Callable[[], T]) -> T:
        self.calls.append(resource)
        return fn()

    @contextlib.contextmanager
    def db(self) -> "Iterator[psycopg.Connection[Any]]":
        if self._connection is None:
            raise AssertionError("this test gave its context no connection")
        with self._connection.transaction():
            yield self._connection


@pytest.fixture
def ctx() -> Context:
    return Alone()


@pytest.fixture
def alone() -> type[Alone]:
    return Alone


@pytest.fixture
def connection(request: pytest.FixtureRequest) -> "Iterator[psycopg.Connection[Any]]":
    """A connection to the migrated test database, where `task` is a table of the test's own: without triggers.

    For tests marked `django_db`: the mark makes the database.
    """
    if not request.config.pluginmanager.has_plugin("django"):
        pytest.skip("the database comes with pytest-django and tests.servers")
    with psycopg.connect(os.environ["DATABASE_URL"]) as connected:
        connected.execute(
            "CREATE TEMP TABLE task (LIKE public.task INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING INDEXES)"
        )
        yield connected
        connected.rollback()

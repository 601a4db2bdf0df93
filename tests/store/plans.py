"""How PostgreSQL plans a named statement."""

import re

import psycopg
import pytest

from harness.store import sql
from tests.stage import Stage


def plan_of(stage: Stage, name: str) -> str:
    """The generic plan, as a prepared statement of the engine gets it."""
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${numbers.setdefault(found[1], len(numbers) + 1)}"

    text = re.sub(r"%\((\w+)\)s", number, re.sub(r"(?m)--.*$", "", sql.load(name)))
    if stage.connection.info.server_version < 160000:
        pytest.skip("EXPLAIN (GENERIC_PLAN) came with PostgreSQL 16")
    rows = psycopg.ClientCursor(stage.connection).execute(f"EXPLAIN (GENERIC_PLAN) {text}")
    return "\n".join(row[0] for row in rows)

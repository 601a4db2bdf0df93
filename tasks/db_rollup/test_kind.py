"""The counts are the tenant's own, of ended tasks, within the window."""

from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from harness.kinds.registry import find
from tasks.db_rollup.kind import Count, Window, rollup


def add(connection: "psycopg.Connection[Any]", tenant: int, kind: str, state: str, number: int) -> None:
    ended = "now()" if state in ("succeeded", "failed_terminal", "cancelled") else "NULL"
    connection.execute(
        "INSERT INTO task (public_id, tenant_id, kind, version, pool, priority, state, ready, finished_at) "
        f"SELECT gen_random_uuid(), %s, %s, 1, 'db', 2, %s, false, {ended} FROM generate_series(1, %s)",
        (tenant, kind, state, number),
    )


@pytest.mark.django_db
def test_the_tenant_s_ended_tasks_are_counted_by_kind_and_state(
    alone: Any, connection: "psycopg.Connection[Any]"
) -> None:
    add(connection, 1, "noop", "succeeded", 3)
    add(connection, 1, "noop", "failed_terminal", 1)
    add(connection, 1, "noop", "queued", 5)
    add(connection, 1, "cpu.similar", "cancelled", 2)
    add(connection, 2, "noop", "succeeded", 70)
    found = rollup(alone(connection, tenant_id=1), Window())
    assert found.finished == [
        Count(kind="cpu.similar", state="cancelled", tasks=2),
        Count(kind="noop", state="failed_terminal", tasks=1),
        Count(kind="noop", state="succeeded", tasks=3),
    ]
    assert found.looked_at == 11


@pytest.mark.django_db
def test_only_the_latest_tasks_are_looked_at(alone: Any, connection: "psycopg.Connection[Any]") -> None:
    add(connection, 1, "noop", "succeeded", 5)
    add(connection, 1, "noop", "cancelled", 4)
    found = rollup(alone(connection), Window(latest=6))
    assert found.finished == [
        Count(kind="noop", state="cancelled", tasks=4),
        Count(kind="noop", state="succeeded", tasks=2),
    ]


@pytest.mark.django_db
def test_a_tenant_without_tasks_gets_an_empty_list(alone: Any, connection: "psycopg.Connection[Any]") -> None:
    assert rollup(alone(connection), Window()).model_dump() == {"finished": [], "looked_at": 0}


def test_the_rollup_is_bundled_and_short() -> None:
    found = find("db.rollup")
    assert found and found.bundle and found.est_s == 0.005 and found.pool == "db"


@pytest.mark.parametrize(("field", "value"), [("latest", 0), ("latest", 50_001), ("tenant", 2)])
def test_a_wrong_field_is_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(ValidationError) as refused:
        Window.model_validate({field: value})
    assert refused.value.errors()[0]["loc"] == (field,)

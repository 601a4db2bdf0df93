"""Search walks one term's entries in order, bounded, under row-level security, whatever else there is."""

import psycopg

from harness.store import queries, search, sql
from tests.stage import Stage


def fill(stage: Stage, n: int) -> None:
    """Tasks of which each has `common`, every second `half`, every thousandth `rare`."""
    stage.connection.execute(
        "WITH t AS (INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready) "
        "SELECT %s, 'noop', 1, 'db', 2, 'queued', true FROM generate_series(1, %s) RETURNING id), "
        "b AS (INSERT INTO task_body (task_id, tenant_id, input) SELECT id, %s, '{}' FROM t) "
        "INSERT INTO task_term (tenant_id, term, task_id) "
        "SELECT %s, term, id FROM t CROSS JOIN (VALUES ('common', 1), ('half', 2), ('rare', 1000)) AS x(term, each) "
        "WHERE id %% each = 0",
        (stage.tenant, n, stage.tenant, stage.tenant),
    )


def found(stage: Stage, *terms: str, most: int = 50, scan: int = 5000) -> list[int]:
    """All ids over all pages, as the web's role."""
    ids: list[int] = []
    before: int | None = queries.LAST_ID
    with stage.open("web") as web, queries.as_tenant(web, stage.tenant):
        while before is not None:
            page, before = search.tasks_of_terms(web, terms, tenant=stage.tenant, before=before, most=most, scan=scan)
            ids += [task.id for task in page]
    return ids


def expected(stage: Stage, each: int) -> list[int]:
    return [
        row[0] for row in stage.connection.execute("SELECT id FROM task WHERE id %% %s = 0 ORDER BY id DESC", (each,))
    ]


def test_pages_of_any_size_find_everything_once_newest_first(stage: Stage) -> None:
    fill(stage, 3000)
    assert found(stage, "rare") == expected(stage, 1000)
    assert found(stage, "common", "rare") == found(stage, "rare", "common") == expected(stage, 1000)
    assert found(stage, "half", "common", most=200) == expected(stage, 2)
    assert found(stage, "common", "half", most=7, scan=100)[:50] == expected(stage, 2)[:50]
    assert found(stage, "common", "nothing") == [] and found(stage, "nothing") == []


def test_another_tenants_terms_are_not_seen_even_if_asked_for(stage: Stage) -> None:
    fill(stage, 10)
    other = stage.add_tenant("other")
    with stage.open("web") as web, queries.as_tenant(web, other):
        assert search.tasks_of_terms(web, ["common"], tenant=stage.tenant, most=10) == ([], None)
        try:
            web.execute("INSERT INTO task_term (tenant_id, term, task_id) VALUES (%s, 'x', 1)", (stage.tenant,))
            raise AssertionError("a tenant wrote another's term")
        except psycopg.errors.InsufficientPrivilege:
            pass


def test_a_page_reads_the_index_of_terms_and_no_table_as_a_whole(stage: Stage) -> None:
    fill(stage, 3000)
    names = ("tenant", "rarest", "others", "before", "scan", "most", "run", "state", "kind", "priority")
    statement = sql.load("search/task_page_of_terms")
    for number, name in enumerate(names, start=1):
        statement = statement.replace(f"%({name})s", f"${number}")
    with stage.open("web") as web, queries.as_tenant(web, stage.tenant):
        plan = str(web.execute("EXPLAIN (GENERIC_PLAN) " + statement).fetchall())
    assert "Index Only Scan Backward using task_term_pkey" in plan
    assert "Seq Scan" not in plan


def test_deleting_tasks_finds_their_terms_by_index(stage: Stage) -> None:
    fill(stage, 3000)
    plan = str(
        stage.connection.execute(
            "EXPLAIN (GENERIC_PLAN) DELETE FROM task_term WHERE task_id = ANY($1::bigint[])"
        ).fetchall()
    )
    assert "task_term_of_task" in plan and "Seq Scan" not in plan

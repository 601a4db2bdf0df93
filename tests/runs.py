"""Runs that have come some way, without the work."""

from collections.abc import Sequence

import psycopg

from harness.policy.lifecycle import TERMINAL, State
from tests.stage import Stage


def make_run(
    stage: Stage,
    states: Sequence[State],
    *,
    tenant: int | None = None,
    parent: int | None = None,
    cancelled_by: str = "",
) -> int:
    """A run whose tasks are as they would be only after a while, past the triggers; the n-th began n hours ago."""
    owned_by = stage.tenant if tenant is None else tenant
    with psycopg.connect(stage.url, autocommit=True) as owner:
        run = owner.execute(
            "INSERT INTO run (tenant_id, name, size) VALUES (%s, 'night', %s) RETURNING id", (owned_by, len(states))
        ).fetchone()
        assert run is not None
        with owner.transaction():
            owner.execute("ALTER TABLE task DISABLE TRIGGER USER")
            owner.execute(
                "WITH made AS ("
                "  INSERT INTO task (tenant_id, run_id, parent_id, kind, version, pool, priority, state, ready,"
                "                    first_claimed_at, finished_at)"
                "  SELECT %(tenant)s, %(run)s, %(parent)s, 'noop.single', 1, 'db', 2, state, false,"
                "         CASE WHEN state <> 'queued' THEN clock_timestamp() - make_interval(hours => n::integer) END,"
                "         CASE WHEN state = ANY(%(terminal)s) THEN clock_timestamp() END"
                "  FROM unnest(%(states)s::text[]) WITH ORDINALITY AS x(state, n) ORDER BY n RETURNING id, state)"
                "INSERT INTO task_body (task_id, tenant_id, input, title, error) "
                "SELECT id, %(tenant)s, '{}', 'task ' || id,"
                "       CASE WHEN state = 'cancelled' AND %(class)s <> '' THEN"
                "            jsonb_build_object('class', %(class)s::text)"
                "            WHEN state = 'failed_terminal' THEN jsonb_build_object('class', 'permanent', 'message',"
                "            CASE WHEN id %% 3 = 0 THEN 'odd one' ELSE 'file ' || id || ' is unreadable' END) END "
                "FROM made",
                {
                    "tenant": owned_by,
                    "run": run[0],
                    "parent": parent,
                    "class": cancelled_by,
                    "states": [str(state) for state in states],
                    "terminal": sorted(TERMINAL),
                },
            )
            owner.execute("ALTER TABLE task ENABLE TRIGGER USER")
    return int(run[0])

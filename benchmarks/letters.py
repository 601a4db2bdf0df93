"""Dead letters among a million ended tasks: how long a page, the groups and a redrive take; servers of its own.

    python -m benchmarks.letters --tasks 1000000 --dead 100000

Prints JSON: milliseconds of each look (median of ROUNDS), and of a redrive.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg

from benchmarks.embedded import embedded

ROUNDS = 5
SEED = """
ALTER TABLE task DISABLE TRIGGER USER;
INSERT INTO tenant (name) SELECT 'tenant-' || i FROM generate_series(1, 20) i;
INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready, release_no, attempts_used, created_at,
                  first_claimed_at, finished_at)
SELECT t.ids[1 + i % cardinality(t.ids)], CASE WHEN i % 3 = 0 THEN 'noop.fault' ELSE 'noop.single' END, 1,
       CASE WHEN i % 3 = 0 THEN 'tool_read' ELSE 'db' END, 2,
       CASE WHEN i % {every} = 0 THEN 'failed_terminal' ELSE 'succeeded' END, false, 1, 1,
       now() - ({n} - i) * interval '0.1 s', now(), now() - ({n} - i) * interval '0.1 s' + interval '3 s'
FROM generate_series(1, {n}) i, (SELECT array_agg(id ORDER BY id) AS ids FROM tenant) t;
INSERT INTO task_body (task_id, tenant_id, input, error)
SELECT id, tenant_id, '{{}}', CASE WHEN state = 'failed_terminal' THEN jsonb_build_object(
    'class', CASE WHEN id % 2 = 0 THEN 'server_error' ELSE 'timeout' END,
    'message', 'HTTP 503 from https://api.example.org/v1/jobs/' || id || ' after ' || id % 97 || ' s, case '
        || chr(97 + (id / {every} % 25)::integer)) END FROM task;
INSERT INTO attempt (task_id, tenant_id, release_no, started, ended, verdict, slot_s)
SELECT id, tenant_id, 1, finished_at, finished_at, 'bury', 1 FROM task WHERE state = 'failed_terminal';
INSERT INTO event (task_id, tenant_id, seq, event, to_state, actor)
SELECT id, tenant_id, s, 'submit', 'queued', 'bench' FROM task, generate_series(1, 3) s WHERE state = 'failed_terminal';
ALTER TABLE task ENABLE TRIGGER USER;
"""


def main() -> None:
    """Seed, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--dead", type=int, default=100_000)
    options = parser.parse_args()
    with embedded() as servers:
        os.environ |= {"DATABASE_URL": servers.database_url, "BROKER_URL": servers.broker_url, "SECRET_KEY": "bench"}
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        with psycopg.connect(servers.database_url, autocommit=True) as owner:
            owner.execute(SEED.format(n=options.tasks, every=max(1, options.tasks // options.dead)).encode())
            owner.execute("VACUUM ANALYZE task, task_body, attempt, event")
        print(json.dumps(_measure(servers.database_url), indent=1))


def _measure(url: str) -> dict[str, Any]:
    from django.db import connection as django_connection

    from harness.engine import letters, operate
    from harness.engine.letters import Wanted
    from harness.kinds import registry
    from harness.store.database import connect

    registry.discover("tasks")
    found: dict[str, Any] = {}
    with connect(url, "engine", application_name="bench") as connection:
        tenant = connection.execute("SELECT min(id) FROM tenant").fetchone()
        assert tenant is not None
        whose = tenant[0]
        groups = letters.groups(connection, tenant=None)
        key = groups.items[0].reason.key
        found["groups"] = len(groups.items)
        all_of = partial(letters.batches, connection, Wanted(), tenant=whose)
        looks: dict[str, Callable[[], object]] = {
            "page_of_tenant": lambda: letters.page(connection, Wanted(), tenant=whose, most=50),
            "page_of_all": lambda: letters.page(connection, Wanted(), tenant=None, most=50),
            "page_of_reason": lambda: letters.page(connection, Wanted(reason=key), tenant=None, most=50),
            "page_of_nothing": lambda: letters.page(connection, Wanted(reason="0" * 16), tenant=None, most=50),
            "groups_of_tenant": lambda: letters.groups(connection, tenant=whose),
            "groups_of_all": lambda: letters.groups(connection, tenant=None),
            "preview_of_1000": lambda: operate.forecast(connection, all_of(), tenant=whose, most=1000),
        }
        for name, look in looks.items():
            found[f"{name}_ms"] = _median_ms(look)
        began_s = time.monotonic()
        tally = operate.bulk(connection, "redrive", all_of(), tenant=whose, actor="bench", most=2000)
        found["redrive_ms_per_1000"] = round(1e6 * (time.monotonic() - began_s) / max(1, tally.done["redriven"]), 1)
        found["redriven"] = tally.done["redriven"]
    django_connection.close()
    return found


def _median_ms(look: Callable[[], object]) -> float:
    look()
    times = []
    for _ in range(ROUNDS):
        began_s = time.monotonic()
        look()
        times.append(1000 * (time.monotonic() - began_s))
    return round(statistics.median(times), 1)


if __name__ == "__main__":
    main()

"""A million tasks to look at, and how long the admin's list and a task's page take over HTTP.

    python -m benchmarks.admin --tasks 1000000        # on the database that DATABASE_URL names: make it for this alone

`script/bench ingest` has it done on a database of its own (`figures`).

Rows are inserted by the tables' owner with triggers off, so that every state is among them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import httpx
import psycopg

from benchmarks import product
from benchmarks.bench import Bench

TASKS, QUICK_TASKS = 1_000_000, 2_000
PASSWORD = "correct horse battery"  # of a login that lives in the benchmark's database
SEED = """
ALTER TABLE task DISABLE TRIGGER USER;
INSERT INTO tenant (name) SELECT 'tenant-' || i FROM generate_series(1, 20) i ON CONFLICT DO NOTHING;
INSERT INTO task (tenant_id, run_id, kind, version, pool, priority, state, ready, release_no, attempts_used,
                  created_at, first_claimed_at, finished_at)
SELECT t.ids[1 + i % cardinality(t.ids)], 0, k.kinds[1 + i % 4], 1, k.pools[1 + i % 4], i % 4, s.state,
       s.state = 'queued', CASE WHEN s.state = 'queued' THEN 0 ELSE 1 END, (s.state LIKE 'failed%%')::integer,
       now() - ({n} - i) * interval '0.1 s',
       CASE WHEN s.state <> 'queued' THEN now() - ({n} - i) * interval '0.1 s' END,
       CASE WHEN s.state IN ('succeeded', 'failed_terminal', 'cancelled')
            THEN now() - ({n} - i) * interval '0.1 s' + interval '3 s' END
FROM generate_series(1, {n}) i,
     (SELECT array_agg(id ORDER BY id) AS ids FROM tenant) t,
     (SELECT ARRAY['noop', 'llm.summarize', 'ingest.document', 'cpu.similar'] AS kinds,
             ARRAY['tool_read', 'llm', 'ingest', 'cpu'] AS pools) k,
     LATERAL (SELECT CASE WHEN i %% 50000 = 7 THEN 'failed_terminal' WHEN i %% 1000 = 3 THEN 'cancelled'
                          WHEN i %% 100 = 1 THEN 'queued' ELSE 'succeeded' END AS state) s;
ALTER TABLE task ENABLE TRIGGER USER;
INSERT INTO event (task_id, tenant_id, seq, at, event, to_state, actor)
SELECT id, tenant_id, 1, now(), 'submit', 'queued', 'bench' FROM task;
INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor)
SELECT id, tenant_id, 2, now() + interval '2 s', 'claim', 'queued', 'running', 'bench'
FROM task WHERE state <> 'queued';
INSERT INTO attempt (task_id, tenant_id, release_no, started, ended, verdict)
SELECT id, tenant_id, 1, first_claimed_at, finished_at, 'succeed' FROM task WHERE state = 'succeeded';
INSERT INTO step (task_id, tenant_id, ordinal, key, name, release_no, began_at, finished_at, result)
SELECT id, tenant_id, n, '', 'step ' || n, 1, first_claimed_at, finished_at, '"done"'
FROM task, generate_series(1, 5) n WHERE first_claimed_at IS NOT NULL AND (id %% 10 = 0 OR id > {n} - 1000);
INSERT INTO task_body (task_id, tenant_id, input) SELECT id, tenant_id, '{{}}' FROM task;
ANALYZE task, event, attempt, step, task_body;
"""


def figures(bench: Bench) -> dict[str, Any]:
    """Return the times of the admin's pages beside TASKS tasks, on a fresh database that the next arm replaces."""
    arm = replace(product.arm("harness_admin", kind="noop"), workers=())
    with bench.stage(arm) as stage:
        stage.drive("reset")
        out = stage.folder / "admin.json"
        tasks = QUICK_TASKS if bench.quick else TASKS
        stage.run([sys.executable, "-m", "benchmarks.admin", "--tasks", str(tasks), "--json", str(out)])
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    bench.table("admin", ["figure", "ms"], [[name, ms] for name, ms in found.items()])
    return {"admin_tasks": tasks, **found}


def main() -> None:
    """Seed if needed, then measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--url", help="a web process that runs on this database; without it one is started")
    parser.add_argument("--json", help="a file for the figures")
    options = parser.parse_args()
    seed(options.tasks)
    url, process = (options.url, None) if options.url else _web()
    try:
        found = measure(url)
    finally:
        if process:
            process.terminate()
            process.wait(15)
    print(json.dumps(found, indent=1))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(found, out)


def seed(tasks: int) -> None:
    """Insert the rows, unless they are there; and a login."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as owner:
        row = owner.execute("SELECT count(*) FROM (SELECT FROM task LIMIT 1) x").fetchone()
        if not row or not row[0]:
            for statement in SEED.replace("%%", "%").format(n=tasks).split(";"):
                if statement.strip():
                    owner.execute(statement.encode())
    subprocess.run(
        [sys.executable, "manage.py", "people", "add", "bench", "--group", "operator"],
        input=PASSWORD,
        text=True,
        check=False,
        capture_output=True,
    )


def measure(url: str) -> dict[str, Any]:
    """Log in and time pages, in milliseconds (median of 7, the slowest beside it)."""
    with httpx.Client(base_url=url, timeout=60, follow_redirects=True) as client:
        page = client.get("/admin/login/")
        token = page.text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
        answer = client.post(
            "/admin/login/?next=/admin/",
            data={"csrfmiddlewaretoken": token, "username": "bench", "password": PASSWORD},
            headers={"Referer": f"{url}/admin/login/"},
        )
        assert answer.url.path == "/admin/", answer.text[:2000]
        listed = client.get("/admin/store/task/").text
        link = listed.split("/admin/store/task/")
        first = next(part.split("/")[0] for part in link if part[:1].isdigit())
        older = "/admin/store/task/?before=500000"
        pages = {
            "admin_list_ms": "/admin/store/task/",
            "admin_list_deep_ms": older,
            "admin_list_rare_state_ms": "/admin/store/task/?state=failed_terminal",
            "admin_list_absent_state_ms": "/admin/store/task/?state=waiting_approval",
            "admin_list_tenant_ms": "/admin/store/task/?tenant=7",
            "admin_search_kind_ms": "/admin/store/task/?q=llm.",
            "admin_search_id_ms": f"/admin/store/task/?q={first}",
            "admin_task_ms": f"/admin/store/task/{first}/change/",
            "admin_trace_ms": "/admin/store/traceevent/",
            "admin_attempts_ms": "/admin/store/attempt/",
            "admin_index_ms": "/admin/",
        }
        found: dict[str, Any] = {}
        for name, path in pages.items():
            times = []
            for _ in range(7):
                began = time.perf_counter()
                answer = client.get(path)
                times.append((time.perf_counter() - began) * 1000)
                assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
            found[name] = round(statistics.median(times), 1)
            found[name.replace("_ms", "_worst_ms")] = round(max(times), 1)
    return found


def _web() -> tuple[str, "subprocess.Popen[bytes]"]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "config.asgi:application", "--port", str(port), "--no-access-log"]
    )
    url = f"http://127.0.0.1:{port}"
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        try:
            if httpx.get(f"{url}/health/live").status_code == 200:
                return url, process
        except httpx.TransportError:
            time.sleep(0.1)
    raise SystemExit("the web process doesn't answer")


if __name__ == "__main__":
    main()

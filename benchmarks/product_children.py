"""Families for the scenario `children`: one parent is submitted and watched to its end. See benchmarks.drive."""

import time
from typing import Any

from django.conf import settings

from benchmarks.product_client import open_connection, reset, tenant
from harness.engine import submit
from harness.engine.submit import Door, TaskRequest

__all__ = ["family", "reset"]

EVERY_S = 0.02

TIMES = """
WITH p AS (SELECT id FROM task WHERE public_id = %(task)s),
c AS (SELECT count(*) AS n, count(*) FILTER (WHERE state = 'succeeded') AS done, max(finished_at) AS last
      FROM task WHERE parent_id = (SELECT id FROM p)),
s AS (SELECT finished_at - began_at AS took FROM step WHERE task_id = (SELECT id FROM p) AND ordinal = 1),
g AS (SELECT finished_at AS at FROM step WHERE task_id = (SELECT id FROM p) AND ordinal = 2)
SELECT c.n, c.done, extract(epoch FROM s.took)::float8, extract(epoch FROM g.at - c.last)::float8, b.output
FROM c, s, g, task_body b WHERE b.task_id = (SELECT id FROM p)
"""


def family(children: int, patience_s: float) -> dict[str, Any]:
    """Submit a parent, wait for its end, and return how long its steps took, in the database's time.

    `resume_ms`: from the end of the last child to the end of the gather; `slots_most`: leases of the parent's pool,
    seen while it was parked.
    """
    door = Door(body_max_bytes=settings.HARNESS_BODY_MAX_BYTES)
    request = TaskRequest(kind="bench.parent", input={"children": children})
    with open_connection("web") as web, open_connection("engine") as engine:
        began_s = time.monotonic()
        (task,) = submit.submit(door, web, tenant(), [request], actor="bench").task_ids
        parked = slots_most = 0
        state = ""
        while state != "succeeded":
            if time.monotonic() - began_s > patience_s:
                raise RuntimeError(f"the parent of {children} is {state} after {patience_s:g} s")
            row = engine.execute(
                "SELECT state, (SELECT count(*) FROM lease WHERE pool = 'tool_read') FROM task WHERE public_id = %s",
                (task,),
            ).fetchone()
            assert row is not None
            state = row[0]
            if state == "paused":
                parked, slots_most = parked + 1, max(slots_most, row[1])
            time.sleep(EVERY_S)
        row = engine.execute(TIMES, {"task": task}).fetchone()
    assert row is not None
    n, done, spawn_s, resume_s, output = row
    return {
        "children": n,
        "succeeded": done,
        "gathered": output["succeeded"],
        "spawn_s": spawn_s,
        "resume_ms": 1000 * resume_s,
        "took_s": time.monotonic() - began_s,
        "seen_parked": parked,
        "slots_most": slots_most,
    }

"""Fills the product's waiting line and measures single ticks of the dispatcher over it. See benchmarks.drive.

The tick is the engine's own, in this process, with a real session's slots and with a `publish` that keeps the messages;
after each tick what it released is handed back, outside the measurement, so that every tick finds the same line.
"""

import os
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from benchmarks import machine, product_client, servers
from benchmarks.product_client import open_connection
from benchmarks.statistics_of_runs import quantile
from harness.engine import dispatch, submit
from harness.engine.auditor import BY_ID, Alerts, Auditor
from harness.engine.submit import Door, TaskRequest
from harness.engine.upkeep import AUDIT_BUDGET_S
from harness.policy.admission import TenantFacts
from harness.store import findings, leader, sessions, transitions
from harness.store.database import Connection
from harness.store.message import Message

KIND = "noop.sleep"  # unbundled: a tick looks at as many heads over 1,000 waiting tasks as over a million
POOL = "tool_read"
CHUNK = 5000
WARM_TICKS = 12  # PostgreSQL settles on a plan for a prepared statement after five executions

FINISH_CHUNK = 50_000
ROUNDS = 5
_FINISHED = """
WITH t AS (
    INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready, release_no, event_no, created_at,
                      finished_at, first_claimed_at)
    SELECT id, %(kind)s, 1, %(pool)s, 2, 'succeeded', false, 1, 3, now(), now(), now()
    FROM (SELECT id FROM tenant WHERE name LIKE 'flow-%%' LIMIT 100) x CROSS JOIN generate_series(1, %(number)s / 100)
    RETURNING id, tenant_id
),
b AS (
    INSERT INTO task_body (task_id, tenant_id, input) SELECT id, tenant_id, '{"name": "backlog"}' FROM t
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor)
    SELECT id, tenant_id, seq, now(), event, null, became, 'bench'
    FROM t CROSS JOIN (VALUES (1, 'submit', 'queued'), (2, 'claim', 'running'), (3, 'succeed', 'succeeded'))
        AS x(seq, event, became)
)
INSERT INTO attempt (task_id, tenant_id, release_no, started, ended, verdict, slot_s)
SELECT id, tenant_id, 1, now(), now(), 'succeed', 0.1 FROM t
"""
_WAITING_APPROVAL = """
WITH t AS (
    INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready, release_no, event_no, created_at,
                      first_claimed_at)
    SELECT id, %(kind)s, 1, %(pool)s, 2, 'waiting_approval', false, 1, 3, now(), now()
    FROM (SELECT id FROM tenant WHERE name LIKE 'flow-%%' LIMIT 100) x CROSS JOIN generate_series(1, %(number)s / 100)
    RETURNING id, tenant_id
),
b AS (
    INSERT INTO task_body (task_id, tenant_id, input) SELECT id, tenant_id, '{"name": "backlog"}' FROM t
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor)
    SELECT id, tenant_id, seq, now(), event, null, became, 'bench'
    FROM t CROSS JOIN (VALUES (1, 'submit', 'queued'), (2, 'claim', 'running'), (3, 'ask', 'waiting_approval'))
        AS x(seq, event, became)
),
a AS (
    INSERT INTO attempt (task_id, tenant_id, release_no, started, ended, verdict, slot_s)
    SELECT id, tenant_id, 1, now(), now(), 'ask', 0.1 FROM t
)
INSERT INTO approval (task_id, tenant_id, ordinal, name, prompt, choices, on_timeout, deny, asked_at, deadline)
SELECT id, tenant_id, 1, 'ask', 'Go on?', '{approved}', 'pause', 'cancel', now(), now() + interval '1 day' FROM t
"""

reset = product_client.reset


def fill(tenants: int, tasks: int) -> dict[str, float]:
    """Bring the line to `tasks` waiting tasks, spread evenly over as many tenants with one flow each."""
    door = Door(body_max_bytes=settings.HARNESS_BODY_MAX_BYTES)
    began_s, submitted = time.monotonic(), 0
    with open_connection("engine") as connection:
        connection.execute(
            "INSERT INTO tenant (name, cap, backlog_quota, top_priority) "
            "SELECT 'flow-' || n, %s, %s, 0 FROM generate_series(1, %s) n ON CONFLICT DO NOTHING",
            (product_client.UNLIMITED, product_client.UNLIMITED, tenants),
        )
        rows = connection.execute(
            "SELECT tenant.id, tenant.name, count(task.id) FROM tenant LEFT JOIN task ON tenant_id = tenant.id "
            "WHERE tenant.name LIKE 'flow-%%' GROUP BY 1, 2 ORDER BY 1 LIMIT %s",
            (tenants,),
        ).fetchall()
    with open_connection("web") as connection:
        for id_, name, there in rows:
            facts = TenantFacts(id=id_, name=name, top_priority=0, backlog_quota=product_client.UNLIMITED)
            for start in range(there, tasks // tenants, CHUNK):
                numbers = range(start, min(start + CHUNK, tasks // tenants))
                requests = [
                    TaskRequest(kind=KIND, input=product_client.payload(KIND, ("backlog", i, 0.0, 0.0)))
                    for i in numbers
                ]
                submit.submit(door, connection, facts, requests, actor="bench")
                submitted += len(requests)
    url = os.environ["DATABASE_URL"]
    with servers.maintenance(url, servers.database_name(url)) as connection:
        # As autovacuum would before long, at every size alike: else a line pays for the ticks over the one before.
        connection.execute("VACUUM (ANALYZE) task, flow, lease, lease_member")
        connection.execute("ANALYZE")
    return {"submitted": submitted, "took_s": time.monotonic() - began_s}


def finish(tasks: int) -> dict[str, float]:
    """Add so many finished tasks, each with body, attempt and three events, past the triggers; then vacuum."""
    began_s = time.monotonic()
    url = os.environ["DATABASE_URL"]
    with servers.maintenance(url, servers.database_name(url)) as owner:
        owner.execute("ALTER TABLE task DISABLE TRIGGER USER")
        for start in range(0, tasks, FINISH_CHUNK):
            owner.execute(_FINISHED, {"number": min(FINISH_CHUNK, tasks - start), "kind": KIND, "pool": POOL})
        owner.execute("ALTER TABLE task ENABLE TRIGGER USER")
        for table in ("task", "task_body", "attempt", "event"):
            owner.execute(f"VACUUM (ANALYZE) {table}")
    return {"finished": tasks, "took_s": time.monotonic() - began_s}


def ask(tasks: int) -> dict[str, float]:
    """Add so many tasks that wait for an approval, each with its question, past the triggers; then vacuum."""
    began_s = time.monotonic()
    url = os.environ["DATABASE_URL"]
    with servers.maintenance(url, servers.database_name(url)) as owner:
        owner.execute("ALTER TABLE task DISABLE TRIGGER USER")
        owner.execute(_WAITING_APPROVAL, {"number": tasks, "kind": KIND, "pool": POOL})
        owner.execute("ALTER TABLE task ENABLE TRIGGER USER")
        for table in ("task", "task_body", "attempt", "event", "approval"):
            owner.execute(f"VACUUM (ANALYZE) {table}")
    return {"asked": tasks, "took_s": time.monotonic() - began_s}


def audit() -> dict[str, dict[str, float]]:
    """Look at everything once, by every look; return statements, milliseconds and buffers, and what a round takes."""
    topology = settings.HARNESS_TOPOLOGY
    looked: dict[str, dict[str, float]] = {}
    with open_connection("engine") as connection:
        backend = connection.info.backend_pid

        def measure(look: str, step: Callable[[Any], Any]) -> None:
            """Call `step` with what it returned, from None until it returns None again; after one warm call."""
            step(None)
            before, mark, began_cpu_s = _buffers(connection), None, machine.cpu_s({backend})
            times_ms: list[float] = []
            while not times_ms or mark is not None:
                began_s = time.perf_counter()
                mark = step(mark)
                times_ms.append(1000 * (time.perf_counter() - began_s))
            looked[look] = {
                "statements": len(times_ms),
                "ms": round(sum(times_ms), 1),
                "most_ms": round(max(times_ms), 1),
                "cpu_ms": round(1000 * (machine.cpu_s({backend}) - began_cpu_s)),
                "buffers": _buffers(connection) - before,
            }

        for look in sorted(BY_ID):
            measure(look, lambda mark, look=look: findings.by_id(connection, look, after=mark or 0).following)  # type: ignore[misc]
        measure("flows", lambda mark: _other(findings.missing_flows(connection, key=mark).following, mark))
        measure("caps", lambda mark: _over(findings.over_caps(connection, topology)))
        measure("charges", lambda mark: _over(findings.charges(connection, bundle_most=100)))
        measure("usage", lambda mark: _over(findings.usage(connection)))
        measure("transactions", lambda mark: _over(findings.transactions(connection)))
        measure("dead_rows", lambda mark: _over(findings.dead_rows(connection, least=50_000)))
        auditor = Auditor(topology=topology, alerts=Alerts())
        times_ms: list[float] = []
        for _ in range(ROUNDS):
            began_s = time.perf_counter()
            suspected = auditor.look(connection, now_s=0.0, budget_s=AUDIT_BUDGET_S)
            times_ms.append(1000 * (time.perf_counter() - began_s))
        looked["a round"] = {
            "statements": round(sum(cost.statements for cost in auditor.costs.values()) / ROUNDS),
            "ms": round(statistics.median(times_ms), 1),
            "most_ms": round(max(times_ms), 1),
            "suspected": suspected,
        }
    return looked


def _other(following: Any, mark: Any) -> Any:
    return None if following == mark else following


def _over(looked: object) -> None:
    """Say that a look takes one call."""


def ticks(number: int) -> dict[str, float]:
    """Run `number` ticks for their time and as many again for their buffers; return medians and the 95th percentile."""
    with open_connection("engine") as connection, _slots(connection) as slots:
        epoch = leader.take(connection, "bench")
        assert epoch is not None
        memory = dispatch.begin(connection, epoch=epoch)
        times_ms, buffers, released = [], [], []
        cpu_s = 0.0
        for turn in range(WARM_TICKS + 2 * number):
            if turn == WARM_TICKS:
                cpu_s = -_used(connection)
            elif turn == WARM_TICKS + number:
                cpu_s += _used(connection)
            leader.renew(connection, epoch)
            counting = turn >= WARM_TICKS + number
            published: list[Message] = []
            before = _buffers(connection) if counting else 0
            began_s = time.perf_counter()
            dispatch.tick(connection, settings.HARNESS_TOPOLOGY, memory, epoch=epoch, publish=published.extend)
            took_s = time.perf_counter() - began_s
            if counting:
                buffers.append(_buffers(connection) - before)
            elif turn >= WARM_TICKS:
                times_ms.append(1000 * took_s)
                released.append(len(published))
            transitions.hand_back_unclaimed(connection, older_than_s=0, leases=[one.lease for one in published])
        leader.resign(connection, epoch)
    return {
        "tick_ms": round(statistics.median(times_ms), 2),
        "tick_p95_ms": round(quantile(times_ms, 0.95), 2),
        "tick_cpu_ms": round(1000 * cpu_s / number, 2),  # here and in the server; with what takes it back
        "buffers": statistics.median(buffers),
        "released": statistics.median(released),
        "slots": slots,
    }


@contextmanager
def _slots(connection: Connection) -> Iterator[int]:
    """Register a session with one worker's slots, alive for as long as the ticks may take."""
    session, slots = uuid.uuid4(), settings.HARNESS_TOPOLOGY.pool(POOL).slots
    sessions.register(
        connection,
        session=session,
        host="bench",
        pid=os.getpid(),
        pools={POOL: slots},
        kinds=[f"{KIND}@1"],
        connections=1,
        budget=settings.HARNESS_TOPOLOGY.database_connections,
    )
    connection.execute(
        "UPDATE worker_session SET beat_at = clock_timestamp() + interval '1 hour' WHERE uuid = %s", (session,)
    )
    yield slots
    sessions.end(connection, session)


def _used(connection: Connection) -> float:
    """Return the CPU-seconds of this process and of the connection's server process (none, where it runs elsewhere)."""
    return time.process_time() + machine.cpu_s({connection.info.backend_pid})


def _buffers(connection: Connection) -> int:
    """Return the buffers that this database's finished statements have touched so far (hit or read)."""
    connection.execute("SELECT pg_stat_force_next_flush()")
    row = connection.execute(
        "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
    ).fetchone()
    return int(row[0]) if row else 0

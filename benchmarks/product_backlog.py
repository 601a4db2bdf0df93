"""Fills the product's waiting line and measures single ticks of the dispatcher over it. See benchmarks.drive.

The tick is the engine's own, in this process, with a real session's slots and with a `publish` that keeps the messages;
after each tick what it released is handed back, outside the measurement, so that every tick finds the same line.
"""

import os
import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from benchmarks import product_client, servers
from benchmarks.product_client import open_connection
from benchmarks.statistics_of_runs import quantile
from harness.engine import dispatch, submit
from harness.engine.submit import Door, TaskRequest
from harness.policy.admission import TenantFacts
from harness.store import leader, sessions, transitions
from harness.store.database import Connection
from harness.store.message import Message

KIND = "noop.sleep"  # unbundled: a tick looks at as many heads over 1,000 waiting tasks as over a million
POOL = "tool_read"
CHUNK = 5000
WARM_TICKS = 12  # PostgreSQL settles on a plan for a prepared statement after five executions

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
        connection.execute("VACUUM (ANALYZE) task")  # as autovacuum would before long, at every size alike
        connection.execute("ANALYZE")
    return {"submitted": submitted, "took_s": time.monotonic() - began_s}


def ticks(number: int) -> dict[str, float]:
    """Run `number` ticks for their time and as many again for their buffers; return medians and the 95th percentile."""
    with open_connection("engine") as connection, _slots(connection) as slots:
        epoch = leader.take(connection, "bench")
        assert epoch is not None
        memory = dispatch.begin(connection)
        times_ms, buffers, released = [], [], []
        for turn in range(WARM_TICKS + 2 * number):
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


def _buffers(connection: Connection) -> int:
    """Return the buffers that this database's finished statements have touched so far (hit or read)."""
    connection.execute("SELECT pg_stat_force_next_flush()")
    row = connection.execute(
        "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
    ).fetchone()
    return int(row[0]) if row else 0

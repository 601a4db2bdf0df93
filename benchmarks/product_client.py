"""The product's side of an arm: a fresh database, tasks in bulk through the engine, cancels. See benchmarks.drive.

Runs in a process of its own. HARNESS_BENCH_KIND names the kind; HARNESS_BENCH_LOG's parent names the run, so that
the schema is migrated once a run and copied for each measurement.
"""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import django

django.setup()

from django.conf import settings  # noqa: E402  (settings and registry come first)
from django.core.management import call_command  # noqa: E402
from psycopg import sql  # noqa: E402

from benchmarks import bare, effects, servers  # noqa: E402
from benchmarks.submission import Item, Submitter  # noqa: E402
from harness.engine import operate, submit  # noqa: E402
from harness.engine.doorway import Doorway, Prediction  # noqa: E402
from harness.engine.submit import Door, TaskRequest  # noqa: E402
from harness.kinds import registry  # noqa: E402
from harness.policy.admission import TenantFacts, Wanted  # noqa: E402
from harness.policy.errors import Conflict  # noqa: E402
from harness.policy.pressure import Level  # noqa: E402
from harness.store import keys  # noqa: E402
from harness.store.database import Connection, Role, connect  # noqa: E402
from harness.store.transitions import NewTask  # noqa: E402

TENANT = "bench"
UNLIMITED = 2_000_000_000  # of a tenant's caps: the queue is measured, not the quota

registry.discover(*settings.HARNESS_TASK_PACKAGES)


def reset() -> None:
    """Empty the broker and give the product a fresh, migrated database with one tenant."""
    url = os.environ["DATABASE_URL"]
    servers.flush_broker(os.environ["BROKER_URL"])
    clean = f"{servers.database_name(url)}_clean"
    if _comment(url, clean) != _run_name():
        servers.recreate_database(url)
        call_command("migrate", verbosity=0)
        keys.create_tenant(TENANT, cap=UNLIMITED, backlog_quota=UNLIMITED, top_priority=0)
        django.db.connections.close_all()
        # Roles carry the name of the database they were made for, so the copy has to get that name, not the original.
        servers.rename_database(url, clean)
        with servers.maintenance(url) as connection:
            connection.execute(
                sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(clean), sql.Literal(_run_name()))
            )
    servers.recreate_database(url, template=clean)
    if bare.asked():
        bare.disable_triggers(url)


def _run_name() -> str:
    return str(Path(os.environ[effects.FOLDER_VARIABLE]).parents[1])


def _comment(url: str, database: str) -> str | None:
    with servers.maintenance(url) as connection:
        row = connection.execute(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s", (database,)
        ).fetchone()
    return row[0] if row else None


class _Harness(Submitter):
    """A client in the engine's process: the same door as the web's, without HTTP."""

    def __init__(self, kind_name: str) -> None:
        self._kind_name = kind_name
        self._connection = open_connection("web")
        self._tenant = tenant()
        self._door = Door(body_max_bytes=settings.HARNESS_BODY_MAX_BYTES)

    def one(self, item: Item) -> None:
        self.many([item])

    def many(self, items: Sequence[Item]) -> None:
        requests = [TaskRequest(kind=self._kind_name, input=payload(self._kind_name, item)) for item in items]
        submit.submit(self._door, self._connection, self._tenant, requests, actor="bench")

    def close(self) -> None:
        self._connection.close()


def submitter() -> Submitter:
    """Return an open client."""
    return _Harness(os.environ["HARNESS_BENCH_KIND"])


def payload(kind_name: str, item: Item) -> dict[str, Any]:
    """Return the kind's input for the arguments of effects.body."""
    tag, i, submitted_s, duration_s = item
    mark: dict[str, Any] = {"tag": tag, "i": i, "ts": submitted_s}
    return mark if kind_name in ("noop", "noop.single") else mark | {"sleep_s": duration_s}


def tenant() -> TenantFacts:
    """Return the benchmark's tenant, as the door sees it."""
    with open_connection("engine") as connection:
        row = connection.execute(
            "SELECT id, name, top_priority, backlog_quota FROM tenant WHERE name = %s", (TENANT,)
        ).fetchone()
    assert row is not None
    return TenantFacts(id=row[0], name=row[1], top_priority=row[2], backlog_quota=row[3])


def open_connection(role: Role) -> Connection:
    """Open a connection as one of the product's processes would."""
    return connect(os.environ["DATABASE_URL"], role, application_name="bench")


def slots_of(pools: Sequence[str]) -> dict[str, int]:
    """Return the slots of one worker process of each pool, as resources.toml says."""
    return {pool: settings.HARNESS_TOPOLOGY.pool(pool).slots for pool in pools}


def submit_to(numbers: dict[str, int], tag: str, duration_s: float) -> dict[str, Any]:
    """Submit that many waiting tasks to each pool, tagged TAG-POOL, one call a pool."""
    for pool, n in numbers.items():
        client = _Harness(f"bench.wait.{pool}")
        client.many([(f"{tag}-{pool}", i, 0.0, duration_s) for i in range(n)])
        client.close()
    return {}


def cancel_waiting(tags: Sequence[str]) -> dict[str, list[int]]:
    """Cancel every task of these tags that doesn't run yet; return by tag the numbers of those that are cancelled."""
    done: dict[str, list[int]] = {tag: [] for tag in tags}
    with open_connection("engine") as connection:
        rows = connection.execute(
            "SELECT public_id, input ->> 'tag', (input ->> 'i')::int FROM task JOIN task_body ON task_id = task.id "
            "WHERE state = 'queued' AND input ->> 'tag' = ANY(%s) ORDER BY task.id",
            (list(tags),),
        ).fetchall()
        for task, tag, i in rows:
            with contextlib.suppress(Conflict):  # it has ended meanwhile
                if operate.cancel(connection, task, tenant=None, actor="bench").outcome == "cancelled":
                    done[tag].append(i)
    return done


def age_sessions(by_s: float) -> dict[str, int]:
    """Let the beats of all worker sessions be older than they are: passes the time until a killed one is dead."""
    with open_connection("engine") as connection:
        aged = connection.execute(
            "UPDATE worker_session SET beat_at = beat_at - make_interval(secs => %s) WHERE ended_at IS NULL", (by_s,)
        )
    return {"sessions": aged.rowcount}


def age_sessions_of(pids: Sequence[int], by_s: float) -> dict[str, int]:
    """The same for the sessions of these processes alone."""
    with open_connection("engine") as connection:
        aged = connection.execute(
            "UPDATE worker_session SET beat_at = beat_at - make_interval(secs => %s) "
            "WHERE ended_at IS NULL AND pid = ANY(%s)",
            (by_s, list(pids)),
        )
    return {"sessions": aged.rowcount}


def step_times(tags: Sequence[str]) -> dict[str, list[float]]:
    """Return what each step of the tasks of these tags took, in milliseconds, as `bench.stepping` says.

    A task writes its line of the effect log just before it settles: those that have not are waited for.
    """
    with open_connection("engine") as connection:
        while True:
            rows = connection.execute(
                "SELECT output -> 'ms' FROM task_body WHERE input ->> 'tag' = ANY(%s)", (list(tags),)
            ).fetchall()
            if all(row[0] is not None for row in rows):
                return {"ms": [ms for row in rows for ms in row[0]]}
            time.sleep(0.05)


def spent() -> dict[str, int]:
    """Return what all tasks together have paid: attempts, lost starts; and how often one was handed back."""
    with open_connection("engine") as connection:
        row = connection.execute(
            "SELECT (SELECT sum(attempts_used) FROM task), (SELECT sum(lost_starts) FROM task), "
            "(SELECT count(*) FROM attempt WHERE verdict = 'interrupt')"
        ).fetchone()
    assert row is not None
    return dict(zip(("attempts_spent", "starts_lost", "interrupted"), map(int, row), strict=True))


def bulk(n: int, calls: int) -> dict[str, Any]:
    """Submit n no-ops in one call of the engine, several times. Returns tasks/s of each call, and what is there now."""
    door, facts, per_s = Door(body_max_bytes=settings.HARNESS_BODY_MAX_BYTES), tenant(), []
    with open_connection("web") as connection:
        submit.submit(door, connection, facts, [TaskRequest(kind="noop", input={"tag": "warm"})], actor="bench")
        for call in range(calls):
            requests = [TaskRequest(kind="noop", input=payload("noop", (f"bulk{call}", i, 0.0, 0.0))) for i in range(n)]
            began_s = time.perf_counter()
            submit.submit(door, connection, facts, requests, actor="bench")
            per_s.append(n / (time.perf_counter() - began_s))
    return {"per_s": per_s} | counts()


def admission(n: int) -> dict[str, list[float]]:
    """Submit n times a single no-op through three doors in turn; return the milliseconds of each.

    `blind` predicts nothing, `usual` as the product's does, `looking` reads all that it knows anew each time (the
    product's does that at its start, and a part of it once a second).
    """
    facts, took_ms = tenant(), {name: list[float]() for name in ("blind", "usual", "looking")}
    ways = {"blind": _Blind(), "usual": Doorway(), "looking": Doorway()}
    doors = {name: Door(body_max_bytes=settings.HARNESS_BODY_MAX_BYTES, way=way) for name, way in ways.items()}
    with open_connection("web") as connection:
        for i in range(n + 1):
            doors["looking"] = replace(doors["looking"], way=Doorway())
            for name, door in doors.items():
                began_s = time.perf_counter()
                submit.submit(door, connection, facts, [TaskRequest(kind="noop", input={"tag": "door"})], actor="bench")
                if i:  # the first of each prepares its statements
                    took_ms[name].append(1000 * (time.perf_counter() - began_s))
    return took_ms


class _Blind(Doorway):
    """A door that knows of no waits, and asks nobody."""

    def predict(
        self, connection: Connection, tenant: int, tasks: Sequence[NewTask], *, now: datetime, now_s: float
    ) -> Prediction:
        wanted = [Wanted(priority=task.priority) for task in tasks]
        return Prediction(level=Level.NORMAL, wanted=wanted, of=range(len(tasks)))


def counts() -> dict[str, int]:
    """Return how many tasks, payloads and trace events the database holds."""
    with open_connection("engine") as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM task), (SELECT count(*) FROM task_body), (SELECT count(*) FROM event)"
        ).fetchone()
    assert row is not None
    return dict(zip(("tasks", "bodies", "events"), row, strict=True))


def make_key() -> dict[str, str]:
    """Make an API key for the benchmark's tenant."""
    return {"key": keys.create_key(TENANT)}

"""Reads what a run leaves in the database: leases many times a second while it goes on, everything else at its end.

Plain SQL as the tables' owner, on connections of its own; Harness's own queries aren't believed.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, Self

import psycopg

from benchmarks.chaos.history import LeaseSeen, LevelChange, Question, Sample, TaskRow, TraceEvent
from harness.policy.pressure.signals import Level

EVERY_S = 0.15
LINGER_S = 2.0  # the planner may have counted a session that ended while it planned
_SAMPLE = """
WITH waiting AS (
  SELECT id FROM task WHERE state = 'paused' OR state = 'waiting_approval'
  AND EXISTS (SELECT FROM approval a WHERE a.task_id = task.id AND a.open)
)
SELECT extract(epoch FROM clock_timestamp())::double precision,
  (SELECT coalesce(jsonb_object_agg(key, n), '{}') FROM (
     SELECT pool.key, sum(pool.value::integer) AS n
     FROM worker_session s CROSS JOIN LATERAL jsonb_each_text(s.pools) AS pool(key, value)
     WHERE coalesce(s.ended_at, 'infinity') > clock_timestamp() - make_interval(secs => %(linger_s)s)
     GROUP BY pool.key) x),
  (SELECT coalesce(jsonb_agg(jsonb_build_array(l.id, l.pool, l.via, tenant.name, l.run_id, l.signature, l.pid,
     l.claimed_at IS NOT NULL, ARRAY(SELECT task_id FROM lease_member m WHERE m.lease_id = l.id))), '[]')
   FROM lease l JOIN tenant ON tenant.id = l.tenant_id),
  ARRAY(SELECT key FROM pause WHERE scope = 'pool_priority' AND source = 'pressure' AND resumed_at IS NULL
        ORDER BY key),
  (SELECT count(*) FROM waiting), ARRAY(SELECT m.task_id FROM lease_member m JOIN waiting ON waiting.id = m.task_id)
"""
_TASKS = """
SELECT t.id, t.public_id::text, tenant.name, t.kind, t.pool, t.priority, coalesce((b.input ->> 'i')::bigint, -1),
       coalesce((b.input ->> 'effects')::integer, 0), t.state, t.event_no, t.holds,
       extract(epoch FROM t.not_before - clock_timestamp())::double precision,
       EXISTS (SELECT FROM lease_member m WHERE m.task_id = t.id), t.parent_id,
       coalesce((b.input ->> 'children')::integer, 0), coalesce((b.input ->> 'families')::integer, 0)
FROM task t JOIN tenant ON tenant.id = t.tenant_id JOIN task_body b ON b.task_id = t.id ORDER BY t.id
"""
_TRACE = """
SELECT task_id, seq, extract(epoch FROM at)::double precision, event, from_state, to_state,
       (data ->> 'ordinal')::integer, coalesce(data ->> 'step', data ->> 'choice')
FROM event ORDER BY task_id, seq
"""


class Sampler:
    """Samples leases on a thread of its own while the block runs; a database that is away is waited for.

    `error`: what ended it before its time.
    """

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self.samples: list[Sample] = []
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take no more samples."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._sample()
        except Exception as error:  # noqa: BLE001  # told with the run's report, which fails by it
            self.error = error

    def _sample(self) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as connection:
                    while not self._stop.wait(EVERY_S):
                        self.samples.append(sample(connection))
            except psycopg.Error:
                self._stop.wait(EVERY_S)


def sample(connection: psycopg.Connection[Any]) -> Sample:
    """Return all leases and the slots there are, in one snapshot."""
    row = connection.execute(_SAMPLE, {"linger_s": LINGER_S}).fetchone()
    assert row is not None
    return Sample(
        at_s=row[0],
        slots=row[1],
        leases=tuple(_lease(*values) for values in row[2]),
        paused=tuple(row[3]),
        waiting=row[4],
        leased_waiting=tuple(row[5]),
    )


def _lease(
    id: int,
    pool: str,
    via: str | None,
    tenant: str,
    run: int,
    signature: str,
    pid: int | None,
    claimed: bool,
    tasks: list[int],
) -> LeaseSeen:
    return LeaseSeen(
        id=id,
        pool=pool,
        via=via,
        tenant=tenant,
        run=run,
        signature=signature,
        pid=pid,
        claimed=claimed,
        tasks=tuple(tasks),
    )


def connect(database_url: str, patience_s: float = 30.0) -> psycopg.Connection[Any]:
    """Open a connection in autocommit; wait for a database that is just starting."""
    until_s = time.monotonic() + patience_s
    while True:
        try:
            return psycopg.connect(database_url, autocommit=True, connect_timeout=5)
        except psycopg.OperationalError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.2)


def unfinished(connection: psycopg.Connection[Any]) -> int:
    """Return how many tasks have not ended, apart from those that people hold and those due in a year or later.

    A parent that is parked for its children isn't held by people: it goes on when they have ended.
    """
    return _count(
        connection,
        "SELECT count(*) FROM task WHERE finished_at IS NULL "
        "AND NOT (state = 'paused' AND holds <> '{}' AND holds <> '{children}') "
        "AND coalesce(not_before, now()) < now() + interval '1 year'",
    )


def leases_left(connection: psycopg.Connection[Any]) -> int:
    """Return how many rows of lease and lease_member there are."""
    return _count(connection, "SELECT (SELECT count(*) FROM lease) + (SELECT count(*) FROM lease_member)")


def _count(connection: psycopg.Connection[Any], statement: str) -> int:
    row = connection.execute(statement).fetchone()
    return int(row[0]) if row else 0


def tasks(connection: psycopg.Connection[Any]) -> tuple[TaskRow, ...]:
    """Return every task as it stands."""
    return tuple(
        TaskRow(
            id=row[0],
            task=row[1],
            tenant=row[2],
            kind=row[3],
            pool=row[4],
            priority=row[5],
            i=row[6],
            effects=row[7],
            state=row[8],
            event_no=row[9],
            holds=tuple(row[10]),
            due_in_s=row[11],
            leased=row[12],
            parent=row[13],
            children=row[14],
            families=row[15],
        )
        for row in connection.execute(_TASKS)
    )


def trace(connection: psycopg.Connection[Any]) -> tuple[TraceEvent, ...]:
    """Return the whole trace, by task and number."""
    return tuple(
        TraceEvent(
            id=row[0], seq=row[1], at_s=row[2], event=row[3], source=row[4], target=row[5], step=row[6], detail=row[7]
        )
        for row in connection.execute(_TRACE)
    )


def questions(connection: psycopg.Connection[Any]) -> tuple[Question, ...]:
    """Return every question as it stands. `id`: of its task."""
    rows = connection.execute(
        "SELECT task_id, name, choices, deny, asks, open, verdict, choice FROM approval ORDER BY task_id, ordinal"
    )
    return tuple(
        Question(
            id=row[0],
            name=row[1],
            choices=tuple(row[2]),
            deny=row[3],
            asks=row[4],
            open=row[5],
            verdict=row[6],
            choice=row[7],
        )
        for row in rows
    )


def levels(connection: psycopg.Connection[Any]) -> tuple[LevelChange, ...]:
    """Return the changes of the level of pressure, in order, with the signals that asked for each."""
    rows = connection.execute(
        "SELECT extract(epoch FROM at)::double precision, before, after, signals, done FROM level_change ORDER BY id"
    )
    return tuple(
        LevelChange(
            at_s=row[0],
            before=Level(row[1]).word,
            after=Level(row[2]).word,
            why="; ".join([*(f"{name} {one['value']}" for name, one in row[3].items()), *filter(None, (row[4],))]),
        )
        for row in rows
    )


def audit_faults(connection: psycopg.Connection[Any]) -> list[str]:
    """Return every fault that the auditor has written down, also those that it has repaired."""
    rows = connection.execute("SELECT rule, subject, how FROM audit_finding WHERE level = 'fault' ORDER BY id")
    return [f"{row[0]}: {row[1]} ({row[2] or 'open'})" for row in rows]


def errors(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """Return how many attempts ended with an error, by kind, class, and the beginning of one message of each."""
    rows = connection.execute(
        "SELECT task.kind, error_class, min(left(message, 80)), count(*) FROM attempt JOIN task ON task.id = task_id "
        "WHERE error_class IS NOT NULL GROUP BY 1, 2 ORDER BY 4 DESC"
    )
    return {f"{row[0]}, {row[1]}: {row[2]}": row[3] for row in rows}


def run_caps(connection: psycopg.Connection[Any]) -> Mapping[int, int]:
    """Return the fan-out cap of each run that has one."""
    rows = connection.execute("SELECT id, fanout_cap FROM run WHERE fanout_cap IS NOT NULL")
    return {row[0]: row[1] for row in rows}

"""Beside the line: retention by itself, in small batches; days of the trace dropped while others write it."""

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from django.conf import settings

from harness.engine import housekeeping, upkeep
from harness.engine.auditor import Alerts
from harness.engine.upkeep import Upkeep
from harness.policy.errors import Invalid
from harness.store import housekeeping as stored
from harness.store.broker import Broker
from tests.stage import Stage, wait_until

OLD_DAY = "event_20200101"


def old_day(stage: Stage, tasks: list[int], day: str = "2020-01-01") -> str:
    """A day of the trace long ago, with events of these tasks and of one that is gone."""
    name = f"event_{day.replace('-', '')}"
    following = (datetime.fromisoformat(day) + timedelta(days=1)).date()
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute(f"CREATE TABLE {name} PARTITION OF event FOR VALUES FROM ('{day}Z') TO ('{following}Z')")
        owner.execute(
            "INSERT INTO event (task_id, tenant_id, seq, at, event, to_state, actor) "
            f"SELECT unnest(%s::bigint[]), 1, 0, '{day} 12:00Z', 'old', 'queued', 'test'",
            ([*tasks, 10**12],),
        )
    return name


def ended_long_ago(stage: Stage, n: int) -> list[int]:
    tasks = stage.submit(n=n)
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("ALTER TABLE task DISABLE TRIGGER USER")
        owner.execute(
            "UPDATE task SET state = 'succeeded', ready = false, created_at = now() - interval '50 days', "
            "finished_at = now() - interval '40 days' WHERE id = ANY(%s)",
            (tasks,),
        )
        owner.execute("ALTER TABLE task ENABLE TRIGGER USER")
    return tasks


def exists(stage: Stage, table: str) -> bool:
    return stage.one("SELECT to_regclass(%s)::text", table) is not None


def test_retention_by_itself_removes_a_bounded_part_and_says_that_more_is_left(stage: Stage) -> None:
    ended_long_ago(stage, 3 * housekeeping.RETAIN_ROWS)
    (young,) = stage.submit()
    rests: list[float] = []

    def rest(seconds: float) -> bool:
        rests.append(seconds)
        return False

    with stored.as_owner(stage.url, application_name="test") as owner:
        first = housekeeping.retain_some(owner, keep_days=30, most_s=0.0, rest=rest)
        assert first.more and first.rows["task"] == first.rows["event"] == housekeeping.RETAIN_ROWS
        second = housekeeping.retain_some(owner, keep_days=30, most_s=60, rest=rest)
        assert not second.more and second.rows["task"] == 2 * housekeeping.RETAIN_ROWS
        assert housekeeping.retain_some(owner, keep_days=30, most_s=60, rest=rest).rows == {}
        with pytest.raises(Invalid, match="HARNESS_KEEP_DAYS"):
            housekeeping.retain_some(owner, keep_days=0.5, most_s=60, rest=rest)
    assert len(rests) >= 3 and all(seconds > 0 for seconds in rests)
    assert stage.one("SELECT array_agg(id) FROM task") == [young]
    assert stage.one("SELECT count(*) FROM task_body") == 1


def test_retention_by_itself_stops_when_it_is_told_to(stage: Stage) -> None:
    ended_long_ago(stage, 2 * housekeeping.RETAIN_ROWS)
    with stored.as_owner(stage.url, application_name="test") as owner:
        done = housekeeping.retain_some(owner, keep_days=30, most_s=60, rest=lambda seconds: True)
    assert done.more and stage.one("SELECT count(*) FROM task") == housekeeping.RETAIN_ROWS


def test_a_day_of_the_trace_is_not_dropped_while_somebody_reads_it_but_at_the_next_time(stage: Stage) -> None:
    (waiting,) = stage.submit()
    name = old_day(stage, [waiting])
    with stored.as_owner(stage.url, application_name="test", lock_timeout=stored.LOCK_TIMEOUT_BESIDE) as owner:
        with stage.open() as reader, reader.transaction():
            reader.execute("SELECT count(*) FROM event")
            began_s = time.monotonic()
            done = housekeeping.retain_some(owner, keep_days=30, most_s=60, rest=lambda seconds: False)
            assert done.more and done.days == [] and exists(stage, name)
            assert time.monotonic() - began_s < 5
        done = housekeeping.retain_some(owner, keep_days=30, most_s=60, rest=lambda seconds: False)
    assert done.days == [name] and not done.more and not exists(stage, name)
    assert stage.events(waiting) == ["old", "submit"]
    assert stage.one("SELECT count(*) FROM event WHERE task_id = %s", 10**12) == 0


def test_who_writes_the_trace_hardly_waits_while_days_are_dropped(stage: Stage) -> None:
    """Also while a reader is in the way: then the drop gives up, and nobody queues behind it for longer."""
    for day in range(1, 6):
        old_day(stage, [], f"2020-01-0{day}")
    waits: list[float] = []
    over = threading.Event()

    def write() -> None:
        with stage.open() as connection:
            while not over.is_set():
                began_s = time.monotonic()
                connection.execute(
                    "INSERT INTO event (task_id, tenant_id, seq, event, to_state, actor) "
                    "VALUES (1, 1, 1, 'test', 'queued', 'test')"
                )
                waits.append(time.monotonic() - began_s)

    writer = threading.Thread(target=write)
    writer.start()
    with stored.as_owner(stage.url, application_name="test", lock_timeout=stored.LOCK_TIMEOUT_BESIDE) as owner:
        with stage.open() as reader, reader.transaction():
            reader.execute("SELECT count(*) FROM event")
            housekeeping.retain_some(owner, keep_days=30, most_s=60, rest=lambda seconds: False)
        done = housekeeping.retain_some(owner, keep_days=30, most_s=60, rest=over.wait)
    over.set()
    writer.join()
    assert len(done.days) == 5
    assert len(waits) > 20 and max(waits) < 1.0, max(waits)  # 0.1 s of lock_timeout, and what a busy machine adds


def test_a_day_of_which_too_much_is_still_needed_is_left_and_does_not_stop_the_others(stage: Stage) -> None:
    tasks = stage.submit(n=30)
    first = old_day(stage, tasks, "2020-01-01")
    second = old_day(stage, tasks[:2], "2020-01-02")
    with psycopg.connect(stage.url, autocommit=True) as owner:
        before = datetime.now(UTC) - timedelta(days=30)
        dropped = [owner.execute("SELECT harness_drop_event_day(%s, 10)", (before,)).fetchone() for _ in range(2)]
    assert dropped == [(second,), (None,)]
    assert exists(stage, first) and not exists(stage, second)
    assert stage.events(tasks[0]) == ["old", "old", "submit"]
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute(f"DROP TABLE {first}")


def test_the_upkeep_audits_repairs_tidies_and_retains_by_itself_until_it_is_told_to_stop(stage: Stage) -> None:
    old = ended_long_ago(stage, 3)
    name = old_day(stage, old)
    (stranded,) = stage.submit()
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("UPDATE task SET ready = false WHERE id = %s", (stranded,))
        owner.execute(f"DROP TABLE {days_ahead(owner)[-1]}")
        today = len(days_ahead(owner))
    over = threading.Event()
    thread = threading.Thread(
        target=upkeep.run,
        args=(Upkeep(audit_every_s=0.5, alerts=Alerts(), keep_days=30),),
        kwargs={"url": stage.url, "topology": settings.HARNESS_TOPOLOGY, "connect": stage.open, "over": over},
    )
    thread.start()
    try:
        wait_until(lambda: stage.row(stranded)["ready"], within_s=30)
        wait_until(lambda: not exists(stage, name), within_s=30)
        wait_until(lambda: stage.one("SELECT count(*) FROM task WHERE id = ANY(%s)", old) == 0, within_s=30)
    finally:
        over.set()
        thread.join(timeout=10)
    assert not thread.is_alive()
    assert stage.events(stranded) == ["submit", "ripen"]
    with psycopg.connect(stage.url, autocommit=True) as owner:
        assert len(days_ahead(owner)) == today + 1  # made again
    assert stage.connection.execute("SELECT rule, repaired_at IS NOT NULL FROM audit_finding").fetchall() == [
        ("stranded", True)
    ]


def days_ahead(owner: psycopg.Connection) -> list[str]:
    rows = owner.execute(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = 'event'::regclass AND c.relname > to_char(now(), '\"event_\"YYYYMMDD') "
        "AND c.relname ~ '[0-9]$' ORDER BY 1"
    ).fetchall()
    return [str(row[0]) for row in rows]


def test_the_broker_tells_how_many_messages_wait_and_none_where_no_queue_is(broker_url: str) -> None:
    from harness.store.message import Message

    broker = Broker(broker_url)
    try:
        assert broker.depths(["db.p2", "llm.p0"]) == {"db.p2": 0, "llm.p0": 0}
        broker.publish([Message(queue="db.p2", kind="noop", lease=n, token=n, time_limits_s=None) for n in range(1, 6)])
        assert broker.depths(["db.p2", "llm.p0"]) == {"db.p2": 5, "llm.p0": 0}
    finally:
        broker.close()


def test_the_howto_names_every_rule(root: Path) -> None:
    from harness.engine.audit import RULES

    text = (root / "docs/howto/audit.md").read_text(encoding="utf-8")
    assert [name for name in RULES if f"`{name}`" not in text] == []


def test_a_wrong_clock_of_this_machine_removes_nothing_that_is_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: object = None) -> "Ahead":
            return cls(2099, 1, 1, tzinfo=UTC)

    (task,) = ended_long_ago(stage, 1)
    for module in (housekeeping, stored):
        monkeypatch.setattr(module, "datetime", Ahead)
    with stored.as_owner(stage.url, application_name="test") as owner:
        assert housekeeping.retain_some(owner, keep_days=90, most_s=60, rest=lambda seconds: False).rows == {}
        assert stage.one("SELECT count(*) FROM task WHERE id = %s", task) == 1
        housekeeping.retain_some(owner, keep_days=30, most_s=60, rest=lambda seconds: False)
        assert stage.one("SELECT count(*) FROM task WHERE id = %s", task) == 0

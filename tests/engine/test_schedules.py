"""Schedules fire each moment once, whoever looks, and stop when they no longer fit. Time is passed, not slept."""

import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from harness.engine import schedules, sweep
from harness.engine.schedules import Firing, ScheduleRequest, fire_due
from harness.kinds import registry
from harness.policy.admission import Forbidden, OverQuota, TenantFacts
from harness.policy.errors import Conflict, Invalid, NotFound
from harness.policy.money import budget
from harness.policy.schedule import CATCH_UP_MAX
from harness.store import money, queries
from harness.store import schedules as rows
from harness.store.database import Connection
from harness.store.schedules import ScheduleView
from tests.stage import Stage

BODY = 10_000
HOUR = timedelta(hours=1)


@pytest.fixture
def web(stage: Stage) -> Iterator[Connection]:
    with stage.open("web") as connection:
        yield connection


def facts(stage: Stage, **limits: int) -> TenantFacts:
    for name, value in limits.items():
        stage.connection.execute(f"UPDATE tenant SET {name} = %s WHERE id = %s", (value, stage.tenant))
    found = queries.tenant_facts(stage.connection, stage.tenant)
    assert found is not None
    return found


def make(stage: Stage, **more: Any) -> uuid.UUID:
    asked = ScheduleRequest(**{"name": "nightly", "kind": "noop.single", "input": {"i": 7}, "cron": "0 * * * *"} | more)
    return schedules.create(stage.connection, facts(stage), asked, body_max_bytes=BODY, author="test")


def view(stage: Stage, made: uuid.UUID) -> ScheduleView:
    found = rows.one(stage.connection, made)
    assert found is not None
    return found


def next_at(stage: Stage, made: uuid.UUID) -> datetime:
    moment = view(stage, made).next_at
    assert moment is not None
    return moment


def tasks(stage: Stage) -> list[tuple[Any, ...]]:
    return stage.connection.execute(
        "SELECT t.kind, b.input, b.schedule, b.scheduled_for FROM task t JOIN task_body b ON b.task_id = t.id "
        "ORDER BY t.id"
    ).fetchall()


def test_a_schedule_brings_a_task_at_its_moment_and_not_before(stage: Stage) -> None:
    made = make(stage, tags=("red",), title="The nightly one", priority=3)
    moment = next_at(stage, made)
    assert fire_due(Firing(), stage.connection, now=moment - timedelta(milliseconds=1)) == 0
    assert fire_due(Firing(), stage.connection, now=moment + timedelta(seconds=2)) == 1
    assert fire_due(Firing(), stage.connection, now=moment + timedelta(seconds=3)) == 0
    assert tasks(stage) == [("noop.single", {"i": 7}, made, moment)]
    after = view(stage, made)
    assert (after.next_at, after.fired, after.last_task is not None) == (moment + HOUR, 1, True)
    assert after.last_task is not None
    task = queries.task(stage.connection, after.last_task)
    assert task is not None
    assert (task.title, task.tags, task.schedule, task.priority) == ("The nightly one", ["red"], made, 3)
    assert stage.one("SELECT actor FROM event WHERE event = 'submit'") == "schedule:nightly"
    stage.add_session()
    assert len(stage.tick()) == 1


def test_two_sweeps_at_once_fire_a_moment_once(stage: Stage) -> None:
    made = [make(stage, name=f"s{i}") for i in range(20)]
    now = next_at(stage, made[0]) + timedelta(seconds=1)
    start = threading.Barrier(4)
    brought: list[int] = []

    def look() -> None:
        with stage.open() as connection:
            firing = Firing()
            start.wait()
            brought.append(fire_due(firing, connection, now=now))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(brought) == 20
    assert sorted(row[2] for row in tasks(stage)) == sorted(made)


def test_one_who_saw_the_old_moment_moves_nothing_and_its_tasks_go(stage: Stage) -> None:
    made = make(stage)
    now = next_at(stage, made) + timedelta(seconds=1)
    with stage.connection.transaction():
        seen = rows.take_due(stage.connection, now=now)
        assert seen is not None
    assert fire_due(Firing(), stage.connection, now=now) == 1
    with pytest.raises(schedules._MovedOn), stage.connection.transaction():
        schedules._fire(Firing(), stage.connection, seen)
    assert len(tasks(stage)) == 1


def test_a_crash_in_the_middle_of_firing_leaves_the_moment_to_the_next_look(stage: Stage) -> None:
    made = make(stage)
    now = next_at(stage, made) + timedelta(seconds=1)
    doomed = stage.open()
    doomed.execute("BEGIN")
    seen = rows.take_due(doomed, now=now)
    assert seen is not None
    assert fire_due(Firing(), stage.connection, now=now) == 0  # locked: nobody else takes it meanwhile
    assert schedules._fire(Firing(), doomed, seen) == 1
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("SELECT pg_terminate_backend(%s)", (doomed.info.backend_pid,))
    with pytest.raises(psycopg.errors.AdminShutdown):
        doomed.execute("COMMIT")
    doomed.close()
    assert tasks(stage) == []
    assert fire_due(Firing(), stage.connection, now=now) == 1


@pytest.mark.parametrize(("catch_up", "number"), [("skip", 0), ("one", 1), ("all", 5)])
def test_after_an_outage_it_catches_up_as_it_says(stage: Stage, catch_up: str, number: int) -> None:
    made = make(stage, catch_up=catch_up)
    moment = next_at(stage, made)
    now = moment + 4 * HOUR + timedelta(minutes=30)
    assert fire_due(Firing(), stage.connection, now=now) == number
    brought = [row[3] for row in tasks(stage)]
    assert brought == [moment + i * HOUR for i in range(5)][5 - number :]
    assert view(stage, made).next_at == moment + 5 * HOUR
    assert fire_due(Firing(), stage.connection, now=now) == 0


def test_a_catch_up_of_all_is_bounded(stage: Stage) -> None:
    made = make(stage, catch_up="all", cron="* * * * *")
    assert fire_due(Firing(), stage.connection, now=next_at(stage, made) + timedelta(days=300)) == CATCH_UP_MAX
    assert view(stage, made).fired == CATCH_UP_MAX


def test_a_schedule_in_a_skipped_hour_fires_when_the_clock_has_jumped(stage: Stage) -> None:
    made = make(stage, cron="30 2 * * *", zone="Europe/Berlin")
    stage.connection.execute("UPDATE schedule SET next_at = '2026-03-28T01:30Z', look_at = '2026-03-28T01:30Z'")
    fire_due(Firing(), stage.connection, now=datetime(2026, 3, 28, 1, 30, 5, tzinfo=UTC))
    assert view(stage, made).next_at == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    assert fire_due(Firing(), stage.connection, now=datetime(2026, 3, 29, 1, 0, 1, tzinfo=UTC)) == 1
    assert view(stage, made).next_at == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)


def test_a_kind_that_is_gone_stops_the_schedule_with_the_reason_and_resume_checks_it(
    stage: Stage, web: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(stage)
    now = next_at(stage, made) + timedelta(seconds=1)
    with monkeypatch.context() as patch:
        patch.delitem(registry._KINDS, "noop.single")
        assert fire_due(Firing(), stage.connection, now=now) == 0
        stopped = view(stage, made)
        assert not stopped.enabled and "noop.single" in str(stopped.stopped_because)
        with pytest.raises(Invalid) as raised:
            schedules.resume(web, facts(stage), made, body_max_bytes=BODY)
        assert raised.value.field == "kind"
    assert fire_due(Firing(), stage.connection, now=now) == 0
    schedules.resume(web, facts(stage), made, body_max_bytes=BODY)
    again = view(stage, made)
    assert again.enabled and again.stopped_because is None and tasks(stage) == []


def test_an_input_that_no_longer_fits_and_a_lost_priority_stop_it_too(stage: Stage) -> None:
    wrong, urgent = make(stage, name="wrong"), make(stage, name="urgent", priority=1)
    now = next_at(stage, wrong) + timedelta(seconds=1)
    stage.connection.execute("UPDATE schedule SET input = '{\"i\": \"x\"}' WHERE name = 'wrong'")
    facts(stage, top_priority=2)
    assert fire_due(Firing(), stage.connection, now=now) == 0
    assert "input.i" in str(view(stage, wrong).stopped_because)
    assert "more urgent" in str(view(stage, urgent).stopped_because)
    assert [view(stage, one).enabled for one in (wrong, urgent)] == [False, False]


def test_a_full_backlog_puts_the_moment_off_and_loses_it_not(stage: Stage) -> None:
    made = make(stage)
    moment = next_at(stage, made)
    facts(stage, backlog_quota=1)
    (waiting,) = stage.submit()
    now = moment + timedelta(seconds=1)
    assert fire_due(Firing(), stage.connection, now=now) == 0
    held = view(stage, made)
    assert held.enabled and held.next_at == moment and "quota" in str(held.stopped_because)
    assert fire_due(Firing(), stage.connection, now=now + timedelta(seconds=5)) == 0
    facts(stage, backlog_quota=2)
    assert fire_due(Firing(), stage.connection, now=now + timedelta(seconds=31)) == 1
    assert tasks(stage)[-1][3] == moment and view(stage, made).stopped_because is None
    assert stage.state(waiting) == "queued"


def test_a_spent_budget_puts_off_what_costs(stage: Stage) -> None:
    made = make(stage, kind="llm.summarize", input={"text": "Some words."})
    money.set_budget("acme", budget(day_usd=1.0, month_usd=None), author="test")
    stage.connection.execute("UPDATE budget SET spent_day_usd = 5, counted_at = now()")
    now = next_at(stage, made) + timedelta(seconds=1)
    assert fire_due(Firing(), stage.connection, now=now) == 0
    held = view(stage, made)
    assert held.enabled and "budget" in str(held.stopped_because)
    money.clear_budget("acme")
    assert fire_due(Firing(), stage.connection, now=now + timedelta(seconds=31)) == 1


def test_paused_schedules_bring_nothing_and_resume_does_not_catch_up(stage: Stage, web: Connection) -> None:
    made = make(stage)
    schedules.pause(web, facts(stage), made, reason="holidays")
    assert fire_due(Firing(), stage.connection, now=datetime.now(UTC) + 50 * HOUR) == 0
    assert view(stage, made).stopped_because == "holidays"
    stage.connection.execute(
        "UPDATE schedule SET next_at = next_at - interval '3 days', look_at = look_at - interval '3 days'"
    )
    schedules.resume(web, facts(stage), made, body_max_bytes=BODY)
    assert fire_due(Firing(), stage.connection) == 0
    assert next_at(stage, made) > datetime.now(UTC)


def test_a_change_of_the_expression_begins_anew_and_of_the_rest_does_not(stage: Stage, web: Connection) -> None:
    made = make(stage)
    before = next_at(stage, made)
    schedules.change(web, facts(stage), made, {"input": {"i": 9}, "tags": ("blue",)}, body_max_bytes=BODY)
    after = view(stage, made)
    assert (after.next_at, after.input, after.tags, after.name) == (before, {"i": 9}, ["blue"], "nightly")
    schedules.change(web, facts(stage), made, {"cron": "0 0 1 1 *"}, body_max_bytes=BODY)
    changed = view(stage, made)
    assert changed.next_at is not None and changed.next_at.month == 1
    with pytest.raises(Invalid) as raised:
        schedules.change(web, facts(stage), made, {"zone": "Mars/Base"}, body_max_bytes=BODY)
    assert raised.value.field == "zone" and view(stage, made).zone == "UTC"


@pytest.mark.parametrize(
    ("wrong", "field", "error"),
    [
        ({"cron": "0 0 30 2 *"}, "cron", Invalid),
        ({"cron": "every day"}, "cron", Invalid),
        ({"zone": "Mars/Base"}, "zone", Invalid),
        ({"kind": "nope"}, "kind", Invalid),
        ({"input": {"i": "x"}}, "input.i", Invalid),
        ({"name": ""}, "name", Invalid),
        ({"name": "a\nb"}, "name", Invalid),
        ({"catch_up": "some"}, "catch_up", Invalid),
        ({"ttl_s": 0}, "ttl_s", Invalid),
        ({"tags": ("a b",)}, "tags[0]", Invalid),
        ({"priority": 0}, "priority", Forbidden),
        ({"priority": 7}, "priority", Invalid),
    ],
)
def test_what_does_not_fit_makes_no_schedule_and_is_named(
    stage: Stage, wrong: dict[str, Any], field: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        make(stage, **wrong)
    assert raised.value.field == field  # type: ignore[attr-defined]  # all of them are errors of Harness
    assert stage.one("SELECT count(*) FROM schedule") == 0


def test_a_name_is_unique_within_a_tenant_and_others_cannot_touch_it(stage: Stage, web: Connection) -> None:
    made = make(stage)
    with pytest.raises(Conflict) as raised:
        make(stage)
    assert raised.value.field == "name"
    other = queries.tenant_facts(stage.connection, stage.add_tenant("other"))
    assert other is not None
    with pytest.raises(NotFound):
        schedules.delete(web, other, made)
    with pytest.raises(NotFound):
        schedules.pause(web, other, made)
    with pytest.raises(NotFound):
        schedules.resume(web, other, made, body_max_bytes=BODY)
    with pytest.raises(NotFound):
        schedules.change(web, other, made, {"name": "mine"}, body_max_bytes=BODY)
    asked = ScheduleRequest(name="nightly", kind="noop", input={}, cron="0 0 * * *")
    schedules.create(web, other, asked, body_max_bytes=BODY, author="test")
    assert web.execute("SELECT count(*) FROM schedule").fetchone() == (0,)  # no tenant set: no rows


def test_a_tenant_has_a_bounded_number_of_schedules(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PER_TENANT", 2)
    make(stage, name="a")
    make(stage, name="b")
    with pytest.raises(OverQuota):
        make(stage, name="c")


def test_a_firing_that_the_database_refuses_keeps_no_other_from_firing(stage: Stage) -> None:
    bad, good = make(stage, name="bad"), make(stage, name="good")
    now = next_at(stage, bad) + timedelta(seconds=1)
    stage.connection.execute("UPDATE schedule SET look_at = look_at - interval '1 s' WHERE name = 'bad'")
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute(
            "CREATE FUNCTION refuse_bad() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN IF NEW.name = 'bad' THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END $$"
        )
        owner.execute("CREATE TRIGGER refuse_bad BEFORE UPDATE ON schedule FOR EACH ROW EXECUTE FUNCTION refuse_bad()")
        try:
            assert fire_due(Firing(), stage.connection, now=now) == 1
        finally:
            owner.execute("DROP FUNCTION refuse_bad CASCADE")
    assert [row[2] for row in tasks(stage)] == [good]
    assert fire_due(Firing(), stage.connection, now=now) == 1


def test_the_sweep_fires_and_wakes_the_dispatcher(stage: Stage) -> None:
    make(stage)
    stage.connection.execute("UPDATE schedule SET next_at = now() - interval '1 s', look_at = now() - interval '1 s'")
    assert stage.epoch is not None
    swept = sweep.sweep(stage.connection, epoch=stage.epoch, firing=Firing())
    assert (swept.scheduled, swept.woke) == (1, True)
    assert sweep.sweep(stage.connection, epoch=stage.epoch, firing=Firing()).scheduled == 0

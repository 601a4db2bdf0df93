"""The level of pressure on the real database: one row, its changes, evaluated once; the plan goes by it at once."""

import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from structlog.testing import capture_logs

from harness.engine import pressure
from harness.policy.pressure import SIGNALS, Level
from harness.policy.settings import Topology
from harness.store import housekeeping
from harness.store import pressure as stored
from harness.store.backlog import insert_run
from tests.stage import Stage

TOPOLOGY = settings.HARNESS_TOPOLOGY


def later(stage: Stage, seconds: float = 5.0) -> None:
    """As if the last evaluation were so long ago."""
    stage.connection.execute("UPDATE level SET seen_at = clock_timestamp() - make_interval(secs => %s)", (seconds,))


def judge(stage: Stage, times: int = 1, topology: Topology = TOPOLOGY) -> pressure.Judged:
    found = pressure.Judged()
    for _ in range(times):
        later(stage)
        found = pressure.judge(stage.connection, topology)
    return found


def fail(stage: Stage, n: int, *, of: int) -> None:
    """As if of so many attempts so many had failed just now, by their downstream."""
    tasks = stage.submit("noop.single", of)
    stage.connection.execute("UPDATE task SET ready = false WHERE id = ANY(%s)", (tasks,))
    stage.connection.execute("DELETE FROM attempt")
    stage.connection.execute(
        "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict, error_class, slot_s) "
        "SELECT id, %s, 1, clock_timestamp(), CASE WHEN at <= %s THEN 'bury' ELSE 'succeed' END, "
        "CASE WHEN at <= %s THEN 'server_error' END, 1 FROM unnest(%s::bigint[]) WITH ORDINALITY AS x(id, at)",
        (stage.tenant, n, n, tasks),
    )


def set_level(stage: Stage, level: Level) -> None:
    stage.connection.execute(
        "INSERT INTO level (id, level, since, seen_at, state, readings) "
        "VALUES (1, %s, clock_timestamp(), clock_timestamp(), '{}', '{}') "
        "ON CONFLICT (id) DO UPDATE SET level = excluded.level",
        (int(level),),
    )


# -- the row and its changes


def test_the_first_evaluation_writes_the_row_and_no_change(stage: Stage) -> None:
    found = judge(stage)
    assert (found.skipped, found.level, found.change) == (False, Level.NORMAL, None)
    now = stored.now(stage.connection)
    assert now is not None and now.level is Level.NORMAL and now.now_s - now.seen_s < 5.0
    assert stored.changes(stage.connection, most=10) == []
    assert stored.readings(stage.connection).keys() == SIGNALS.keys() - {"llm_rate_limit", "llm_in_use"}


def test_a_change_is_a_row_with_the_signals_that_asked_for_it_and_what_was_done(stage: Stage) -> None:
    judge(stage)
    fail(stage, 20, of=100)
    first = judge(stage)
    assert first.level is Level.NORMAL, "one evaluation raises nothing"
    second = judge(stage)
    assert second.level is Level.HIGH and second.change is not None
    (change,) = stored.changes(stage.connection, most=10)
    assert (change.before, change.after) == (Level.NORMAL, Level.HIGH)
    assert change.signals["tool_error_rate"].value == pytest.approx(0.2)
    assert change.signals["tool_error_rate"].score == 2
    assert change.done.startswith("P3 by its floor while others wait; cheaper forms: P2, P3; caps of runs halved; ")
    now = stored.now(stage.connection)
    assert now is not None and now.now_s - now.since_s < 5.0 and now.level is Level.HIGH


def test_it_falls_step_by_step_when_the_failures_are_over_and_since_stays_between(stage: Stage) -> None:
    judge(stage)
    fail(stage, 20, of=100)
    judge(stage, 2)
    stage.connection.execute("DELETE FROM attempt")
    since_s = []
    for _ in range(18):
        judge(stage)
        now = stored.now(stage.connection)
        assert now is not None and now.level is Level.HIGH
        since_s.append(now.since_s)
    assert len(set(since_s)) == 1
    judge(stage, 40)
    told = [(one.before, one.after) for one in stored.changes(stage.connection, most=10)]
    assert told == [(1, 0), (2, 1), (0, 2)]
    normal, elevated = [one.done for one in stored.changes(stage.connection, most=2)]
    assert normal == "P3 has its whole weight again; whole retry budget; the door is open"
    assert "no cheaper forms; whole caps of runs" in elevated


def test_two_beats_evaluate_once(stage: Stage) -> None:
    judge(stage)
    fail(stage, 20, of=100)
    judge(stage)
    later(stage)
    with stage.open() as other, other.transaction():
        assert pressure.alone(other)
        assert pressure.judge(stage.connection, TOPOLOGY).skipped
        assert stored.changes(stage.connection, most=10) == []
    assert not pressure.judge(stage.connection, TOPOLOGY).skipped
    with stage.open() as other:  # and one that comes a moment after the first
        again = pressure.judge(other, TOPOLOGY)
    assert again.skipped and again.level is Level.HIGH
    assert len(stored.changes(stage.connection, most=10)) == 1


def test_a_beat_that_was_away_for_three_minutes_lowers_nothing_at_once(stage: Stage) -> None:
    judge(stage)
    fail(stage, 20, of=100)
    judge(stage, 2)
    stage.connection.execute("DELETE FROM attempt")
    for seconds in (180.0, -3600.0, 86_400.0):
        later(stage, seconds)
        found = pressure.judge(stage.connection, TOPOLOGY)
        assert not found.skipped and found.level is Level.HIGH


def test_what_can_not_be_read_holds_the_level_and_nobody_waits_for_it(stage: Stage) -> None:
    judge(stage)
    fail(stage, 20, of=100)
    judge(stage, 2)
    stage.connection.execute("DELETE FROM attempt")
    with stage.open() as owner, owner.transaction(force_rollback=True):
        owner.execute("RESET ROLE")
        owner.execute("LOCK TABLE wait_reason IN ACCESS EXCLUSIVE MODE")
        began_s = time.monotonic()
        for _ in range(4):
            later(stage, 15.0)
            found = pressure.judge(stage.connection, TOPOLOGY)
            assert found.unread and found.level is Level.HIGH
        assert time.monotonic() - began_s < 4 * (pressure.FACTS_MOST_S + 1.0)
        assert all(one.missing for one in stored.readings(stage.connection).values())
    assert judge(stage, 40).level is Level.NORMAL


def test_while_redis_is_away_only_its_signals_are_unknown_and_the_level_holds(stage: Stage) -> None:
    calls = [name for name, one in TOPOLOGY.resources.items() if one.held == "call"]
    stage.connection.execute(
        "INSERT INTO resource_state (resource, limit_now, mode, breaker, in_flight, waiting, seen_at) "
        "SELECT name, 5, 'fixed', 'closed', 0, 0, clock_timestamp() FROM unnest(%s::text[]) AS name",
        (calls,),
    )
    fail(stage, 20, of=100)
    judge(stage, 2)
    stage.connection.execute("DELETE FROM attempt")
    stage.connection.execute("UPDATE resource_state SET seen_at = seen_at - interval '1 minute'")
    assert judge(stage, 40).level is Level.HIGH
    missing = {name for name, one in stored.readings(stage.connection).items() if one.missing}
    assert missing == {"llm_rate_limit", "llm_in_use"}
    fail(stage, 50, of=100)
    assert judge(stage).level is Level.CRITICAL, "others still raise it"
    stage.connection.execute("DELETE FROM attempt")
    stage.connection.execute("UPDATE resource_state SET seen_at = clock_timestamp()")
    assert judge(stage, 80).level is Level.NORMAL


def test_thresholds_of_the_file_count(stage: Stage) -> None:
    lax = replace(SIGNALS["tool_error_rate"], elevated=0.5, high=0.6, critical=0.7)
    topology = replace(TOPOLOGY, pressure={**SIGNALS, "tool_error_rate": lax})
    fail(stage, 20, of=100)
    assert judge(stage, 4, topology).level is Level.NORMAL


def test_what_waits_for_its_own_tenant_or_a_person_is_no_queue(stage: Stage) -> None:
    stage.add_session()
    stage.submit("noop.single", 5, priority=1)
    stage.connection.execute("UPDATE task SET created_at = clock_timestamp() - interval '10 minutes'")
    facts = stored.facts(stage.connection, TOPOLOGY.resources, connections=80, tasks=1000)
    assert [(one.priority, one.number) for one in facts.waiting] == [(1, 5)]
    assert facts.heads[0].age_s == pytest.approx(600, abs=5)
    for code in ("paused", "tenant_cap", "breaker"):
        stage.connection.execute(
            "INSERT INTO wait_reason (pool, priority, tenant_id, run_id, signature, code, subject, facts, before, "
            "since) SELECT pool, priority, tenant_id, run_id, signature, %s, '', '{}', '{}', now() FROM flow",
            (code,),
        )
        facts = stored.facts(stage.connection, TOPOLOGY.resources, connections=80, tasks=1000)
        assert facts.waiting == () and facts.heads == ()
        stage.connection.execute("DELETE FROM wait_reason")


def test_changes_are_kept_as_long_as_the_rest(stage: Stage) -> None:
    for days in (100, 1):
        stage.connection.execute(
            "INSERT INTO level_change (at, before, after, signals, done) "
            "VALUES (clock_timestamp() - make_interval(days => %s), 0, 1, '{}', '')",
            (days,),
        )
    before = datetime.now(UTC) - timedelta(days=30)
    assert sum(housekeeping.delete_old_limits(stage.connection, before=before)) == 1
    assert len(stored.changes(stage.connection, most=10)) == 1


def test_a_tenant_reads_the_level_and_nothing_that_it_is_made_of(stage: Stage) -> None:
    judge(stage)
    with stage.open("web") as web:
        assert stored.now(web) is not None
        for statement in (
            "SELECT readings FROM level",
            "SELECT state FROM level",
            "SELECT * FROM level_change",
            "UPDATE level SET level = 3",
        ):
            with pytest.raises(Exception, match="permission denied"):
                web.execute(statement)
    with stage.open("staff") as staff:
        assert stored.readings(staff)
        with pytest.raises(Exception, match="permission denied"):
            staff.execute("DELETE FROM level_change")


# -- the plan


def released(stage: Stage, priority: int) -> int:
    return int(stage.one("SELECT count(*) FROM lease WHERE priority = %s", priority))


@pytest.mark.parametrize("level", Level)
def test_p3_gives_way_within_one_tick_while_others_wait_and_runs_at_full_speed_alone(
    stage: Stage, level: Level
) -> None:
    # The P1 work needs what there are only so many of, so that P3 gets what is left, to its last slot.
    stage.add_session({"db": 40, "quarantine": 1})
    other = stage.add_tenant("other")
    stage.tick()
    set_level(stage, level)
    stage.submit("noop.single", 60, priority=3)
    stage.submit("noop.single", 30, priority=1, tenant=other, signature="rag:search=1")
    stage.tick()
    stage.tick()
    assert 0 < released(stage, 1) < 20
    whole = min(36, 40 - released(stage, 1))  # one tenant leaves a tenth of a pool to others
    least, most = {Level.NORMAL: (whole, whole), Level.ELEVATED: (20, 20)}.get(level, (0, 2))
    assert least <= released(stage, 3) <= most, "its floor is 2 slots"
    stage.connection.execute("UPDATE task SET ready = false WHERE priority = 1")
    stage.connection.execute("UPDATE level SET level = 0")
    stage.tick()
    stage.tick()
    assert released(stage, 3) == whole


@pytest.mark.parametrize("level", Level)
def test_what_waits_for_its_own_tenant_keeps_no_slot_free(stage: Stage, level: Level) -> None:
    stage.add_session({"db": 40, "quarantine": 1})
    capped = stage.add_tenant("capped", cap=1)
    stage.tick()
    set_level(stage, level)
    stage.submit("noop.single", 60, priority=3)
    stage.submit("noop.single", 5, priority=1, tenant=capped)
    stage.tick()
    stage.tick()
    assert (released(stage, 1), released(stage, 3)) == (1, 36)


@pytest.mark.parametrize("level", [Level.ELEVATED, Level.HIGH, Level.CRITICAL])
def test_p3_alone_is_served_at_full_speed_at_every_level(stage: Stage, level: Level) -> None:
    stage.add_session({"db": 40, "quarantine": 1})
    set_level(stage, level)
    stage.submit("noop.single", 60, priority=3)
    stage.tick()
    assert released(stage, 3) == 40


def test_the_cap_of_a_run_is_halved_within_one_tick_and_whole_again_with_the_level(stage: Stage) -> None:
    stage.add_session({"db": 40, "quarantine": 1})
    run = insert_run(stage.connection, public_id=uuid.uuid4(), tenant=stage.tenant, name="", size=30, fanout_cap=8)
    stage.submit("noop.single", 30, run=run)
    set_level(stage, Level.HIGH)
    stage.tick()
    assert stage.one("SELECT count(*) FROM lease") == 4
    set_level(stage, Level.ELEVATED)
    stage.tick()
    assert stage.one("SELECT count(*) FROM lease") == 8
    set_level(stage, Level.CRITICAL)
    stage.connection.execute("DELETE FROM lease_member WHERE lease_id IN (SELECT id FROM lease ORDER BY id LIMIT 3)")
    stage.connection.execute("DELETE FROM lease WHERE id IN (SELECT id FROM lease ORDER BY id LIMIT 3)")
    stage.tick()
    assert stage.one("SELECT count(*) FROM lease") == 5, "what runs goes on, and nothing comes to it"


def test_the_level_is_told_in_the_log(stage: Stage) -> None:
    judge(stage)
    fail(stage, 20, of=100)
    with capture_logs() as lines:
        judge(stage, 2)
    (told,) = [line for line in lines if line["event"] == "level_changed"]
    assert (told["before"], told["after"]) == ("normal", "high")

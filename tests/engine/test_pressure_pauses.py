"""Pauses of pressure on the real database: put at critical, ended by the same side alone, and never for long."""

import pytest

from harness.engine import operate, pressure
from harness.policy.errors import Conflict
from harness.policy.pressure import Level
from harness.policy.pressure.pauses import MOST_S, STANDS_S
from harness.store import pauses
from tests.engine.test_pressure import TOPOLOGY, fail, judge, later, set_level
from tests.stage import Stage

KEY = "db.p3"


def ours(stage: Stage) -> list[str]:
    """Return what pressure has paused."""
    return [one.key for one in pauses.in_force(stage.connection) if one.source == "pressure"]


def crisis(stage: Stage) -> None:
    """As if half of the calls failed: a hard signal that is critical."""
    fail(stage, 50, of=100)


def age(stage: Stage, seconds: float) -> None:
    """As if the level and the pauses had begun so much earlier."""
    stage.connection.execute("UPDATE level SET since = since - make_interval(secs => %s)", (seconds,))
    stage.connection.execute(
        "UPDATE pause SET created_at = created_at - make_interval(secs => %s), "
        "until = until - make_interval(secs => %s)",
        (seconds, seconds),
    )


def test_at_critical_p3_is_paused_where_more_urgent_work_waits_and_nowhere_else(stage: Stage) -> None:
    stage.add_session()
    stage.submit("noop.single", priority=1)
    stage.submit("noop.single", 5, priority=3)
    stage.submit(n=5, pool="tool_read", kind="nobody", priority=3)
    judge(stage)
    crisis(stage)
    found = judge(stage)
    assert found.level is Level.CRITICAL and found.paused.put == (KEY,)
    assert ours(stage) == [KEY]
    (row,) = pauses.in_force(stage.connection)
    assert (row.scope, row.author) == ("pool_priority", "pressure") and row.until is not None
    assert row.until.timestamp() - row.created_at.timestamp() == pytest.approx(MOST_S, abs=1)
    stage.tick()
    stage.tick()
    released: dict[str, int] = dict(
        stage.connection.execute("SELECT pool, count(*) FROM lease WHERE priority = 3 GROUP BY 1").fetchall()
    )
    assert released == {"tool_read": 4}, "all of its slots: nobody more urgent waits there"
    assert judge(stage).paused.put == (), "it stands"


def test_where_p3_is_the_only_load_it_is_not_paused(stage: Stage) -> None:
    stage.submit("noop.single", 5, priority=3)
    crisis(stage)
    assert judge(stage, 2).level is Level.CRITICAL
    assert ours(stage) == []


def test_it_ends_with_the_level_and_its_slots_come_back_by_the_ramp(stage: Stage) -> None:
    stage.add_session({"db": 20, "quarantine": 1})
    stage.submit("noop.single", priority=1)
    stage.submit("noop.single", 60, priority=3)
    crisis(stage)
    judge(stage, 2)
    assert ours(stage) == [KEY]
    stage.connection.execute("DELETE FROM attempt")
    stage.connection.execute("UPDATE task SET ready = false WHERE priority = 1")
    stage.tick()
    assert stage.one("SELECT count(*) FROM lease WHERE priority = 3") == 0
    judge(stage, 40)
    assert stage.one("SELECT level FROM level") < Level.CRITICAL and ours(stage) == []
    assert stage.one("SELECT resumed_by FROM pause") == "pressure"
    stage.connection.execute("UPDATE pause SET resumed_at = clock_timestamp() - interval '1 second'")
    stage.tick()
    assert stage.one("SELECT count(*) FROM lease WHERE priority = 3") == 2, "a tenth of 20 at first"


def test_it_stands_for_a_minute_and_goes_when_nothing_more_urgent_waits(stage: Stage) -> None:
    stage.submit("noop.single", priority=1)
    crisis(stage)
    judge(stage, 2)
    stage.connection.execute("UPDATE task SET ready = false")
    judge(stage)
    assert ours(stage) == [KEY]
    age(stage, STANDS_S)
    judge(stage)
    assert ours(stage) == []
    stage.connection.execute("UPDATE task SET ready = true WHERE priority = 1")
    judge(stage)
    assert ours(stage) == [KEY], "and comes again, until its quarter of an hour is over"


def test_after_a_quarter_of_an_hour_the_floor_is_back_though_it_is_still_critical(stage: Stage) -> None:
    stage.add_session({"db": 40, "quarantine": 1})
    stage.submit("noop.single", priority=1)
    crisis(stage)
    judge(stage, 2)
    age(stage, MOST_S)
    assert ours(stage) == [], "by itself, without an evaluation"
    assert judge(stage).level is Level.CRITICAL
    assert ours(stage) == [], "and it isn't put again"


def test_no_evaluation_for_three_minutes_leaves_the_pause_and_its_end_as_they_are(stage: Stage) -> None:
    stage.submit("noop.single", priority=1)
    crisis(stage)
    judge(stage, 2)
    before = pauses.in_force(stage.connection)
    stage.connection.execute("DELETE FROM attempt")
    later(stage, 180.0)
    pressure.judge(stage.connection, TOPOLOGY)
    assert pauses.in_force(stage.connection) == before


def test_a_clock_that_goes_back_makes_no_pause_longer(stage: Stage) -> None:
    stage.submit("noop.single", priority=1)
    crisis(stage)
    judge(stage, 2)
    stage.connection.execute(
        "UPDATE pause SET created_at = created_at + interval '1 hour', until = until + interval '1 hour'"
    )
    stage.connection.execute("UPDATE level SET since = since + interval '1 hour'")
    judge(stage)
    ((_, lasts_s),) = pauses.standing(stage.connection, scope="pool_priority", source="pressure").values()
    assert lasts_s <= MOST_S


def test_two_beats_put_it_once(stage: Stage) -> None:
    stage.submit("noop.single", priority=1)
    crisis(stage)
    judge(stage, 2)
    before = pauses.in_force(stage.connection)
    with stage.open() as other:
        assert pressure.judge(other, TOPOLOGY).skipped
    assert pauses.in_force(stage.connection) == before


def test_each_side_lifts_its_own_pause_alone(stage: Stage) -> None:
    operate.pause_scope(stage.connection, "pool_priority", KEY, tenant=None, actor="me", reason="mine")
    stage.submit("noop.single", priority=1)
    crisis(stage)
    judge(stage, 2)
    assert sorted(one.source for one in pauses.in_force(stage.connection)) == ["operator", "pressure"]
    stage.connection.execute("DELETE FROM attempt")
    judge(stage, 40)
    (mine,) = pauses.in_force(stage.connection)
    assert (mine.source, mine.reason) == ("operator", "mine"), "pressure has lifted its own alone"
    set_level(stage, Level.CRITICAL)
    crisis(stage)
    judge(stage, 2)
    assert operate.resume_scope(stage.connection, "pool_priority", KEY, tenant=None, actor="me").outcome == "held"
    with pytest.raises(Conflict, match="paused by the pressure on what it needs, not by you"):
        operate.resume_scope(stage.connection, "pool_priority", KEY, tenant=None, actor="me")
    assert ours(stage) == [KEY]


def test_what_can_not_be_read_pauses_nothing_and_ends_nothing(stage: Stage) -> None:
    stage.submit("noop.single", priority=1)
    crisis(stage)
    judge(stage, 2)
    before = pauses.in_force(stage.connection)
    with stage.open() as owner, owner.transaction(force_rollback=True):
        owner.execute("RESET ROLE")
        owner.execute("LOCK TABLE wait_reason IN ACCESS EXCLUSIVE MODE")
        assert judge(stage).unread
    assert pauses.in_force(stage.connection) == before

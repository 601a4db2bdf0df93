"""Notes on why flows wait: written when something changes, ended when it is over, and added up by difference."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from harness.engine import reasons
from harness.policy.reasons import Code
from harness.store import housekeeping, leader, transitions
from tests.engine.test_scopes import act
from tests.engine.watch import Watch
from tests.stage import Stage


@pytest.fixture
def watch(stage: Stage) -> Watch:
    return Watch(stage)


def test_a_change_writes_one_row_and_no_change_none(stage: Stage, watch: Watch) -> None:
    stage.add_session({"db": 1})
    stage.submit(n=3)
    stage.tick()
    watch.look()
    assert watch.rows() == []  # its turn is believed at the second look
    watch.look()
    assert watch.rows() == [("turn", "", True)]
    for _ in range(3):
        assert (watch.look().ended, watch.look().begun) == (0, 0)
    act(stage, "pause", "pool", "db")
    passed = watch.look()
    assert (passed.ended, passed.begun) == (1, 1)
    assert watch.rows() == [("turn", "", False), ("paused", "pool db", True)]
    assert watch.look().begun == 0
    assert stage.one("SELECT count(*) FROM wait_reason a JOIN wait_reason b ON a.until = b.since") == 1


def test_a_figure_that_moves_is_no_change_and_a_limit_that_moves_is(stage: Stage, watch: Watch) -> None:
    stage.add_session({"db": 8})
    stage.connection.execute("UPDATE tenant SET cap = 2")
    stage.submit(n=9)
    stage.tick()
    watch.look()
    stage.connection.execute("UPDATE tenant SET cap = 1")  # below what is in flight
    watch.look()
    assert watch.rows() == [("tenant_cap", "", False), ("tenant_cap", "", True)]
    assert stage.one("SELECT facts FROM wait_reason WHERE until IS NULL") == {"used": 2, "limit": 1}
    stage.connection.execute("DELETE FROM lease_member WHERE task_id = (SELECT min(task_id) FROM lease_member)")
    stage.connection.execute("DELETE FROM lease WHERE NOT EXISTS (SELECT FROM lease_member WHERE lease_id = lease.id)")
    watch.look()
    assert len(watch.rows()) == 2


def test_when_the_flow_goes_its_reason_ends(stage: Stage, watch: Watch) -> None:
    stage.submit()
    watch.look()
    assert watch.rows() == [("no_worker", "db", True)]
    stage.add_session({"db": 2})
    stage.tick()
    stage.tick()  # sees the flow empty, deletes it
    watch.look()
    assert watch.rows() == [("no_worker", "db", False)]
    assert watch.look() == reasons.Passed()


def test_what_a_leader_that_died_left_open_is_closed_by_the_next(stage: Stage, watch: Watch) -> None:
    (task,) = stage.submit()
    other = stage.add_tenant("other")
    stage.submit(tenant=other)
    watch.look()
    assert [row[2] for row in watch.rows()] == [True, True]
    # It dies; meanwhile the one flow goes, and the other's reason changes.
    stage.connection.execute("DELETE FROM flow WHERE tenant_id = %s", (other,))
    stage.connection.execute("UPDATE leader SET until = clock_timestamp()")
    stage.epoch = leader.take(stage.connection, "the next")
    stage.add_session({"db": 0, "tool_read": 1})
    act(stage, "pause", "pool", "db")
    successor = Watch(stage)
    passed = successor.look()
    assert (passed.ended, passed.begun) == (2, 1)
    assert stage.one("SELECT count(*) FROM wait_reason WHERE until IS NULL") == 1
    assert successor.told(task)[0] == "paused"


def test_a_leader_of_the_past_notes_nothing(stage: Stage, watch: Watch) -> None:
    stage.submit()
    stage.connection.execute("UPDATE leader SET until = clock_timestamp()")
    assert leader.take(stage.connection, "the next") is not None
    assert (watch.look().begun, watch.rows()) == (0, [])
    assert watch.noted.open is None  # it reads again what is so


def test_two_that_note_at_once_leave_one_open_row(stage: Stage, watch: Watch) -> None:
    stage.submit()
    rival = Watch(stage)
    rival.noted.open = {}  # it read before the other wrote
    rival.noted.read_s = float("inf")
    watch.look()
    rival.look()
    assert stage.one("SELECT count(*) FROM wait_reason WHERE until IS NULL") == 1
    assert rival.noted.open is None


def test_time_per_reason_is_what_its_flow_spent_during_its_own_wait(stage: Stage, watch: Watch) -> None:
    (task,) = stage.submit()
    watch.look()
    act(stage, "pause", "pool", "db")
    watch.look()
    act(stage, "resume", "pool", "db")
    session = stage.add_session({"db": 1})
    watch.look(2)
    age(stage, task, submitted=100)
    # no_worker from 90 to 60 s ago, paused from 60 to 20, then its turn.
    moments = {"no_worker": (90, 60), "paused": (60, 20), "turn": (20, None), "ramp": (20, None)}
    place_notes(stage, moments)
    spent = {(one.code, one.subject): round(one.seconds) for one in watch.why(task).spent}
    last = watch.rows()[-1][0]
    assert spent == {
        (Code.PAUSED, "pool db"): 40,
        (Code.NO_WORKER, "db"): 30,
        (Code(last), "pool db" if last == "ramp" else ""): 20,
        (Code.UNNOTED, ""): 10,
    }
    (message,) = stage.tick()
    stage.claim(message, session)
    over = watch.why(task, later_s=1000)
    assert over.bound == [] and over.waits_since is None
    assert abs(over.waited_s - 100) < 5  # not a second more after it began to run
    # Who came when it was paused has waited for nothing before.
    (young,) = stage.submit()
    age(stage, young, submitted=30)
    assert round({one.code: one.seconds for one in watch.why(young).spent}[Code.PAUSED]) == 10


def test_a_tasks_own_waits_count_beside_those_of_its_flow(stage: Stage, watch: Watch) -> None:
    (task,) = stage.submit(not_before=datetime.now(UTC) + timedelta(hours=1))
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() - interval '1 s' WHERE id = %s", (task,))
    transitions.wake_due(stage.connection, actor="sweep", limit=10)
    stage.connection.execute("UPDATE event SET at = at - interval '50 s' WHERE seq = 2")
    stage.connection.execute("UPDATE event SET at = at - interval '80 s' WHERE seq = 1")
    spent = {one.code: round(one.seconds) for one in watch.why(task).spent}
    assert spent == {Code.UNNOTED: 50, Code.NOT_BEFORE: 30}


def test_notes_go_with_what_is_old_and_later_ones_keep_their_sums(stage: Stage, watch: Watch) -> None:
    (task,) = stage.submit()
    watch.look()
    act(stage, "pause", "pool", "db")
    watch.look()
    age(stage, task, submitted=50)
    place_notes(stage, {"no_worker": (90, 60), "paused": (60, None)})
    before = {one.code: round(one.seconds) for one in watch.why(task).spent}
    now = stage.one("SELECT clock_timestamp()")
    assert list(housekeeping.delete_old_reasons(stage.connection, before=now - timedelta(seconds=70))) == []
    assert list(housekeeping.delete_old_reasons(stage.connection, before=now)) == [1]
    assert {one.code: round(one.seconds) for one in watch.why(task).spent} == before == {Code.PAUSED: 50}
    assert watch.rows() == [("paused", "pool db", True)]  # an open one is never old


def test_a_clock_that_steps_back_ends_no_row_before_it_began(stage: Stage, watch: Watch) -> None:
    stage.submit()
    watch.look()
    stage.connection.execute("UPDATE wait_reason SET since = clock_timestamp() + interval '1 hour'")
    act(stage, "pause", "pool", "db")
    watch.look()
    act(stage, "resume", "pool", "db")
    watch.look()
    assert [row[0] for row in watch.rows()] == ["no_worker", "paused", "no_worker"]
    assert stage.one("SELECT bool_and(until >= since) FROM wait_reason WHERE until IS NOT NULL")
    assert stage.one("SELECT before FROM wait_reason WHERE until IS NULL") == {"no_worker:db": 0, "paused:pool db": 0}


def test_more_flows_than_a_pass_takes_are_looked_at_by_the_next_ones(
    stage: Stage, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reasons, "WINDOW", 3)
    monkeypatch.setattr(reasons, "CHANGES_MOST", 2)
    monkeypatch.setattr(reasons, "CHANGES_AT_ONCE", 1)
    for name in "abcdefgh":
        stage.submit(tenant=stage.add_tenant(name))
    for _ in range(20):
        watch.look()
    assert watch.rows() == [("no_worker", "db", True)] * 8
    assert stage.one("SELECT tenants FROM pool_now WHERE pool = 'db'") == 8
    stage.connection.execute("DELETE FROM flow WHERE id IN (SELECT id FROM flow ORDER BY id LIMIT 4)")
    for _ in range(20):
        watch.look()
    assert sorted(row[2] for row in watch.rows()) == [False] * 4 + [True] * 4


@pytest.mark.parametrize("flows", [5000])
def test_blocked_flows_by_the_thousand_cost_a_pass_and_then_no_writes(stage: Stage, watch: Watch, flows: int) -> None:
    stage.add_session({"db": 1})
    stage.connection.execute(
        "WITH t AS (INSERT INTO tenant (name, cap) SELECT 'b' || i, 0 FROM generate_series(1, %s) i RETURNING id) "
        "INSERT INTO flow (pool, priority, tenant_id, run_id, signature) SELECT 'db', 1, id, 0, '' FROM t",
        (flows,),
    )
    (last,) = stage.submit()
    assert watch.look().begun == flows
    assert watch.look().begun == 1  # the one that nothing holds
    for _ in range(3):
        assert watch.look() == reasons.Passed(flows=flows + 1)
    assert watch.told(last)[0] == "turn"


def age(stage: Stage, task: int, *, submitted: float) -> None:
    """As if a task had been submitted so many seconds ago."""
    stage.connection.execute(
        "UPDATE event SET at = clock_timestamp() - make_interval(secs => %s) WHERE task_id = %s AND seq = 1",
        (submitted, task),
    )


def place_notes(stage: Stage, moments: dict[str, tuple[int, int | None]]) -> None:
    """As if the notes on the only flow had been written then (seconds ago), with the sums that belong to that."""
    sums: dict[str, float] = {}
    rows = stage.connection.execute("SELECT id, code, subject FROM wait_reason ORDER BY id").fetchall()
    for number, code, subject in rows:
        since, until = moments[code]
        stage.connection.execute(
            "UPDATE wait_reason SET since = clock_timestamp() - make_interval(secs => %s), "
            "until = clock_timestamp() - make_interval(secs => %s), before = %s::jsonb WHERE id = %s",
            (since, until, json.dumps(sums), number),
        )
        if until is not None:
            sums[f"{code}:{subject}"] = sums.get(f"{code}:{subject}", 0.0) + since - until

"""When a task may start at the latest: by default, as asked, and what becomes of it afterwards."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness.engine import requests, submit
from harness.engine.submit import Door, TaskRequest
from harness.policy.admission import DEFAULT_TTL_S, TenantFacts, parse_ttl_s
from harness.policy.errors import Invalid
from harness.policy.lifecycle import Event
from harness.store import queries, sql, transitions
from harness.store.database import Connection
from harness.store.transitions import Outcome
from tests.stage import Stage

HOUR = timedelta(hours=1)


@pytest.fixture
def web(stage: Stage) -> Iterator[Connection]:
    with stage.open("web") as connection:
        yield connection


def facts(stage: Stage) -> TenantFacts:
    stage.connection.execute("UPDATE tenant SET top_priority = 0 WHERE id = %s", (stage.tenant,))
    found = queries.tenant_facts(stage.connection, stage.tenant)
    assert found is not None
    return found


def take(stage: Stage, web: Connection, door: Door | None = None, **more: Any) -> queries.TaskView:
    request = TaskRequest(**{"kind": "noop.single", "input": {}} | more)
    accepted = submit.submit(door or Door(body_max_bytes=10_000), web, facts(stage), [request], actor="test")
    found = queries.task(stage.connection, accepted.task_ids[0])
    assert found is not None and found.start_by == accepted.start_by
    return found


def about(moment: datetime | None, expected: datetime) -> bool:
    return moment is not None and abs(moment - expected) < timedelta(seconds=20)


@pytest.mark.parametrize("off", [-2 * HOUR, 2 * HOUR])
def test_a_wrong_clock_at_the_door_changes_no_time_to_start(
    stage: Stage, web: Connection, monkeypatch: pytest.MonkeyPatch, off: timedelta
) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + off

    monkeypatch.setattr(requests, "datetime", Wrong)
    now = datetime.now(UTC)
    assert about(take(stage, web, priority=0).start_by, now + timedelta(minutes=5))
    assert about(take(stage, web, ttl_s=90).start_by, now + timedelta(seconds=90))
    assert about(take(stage, web, priority=3, deadline=now + 4 * HOUR).start_by, now + 4 * HOUR)
    assert about(take(stage, web, start_by=now + 3 * HOUR).start_by, now + 3 * HOUR)
    assert about(take(stage, web, ttl_s=90, not_before=now + 9 * HOUR).start_by, now + 9 * HOUR + timedelta(seconds=90))
    stage.add_session()
    stage.submit(priority=3)
    assert len(stage.tick()) >= 4, "nothing has expired before it could start"
    assert stage.one("SELECT count(*) FROM task WHERE state = 'failed_terminal'") == 0


@pytest.mark.parametrize("priority", range(4))
def test_a_task_must_start_within_its_prioritys_time(stage: Stage, web: Connection, priority: int) -> None:
    ttl_s = DEFAULT_TTL_S[priority]
    assert ttl_s is not None
    task = take(stage, web, priority=priority)
    assert about(task.start_by, datetime.now(UTC) + timedelta(seconds=ttl_s))


def test_the_setting_says_other_times_or_none(stage: Stage, web: Connection) -> None:
    door = Door(body_max_bytes=10_000, ttl_s=parse_ttl_s("60,none,120,1e6"))
    assert about(take(stage, web, door, priority=0).start_by, datetime.now(UTC) + timedelta(seconds=60))
    assert take(stage, web, door, priority=1).start_by is None
    for wrong in ("", "1,2,3", "1,2,3,0", "1,2,3,x", "1,2,3,nan", "1,2,3,inf", "1,2,3,-4"):
        with pytest.raises(Invalid):
            parse_ttl_s(wrong)


def test_the_time_begins_at_not_before_and_ends_with_the_deadline(stage: Stage, web: Connection) -> None:
    now = datetime.now(UTC)
    later = take(stage, web, priority=0, not_before=now + 48 * HOUR)
    assert about(later.start_by, now + 48 * HOUR + timedelta(minutes=5))
    assert about(take(stage, web, ttl_s=90, not_before=now + HOUR).start_by, now + HOUR + timedelta(seconds=90))
    assert about(take(stage, web, ttl_s=90, not_before=now - HOUR).start_by, now + timedelta(seconds=90))
    short = take(stage, web, priority=3, deadline=now + HOUR)
    assert short.start_by == short.deadline
    assert about(take(stage, web, start_by=now + HOUR).start_by, now + HOUR)


@pytest.mark.parametrize(
    ("times", "field"),
    [
        ({"ttl_s": 0}, "ttl_s"),
        ({"ttl_s": -1}, "ttl_s"),
        ({"ttl_s": float("nan")}, "ttl_s"),
        ({"ttl_s": float("inf")}, "ttl_s"),
        ({"ttl_s": 1e12}, "ttl_s"),
        ({"ttl_s": 60, "start_by": "future"}, "ttl_s"),
        ({"deadline": "past"}, "deadline"),
        ({"start_by": "past"}, "start_by"),
        ({"not_before": "future", "deadline": "future"}, "deadline"),
    ],
)
def test_a_time_that_cannot_be_kept_is_refused_and_named(
    stage: Stage, web: Connection, times: dict[str, Any], field: str
) -> None:
    moments = {"past": datetime.now(UTC) - HOUR, "future": datetime.now(UTC) + HOUR}
    with pytest.raises(Invalid) as raised:
        take(stage, web, **{name: moments.get(value, value) for name, value in times.items()})
    assert raised.value.field == field
    assert stage.one("SELECT count(*) FROM task") == 0


def late(stage: Stage, task: int, column: str) -> None:
    stage.connection.execute(f"UPDATE task SET {column} = clock_timestamp() - interval '1 s' WHERE id = %s", (task,))


def test_who_did_not_start_in_time_expires_with_the_reason(stage: Stage, web: Connection) -> None:
    task = take(stage, web)
    assert transitions.expire_due(stage.connection, actor="sweep") == 0
    late(stage, task.id, "start_by")
    assert transitions.expire_due(stage.connection, actor="sweep") == 1
    ended = queries.task(stage.connection, task.public_id)
    assert ended is not None
    assert (ended.state, ended.error["class"]) == ("failed_terminal", "expired")
    assert stage.events(task.id) == ["submit", "expire"]


def test_the_first_claim_voids_it_also_after_the_task_has_come_back(stage: Stage, web: Connection) -> None:
    session = stage.add_session()
    task = take(stage, web)
    for event, delay_s in ((Event.POSTPONE, 0.0), (Event.INTERRUPT, None), (Event.FAIL, 0.0)):
        (message,) = stage.tick()
        (claimed,) = stage.claim(message, session)
        late(stage, task.id, "start_by")  # as if it ran for long
        assert transitions.expire_due(stage.connection, actor="sweep") == 0
        outcome = Outcome(task=task.id, release_no=claimed.release_no, event=event, slot_s=0.1, delay_s=delay_s)
        settle(stage, outcome, message, session)
        assert stage.row(task.id)["start_by"] is None
        transitions.wake_due(stage.connection, actor="sweep")
        assert transitions.expire_due(stage.connection, actor="sweep") == 0
        assert stage.state(task.id) == "queued" and stage.row(task.id)["ready"] is True


def settle(stage: Stage, outcome: Outcome, message: Any, session: Any) -> None:
    done = transitions.settle(
        stage.connection, [outcome], lease=message.lease, token=message.token, session=session, actor="worker"
    )
    assert outcome.task in done


def test_a_release_that_nobody_claimed_in_time_keeps_the_promise(stage: Stage, web: Connection) -> None:
    stage.add_session()
    task = take(stage, web)
    stage.tick()
    late(stage, task.id, "start_by")
    assert transitions.expire_due(stage.connection, actor="sweep") == 0  # the claim checks the same
    transitions.hand_back_unclaimed(stage.connection, older_than_s=0)
    assert transitions.expire_due(stage.connection, actor="sweep") == 1


def test_an_explicit_deadline_ends_what_waits_also_after_its_first_start(stage: Stage, web: Connection) -> None:
    session = stage.add_session()
    task = take(stage, web, deadline=datetime.now(UTC) + HOUR)
    (message,) = stage.tick()
    (claimed,) = stage.claim(message, session)
    outcome = Outcome(task=task.id, release_no=claimed.release_no, event=Event.FAIL, slot_s=0.1, delay_s=3600.0)
    settle(stage, outcome, message, session)
    late(stage, task.id, "deadline")
    assert transitions.expire_due(stage.connection, actor="sweep") == 1
    assert stage.state(task.id) == "failed_terminal"


def test_a_claim_stays_a_hot_update_though_every_task_has_a_start_by(stage: Stage, web: Connection) -> None:
    """Each claim would else write new entries into every index of task."""
    session = stage.add_session({"db": 4})
    for _ in range(4):
        take(stage, web)
    messages = list(stage.tick())
    assert len(messages) == 4
    with stage.open() as connection, connection.transaction():
        for message in messages:
            transitions.claim(connection, message.lease, message.token, session=session, pid=1, actor="test")
        updated, hot = connection.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'task'"
        ).fetchone() or (0, 0)
    assert (updated, hot) == (4, 4)


def test_expiry_looks_at_ready_late_tasks_only_however_many_wait(stage: Stage) -> None:
    stage.connection.execute(
        "INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready, start_by) "
        "SELECT %s, 'noop.single', 1, 'db', 2, 'queued', true, clock_timestamp() + interval '1 h' "
        "FROM generate_series(1, 5000)",
        (stage.tenant,),
    )
    plan = str(
        stage.connection.execute(
            "EXPLAIN (GENERIC_PLAN) "
            + sql.load("transitions/expire_due").replace("%(limit)s", "$1").replace("%(actor)s", "$2")
        ).fetchall()
    )
    assert "task_start_by" in plan and "task_deadline" in plan and "task_head" not in plan
    assert "Seq Scan" not in plan.replace("Seq Scan on estimate", "")  # a row a kind

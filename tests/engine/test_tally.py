"""What is counted for the metrics: each row once, whoever commits late, and the same by SQL over what was planted."""

import uuid

import pytest
from django.conf import settings

from harness.engine import pressure, tally
from harness.engine.counts import HTTP, PERMIT, Counts
from harness.policy.tally import PASSAGE_S, TASK_S
from harness.store import sessions
from harness.store import tally as stored
from harness.store.tally import Kept
from harness.telemetry.metrics import METRICS
from tests.stage import Stage


def later(stage: Stage) -> None:
    """As if the last round were a while ago."""
    stage.connection.execute(
        "UPDATE tally SET seen_at = seen_at - interval '10 s', stands = jsonb_set(stands, '{depth,at_s}', '0')"
    )


def counted(stage: Stage) -> Kept:
    """Count, as if the last round were a while ago, and return what is kept."""
    later(stage)
    tally.count(stage.connection)
    return kept(stage)


def kept(stage: Stage) -> Kept:
    with stage.connection.transaction():
        found = stored.lock(stage.connection)
    assert found is not None
    return found


def value(found: Kept, name: str, *labels: str) -> float:
    return found.totals.get(name, {}).get(labels, [0.0])[0]


def attempts(stage: Stage, tasks: list[int], verdict: str, *, error: str | None = None, slot_s: float = 1.0) -> None:
    stage.connection.execute(
        "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict, error_class, slot_s) "
        "SELECT id, tenant_id, 1 + (SELECT count(*) FROM attempt a WHERE a.task_id = task.id), clock_timestamp(), "
        "%s, %s, %s FROM task WHERE id = ANY(%s)",
        (verdict, error, slot_s, tasks),
    )


def test_what_was_before_the_first_round_is_not_told_and_what_comes_is_counted_once(stage: Stage) -> None:
    attempts(stage, stage.submit(n=3), "succeed")
    assert counted(stage).totals == {}
    tasks = stage.submit("llm.chat", 5)
    attempts(stage, tasks[:2], "succeed", slot_s=0.3)
    attempts(stage, tasks[2:4], "fail", error="timeout", slot_s=2.0)
    attempts(stage, tasks[4:], "bury", error="permission", slot_s=4000.0)
    for _ in range(2):
        found = counted(stage)
        assert value(found, "harness_tasks_submitted_total", "llm", "2") == 5
        assert value(found, "harness_tasks_ended_total", "llm", "2", "succeeded") == 2
        assert value(found, "harness_retry_count_total", "llm", "2", "timeout") == 2
        assert value(found, "harness_dead_letter_count_total", "llm", "permission") == 1
        assert value(found, "harness_tasks_ended_total", "llm", "2", "failed_terminal") == 1
        assert value(found, "harness_tenant_slot_seconds_total", "acme") == pytest.approx(4004.6)
        ran = found.totals["harness_task_run_time_seconds"]["llm", "llm.chat"]
        assert ran[TASK_S.index(0.5)] == 2 and ran[TASK_S.index(2.5)] == 2 and ran[-2] == 1
        assert sum(ran[:-1]) == 5 and ran[-1] == pytest.approx(4004.6)
    assert found.totals.keys() <= METRICS.keys()


def gaps(stage: Stage) -> list[list[float]]:
    return list(kept(stage).mark["gaps"]["attempt"])


def test_a_row_that_is_committed_late_is_counted_and_one_that_never_is_is_forgotten(stage: Stage) -> None:
    tasks = stage.submit(n=4)
    attempts(stage, tasks[:1], "succeed")
    counted(stage)
    insert = "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict) VALUES (%s, %s, 1, now(), 'succeed')"
    ended = ("harness_attempts_ended_total", "db", "noop.single", "succeed")
    late = stage.open()
    try:
        for i, comes in enumerate((True, False)):
            before = value(kept(stage), *ended)
            late.execute("BEGIN")
            late.execute(insert, (tasks[1 + i], stage.tenant))
            attempts(stage, tasks[3:], "postpone")  # it has a higher number, and is there first
            for _ in range(2):  # it may still come
                assert value(counted(stage), *ended) == before
                # However long ago it was passed over: its transaction is older.
                stage.connection.execute(
                    "UPDATE tally SET mark = jsonb_set(mark, '{gaps,attempt,0,2}', to_jsonb(%s))", (_began_s(stage),)
                )
            assert len(gaps(stage)) == 1
            late.execute("COMMIT" if comes else "ROLLBACK")
            assert value(counted(stage), *ended) == before + comes
            # Nobody who is there now had begun when it was passed over.
            stage.connection.execute("UPDATE tally SET mark = jsonb_set(mark, '{gaps,attempt,0,2}', '0', false)")
            assert value(counted(stage), *ended) == before + comes
            assert gaps(stage) == []
    finally:
        late.close()


def _began_s(stage: Stage) -> float:
    """When the oldest other transaction began."""
    return float(
        stage.one("SELECT extract(epoch FROM clock_timestamp()) - max(age_s) FROM harness_transactions()") or 0.0
    )


def test_cancelled_expired_and_redriven_tasks_are_counted_with_those_that_workers_ended(stage: Stage) -> None:
    counted(stage)
    tasks = stage.submit(n=4)
    attempts(stage, tasks[:1], "succeed")
    stage.connection.execute(
        "INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor) "
        "SELECT id, tenant_id, 2, clock_timestamp(), e.event, 'queued', e.to_state, 'test' FROM task "
        "JOIN (VALUES (%s::bigint, 'cancel', 'cancelled'), (%s, 'cancel', 'cancelled'), "
        "(%s, 'expire', 'failed_terminal')) e(task, event, to_state) ON e.task = task.id",
        (tasks[1], tasks[2], tasks[3]),
    )
    for _ in range(3):
        found = counted(stage)
        assert value(found, "harness_tasks_ended_total", "db", "2", "cancelled") == 2
        assert value(found, "harness_dead_letter_count_total", "db", "expired") == 1
        assert found.stands["cancellation_rate"] == pytest.approx(0.5)


def test_a_decision_is_counted_with_how_long_it_was_waited_for(stage: Stage) -> None:
    counted(stage)
    (task,) = stage.submit()
    stage.connection.execute(
        "INSERT INTO approval (task_id, tenant_id, ordinal, name, prompt, choices, on_timeout, deny, asked_at, open, "
        "verdict, decided_at, waited_s) VALUES (%s, %s, 1, 'send', '?', '{yes}', 'pause', 'cancel', now(), false, "
        "'approve', now(), 45.0)",
        (task, stage.tenant),
    )
    stage.connection.execute(
        "INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data) VALUES "
        "(%s, %s, 2, clock_timestamp(), 'approve', 'waiting_approval', 'waiting_approval', 'a', '{\"ordinal\": 1}')",
        (task, stage.tenant),
    )
    found = counted(stage)
    assert value(found, "harness_approvals_decided_total", "approve") == 1
    waited = found.totals["harness_approval_wait_time_seconds"][()]
    assert waited[2] == 1 and waited[-1] == 45.0


def test_the_wait_is_that_of_the_first_start_from_when_it_might_run(stage: Stage) -> None:
    counted(stage)
    first, planned = stage.submit(n=2)
    stage.connection.execute(
        "UPDATE task SET created_at = now() - interval '100 s', first_claimed_at = now() - interval '60 s', "
        "ready_at = CASE WHEN id = %s THEN now() - interval '63 s' END WHERE id = ANY(%s)",
        (planned, [first, planned]),
    )
    attempts(stage, [first, planned], "postpone")
    attempts(stage, [first], "succeed")
    waited = counted(stage).totals["harness_task_wait_time_seconds"]["db", "2"]
    assert sum(waited[:-1]) == 2 and waited[-1] == pytest.approx(43.0, abs=0.5)
    assert waited[TASK_S.index(5.0)] == 1 and waited[TASK_S.index(60.0)] == 1


def test_processes_that_begin_anew_or_end_leave_what_they_counted(stage: Stage) -> None:
    counted(stage)
    one, two = stage.add_session(), stage.add_session()

    def tell(session: uuid.UUID, pid: int, calls: float, *waits_s: float) -> None:
        counts = Counts()
        for waited_s in waits_s:
            counts.waited(PERMIT, "llm:default", waited_s)
            counts.waited(HTTP, "llm:default", waited_s)
        totals = counts.read() | {"calls:rate": {"llm:default": [calls]}, "calls:timed_out": {"llm:default": [1.0]}}
        sessions.beat(stage.connection, session, totals={pid: totals})

    tell(one, 1, 2.0, 0.002, 0.3)
    tell(two, 1, 5.0, 0.3)
    found = counted(stage)
    assert value(found, "harness_provider_calls_total", "llm:default", "429") == 7
    assert value(found, "harness_provider_calls_total", "llm:default", "timeout") == 2
    tell(one, 1, 3.0, 0.002, 0.3, 0.3)
    sessions.tell(stage.connection, one, 7, {"calls:rate": {"llm:default": [1.0]}})  # a prefork child beside it
    sessions.end(stage.connection, two)
    for _ in range(2):
        found = counted(stage)
        assert value(found, "harness_provider_calls_total", "llm:default", "429") == 9
        waited = found.totals["harness_permit_wait_time_seconds"]["llm:default",]
        assert waited[PASSAGE_S.index(0.5)] == 3 and sum(waited[:-1]) == 4
        assert found.totals["harness_http_pool_wait_seconds"]["llm:default",] == waited
    tell(one, 1, 1.0)  # it began anew under the same pid
    assert value(counted(stage), "harness_provider_calls_total", "llm:default", "429") == 10


def test_the_twenty_tenants_that_use_most_are_named_and_nobodys_share_is_told_twice(stage: Stage) -> None:
    counted(stage)
    tenants = [stage.add_tenant(f"t{i:02}") for i in range(25)]
    for i, tenant in enumerate(tenants):
        attempts(stage, stage.submit(tenant=tenant), "succeed", slot_s=float(1 + i))
    found = counted(stage)
    of = {labels[0]: values[0] for labels, values in found.totals["harness_tenant_slot_seconds_total"].items()}
    assert len(of) == 21 and of["t24"] == 25.0 and "t04" not in of
    assert of["other"] == 1 + 2 + 3 + 4 + 5
    assert found.stands["tenants_waiting"]["other"] == 5 and found.stands["tenants_waiting"]["t24"] == 1


def test_how_things_stand_is_what_the_tables_say(stage: Stage) -> None:
    stage.submit("llm.chat", 3, priority=1)
    stage.submit("noop.single", 2)
    stage.add_session()
    for message in stage.tick()[:1]:
        stage.claim(message, stage.add_session())
    stage.connection.execute("UPDATE task SET ready_at = now() - interval '100 s' WHERE kind = 'llm.chat' AND ready")
    found = counted(stage).stands
    by_sql = stage.connection.execute(
        "SELECT pool, priority, tenant_id, count(*) FROM task WHERE ready GROUP BY 1, 2, 3"
    ).fetchall()
    assert sorted(map(tuple, found["depth"]["ready"])) == sorted(by_sql)
    held = {pool: rest for pool, *rest in found["held"]}
    assert sum(rest[0] for rest in held.values()) == stage.one("SELECT count(*) FROM lease")
    assert sum(rest[1] for rest in held.values()) == 1
    assert dict(found["slots"])["llm"] == 8


def test_a_rise_of_the_level_is_counted_by_the_level_reached(stage: Stage) -> None:
    counted(stage)
    stage.connection.execute(
        "INSERT INTO level_change (at, before, after, signals, done) VALUES "
        "(now(), 0, 2, '{}', ''), (now(), 2, 1, '{}', ''), (now(), 1, 2, '{}', '')"
    )
    pressure.judge(stage.connection, settings.HARNESS_TOPOLOGY)
    found = counted(stage)
    assert value(found, "harness_backpressure_trigger_count_total", "high") == 2
    assert found.stands["level"][0] == 0 and "queue_depth" in found.stands["level"][2]


def test_a_second_leader_does_not_count_what_was_counted_a_moment_ago(stage: Stage) -> None:
    counted(stage)
    before = kept(stage)
    tally.count(stage.connection)
    assert kept(stage).seen_s == before.seen_s


def test_more_than_a_round_takes_is_counted_by_the_next(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    counted(stage)
    monkeypatch.setattr(stored, "ROWS_MOST", 10)
    attempts(stage, stage.submit(n=25), "succeed")
    later(stage)
    rounds = 1
    while tally.count(stage.connection):  # at once: it isn't put off as a round too soon
        rounds += 1
    assert rounds == 3
    found = kept(stage)
    assert value(found, "harness_attempts_ended_total", "db", "noop.single", "succeed") == 25
    assert value(found, "harness_tasks_submitted_total", "db", "2") == 25

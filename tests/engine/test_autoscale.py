"""How many workers a pool should have, on the real database: from its rows to a row a pool, and each change kept."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings

from harness.engine import autoscale, pressure
from harness.policy.autoscale import Advice
from harness.store import autoscale as stored
from harness.store import housekeeping
from tests.engine.test_pressure import later
from tests.stage import Stage

TOPOLOGY = settings.HARNESS_TOPOLOGY


def observed(stage: Stage, **of_llm: object) -> None:
    """As if the stage `observe` had just seen all resources, llm:default so."""
    calls = [name for name, one in TOPOLOGY.resources.items() if one.held == "call"]
    stage.connection.execute(
        "INSERT INTO resource_state (resource, limit_now, mode, breaker, in_flight, waiting, seen_at) "
        "SELECT name, 50, 'fixed', 'closed', 0, 0, clock_timestamp() FROM unnest(%s::text[]) AS name "
        "ON CONFLICT (resource) DO UPDATE SET seen_at = clock_timestamp()",
        (calls,),
    )
    for field, value in of_llm.items():
        stage.connection.execute(
            f"UPDATE resource_state SET {field} = %s WHERE resource = 'llm:default'",
            (value,),
        )


def advise(stage: Stage, passed_s: float = 5.0) -> dict[str, Advice]:
    later(stage, passed_s)
    stage.connection.execute("UPDATE advice SET seen_at = clock_timestamp() - make_interval(secs => %s)", (passed_s,))
    judged = pressure.judge(stage.connection, TOPOLOGY)
    return {one.pool: one for one in autoscale.advise(stage.connection, TOPOLOGY, judged)}


def workers(stage: Stage, n: int, pool: str = "llm") -> list[uuid.UUID]:
    return [stage.add_session({pool: TOPOLOGY.pools[pool].slots}) for _ in range(n)]


def refuse(stage: Stage, n: int) -> None:
    """As if so many calls of llm.chat had just been answered 429."""
    tasks = stage.submit("llm.chat", n)
    stage.connection.execute(
        "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict, error_class, slot_s) "
        "SELECT id, %s, 1, clock_timestamp(), 'postpone', 'rate_limit', 0.2 FROM unnest(%s::bigint[]) AS id",
        (stage.tenant, tasks),
    )


def test_what_waits_asks_for_workers_and_the_quota_says_how_many(stage: Stage) -> None:
    observed(stage)
    workers(stage, 1)
    assert advise(stage)["llm"].desired == 1
    stage.submit("llm.chat", 3000)
    found = advise(stage)["llm"]
    assert (found.workers, found.desired, found.binds) == (1, 4, "llm:default")
    assert found.reason == "llm:default limit 50, in use 0: that keeps 50 slots at work"
    workers(stage, 3)
    found = advise(stage)["llm"]
    assert (found.workers, found.desired) == (4, 4)
    assert found.reason == "adding workers will not help: llm:default limit 50, in use 0"
    kept = stored.now(stage.connection)
    assert kept["llm"].advice == found and not kept["llm"].stale
    assert kept.keys() == TOPOLOGY.pools.keys() - {"system", "quarantine"}
    (change,) = [one for one in stored.changes(stage.connection, most=10) if one.pool == "llm"]
    assert (change.before, change.after, change.workers, change.binds) == (1, 4, 1, "llm:default")


def test_while_the_provider_answers_429_a_growing_backlog_adds_nobody(stage: Stage) -> None:
    observed(stage)
    workers(stage, 1)
    advise(stage)
    for _ in range(4):
        refuse(stage, 500)
        found = advise(stage, 15.0)["llm"]
        assert (found.desired, found.holds, found.binds) == (1, True, "llm:default")
    assert found.reason == "adding workers will not help: llm:default answers 429; limit 50, in use 0"
    stage.connection.execute("UPDATE attempt SET ended = ended - interval '20 seconds'")
    assert advise(stage)["llm"].desired == 4, "ten seconds after the last one there is room"


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"breaker": "open"}, "has its breaker open"),
        ({"seen_at": "2026-01-01T00:00:00+00:00"}, "wasn't seen for 30 s"),
    ],
)
def test_towards_what_is_shut_or_unknown_nobody_is_added(stage: Stage, state: dict[str, object], says: str) -> None:
    observed(stage, **state)
    workers(stage, 1)
    stage.submit("llm.chat", 3000)
    found = advise(stage)["llm"]
    assert (found.desired, found.holds) == (1, True) and says in found.reason


def test_a_pool_whose_tasks_need_nothing_is_bound_by_work_and_then_by_connections(stage: Stage) -> None:
    observed(stage)
    workers(stage, 1, "db")
    stage.submit("noop.single", 300_000 // 20)
    found = advise(stage)["db"]
    assert found.desired > 1 and found.binds in ("work", "connections")
    stage.connection.execute("UPDATE worker_session SET connections = 60")
    found = advise(stage)["db"]
    assert (found.wanted, found.binds) == (1, "connections")
    assert found.reason.startswith("the budget of connections to Harness's own database allows 1 processes")


def test_who_drains_or_is_dead_is_no_worker_and_a_pool_without_any_gets_one_for_its_work(stage: Stage) -> None:
    observed(stage)
    one, two = workers(stage, 2)
    stage.connection.execute("UPDATE worker_session SET draining = true WHERE uuid = %s", (one,))
    stage.forget_beats(two)
    stage.submit("llm.chat")
    found = advise(stage)
    assert (found["llm"].workers, found["llm"].desired) == (0, 1)
    assert (found["browser"].workers, found["browser"].desired) == (0, 0)


def test_facts_that_can_not_be_read_leave_the_advice_as_it_is_until_it_is_stale(stage: Stage) -> None:
    observed(stage)
    advise(stage)
    assert autoscale.advise(stage.connection, TOPOLOGY, pressure.Judged()) == ()
    stage.connection.execute("UPDATE advice SET seen_at = clock_timestamp() - interval '31 seconds'")
    assert all(one.stale for one in stored.now(stage.connection).values())


def test_a_pressure_that_comes_from_behind_the_workers_adds_nobody(stage: Stage) -> None:
    observed(stage)
    workers(stage, 1)
    advise(stage)
    tasks = stage.submit("llm.chat", 3000)
    stage.connection.execute(
        "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict, error_class, slot_s) "
        "SELECT id, %s, 1, clock_timestamp(), 'bury', 'server_error', 30 FROM unnest(%s::bigint[]) AS id",
        (stage.tenant, tasks[:100]),
    )
    found = advise(stage)["llm"]
    assert (found.desired, found.binds, found.holds) == (1, "pressure", True)
    assert "the pressure is high by tool_error_rate" in found.reason


def test_advice_is_for_the_engine_to_write_and_for_web_to_count(stage: Stage) -> None:
    observed(stage)
    advise(stage)
    with stage.open("web") as web:
        assert stored.counted(web).keys() == stored.now(stage.connection).keys()
        with pytest.raises(Exception, match="permission denied"):
            web.execute("SELECT reason FROM advice")
    with stage.open("staff") as staff, pytest.raises(Exception, match="permission denied"):
        staff.execute("DELETE FROM advice_change")


def test_changes_are_kept_as_long_as_the_rest(stage: Stage) -> None:
    stage.connection.execute(
        "INSERT INTO advice_change (at, pool, before, after, workers, binds, reason) "
        "SELECT clock_timestamp() - make_interval(days => d), 'llm', 1, 2, 1, 'work', '' FROM unnest(ARRAY[100, 1]) d"
    )
    before = datetime.now(UTC) - timedelta(days=90)
    assert sum(housekeeping.delete_old_limits(stage.connection, before=before)) == 1
    assert len(stored.changes(stage.connection, most=10)) == 1

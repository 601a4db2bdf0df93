"""Forecasts from the real tables: what a pass tells of what waits and runs, what it withholds, and how it is judged."""

from datetime import datetime, timedelta
from random import Random

import pytest
from django.conf import settings

from harness.engine import foresee
from harness.engine.foresee import Foreseen
from harness.policy.eta import Trust
from harness.store import forecasts
from harness.store.forecasts import Expected
from tests.stage import Stage

TOPOLOGY = settings.HARNESS_TOPOLOGY


@pytest.fixture(autouse=True)
def led(stage: Stage) -> None:
    stage.hold_lead()


def make_pass(stage: Stage, seed: int = 1) -> Foreseen:
    return foresee.foresee(stage.connection, TOPOLOGY, Random(seed), again=True)


def expected(stage: Stage, *tasks: int) -> list[Expected]:
    found = forecasts.of_tasks(stage.connection, tasks)
    return [found[task] for task in tasks]


def wait_s(stage: Stage, one: Expected) -> tuple[float, float]:
    assert one.start_p50 is not None and one.start_p90 is not None
    return (one.start_p50 - one.at).total_seconds(), (one.start_p90 - one.at).total_seconds()


def attempts(stage: Stage, kind: str, n: int, seconds: float) -> None:
    """As if so many tasks of a kind had taken about so long, an hour ago."""
    tasks = stage.submit(kind, n)
    stage.connection.execute("DELETE FROM flow")
    stage.connection.execute(
        "UPDATE task SET state = 'cancelled', ready = false, finished_at = clock_timestamp(), "
        "created_at = clock_timestamp() - interval '2 hours' WHERE id = ANY(%s)",
        (tasks,),
    )
    stage.connection.execute(
        "INSERT INTO attempt (task_id, tenant_id, release_no, started, ended, verdict, slot_s) "
        "SELECT id, %s, 1, clock_timestamp() - interval '1 hour', clock_timestamp() - interval '1 hour', 'succeed', "
        "%s * (0.8 + 0.4 * random()) FROM unnest(%s::bigint[]) AS x(id)",
        (stage.tenant, seconds, tasks),
    )


def test_what_waits_behind_what_runs_gets_a_place_a_start_and_an_end(stage: Stage) -> None:
    attempts(stage, "noop.single", 30, 10.0)
    session = stage.add_session({"db": 2})
    tasks = stage.submit(n=6)
    for message in stage.tick():
        stage.claim(message, session)
    found = make_pass(stage)
    assert not found.skipped and found.looked_at == 6
    running = expected(stage, *tasks[:2])
    assert all(one.position is None and one.start_p50 is None and one.end_p50 is not None for one in running)
    waiting = expected(stage, *tasks[2:])
    assert [one.position for one in waiting] == [1, 2, 3, 4]
    waits = [wait_s(stage, one) for one in waiting]
    assert 5.0 < waits[0][0] < 13.0 and 15.0 < waits[2][0] < 25.0
    assert all(p50 <= p90 for p50, p90 in waits)
    assert all(one.end_p50 and one.start_p50 and one.end_p50 > one.start_p50 and one.reason == "" for one in waiting)


def test_the_order_is_the_plans_and_not_that_of_submission(stage: Stage) -> None:
    attempts(stage, "noop.single", 30, 10.0)
    stage.add_session({"db": 1})
    (batch,) = stage.submit(priority=3)
    urgent = stage.submit(n=3, priority=1)
    make_pass(stage)
    places = {task: one.position for task, one in forecasts.of_tasks(stage.connection, [batch, *urgent]).items()}
    assert [places[task] for task in urgent] == [1, 2, 3] or places[batch] in (2, 3)
    assert places[urgent[0]] == 1 and places[batch] != 1


def test_another_tenants_backlog_counts_and_is_not_told(stage: Stage) -> None:
    attempts(stage, "noop.single", 30, 10.0)
    stage.add_session({"db": 1})
    other = stage.add_tenant("other")
    theirs = stage.submit(n=20, tenant=other)
    (mine,) = stage.submit()
    make_pass(stage)
    (one,) = expected(stage, mine)
    assert one.position is not None and one.position <= 3, "its tenant has had nothing yet: it goes before their second"
    with stage.open("web") as web, web.transaction():
        web.execute("SELECT set_config('harness.tenant', %s, true)", (str(stage.tenant),))
        assert forecasts.of_tasks(web, [mine, *theirs]).keys() == {mine}
        assert forecasts.last_pass(web) is not None


def test_what_is_shut_has_a_reason_instead_of_a_number(stage: Stage) -> None:
    stage.add_session({"db": 1})
    stage.connection.execute(
        "INSERT INTO pause (scope, key, source, author, reason) VALUES ('priority', '3', 'operator', 'ann', 'quiet')"
    )
    paused = stage.submit(n=1, priority=3)[0]
    orphan = stage.submit("llm.chat")[0]  # nobody works in its pool
    free = stage.submit(n=1, priority=2)[0]
    stage.connection.execute(
        "INSERT INTO wait_reason (pool, priority, tenant_id, run_id, signature, code, subject, facts, before, since) "
        "SELECT pool, priority, tenant_id, run_id, signature, "
        "CASE WHEN pool = 'db' THEN 'paused' ELSE 'no_worker' END, '', '{}', '{}', clock_timestamp() "
        "FROM flow WHERE priority = 3 OR pool <> 'db'"
    )
    make_pass(stage)
    found = expected(stage, paused, orphan, free)
    assert [one.reason for one in found] == ["paused", "no_worker", ""]
    assert all(one.start_p50 is None and one.end_p50 is None for one in found[:2])


def test_without_a_dispatcher_nothing_is_expected_to_start(stage: Stage) -> None:
    stage.add_session({"db": 1})
    (task,) = stage.submit()
    stage.connection.execute("UPDATE leader SET until = clock_timestamp() - interval '1 minute'")
    make_pass(stage)
    (one,) = expected(stage, task)
    assert (one.reason, one.start_p50) == ("no_dispatcher", None)


def test_a_task_that_waits_for_its_time_starts_then_or_later(stage: Stage) -> None:
    stage.add_session({"db": 1})
    at: datetime = stage.one("SELECT clock_timestamp() + interval '10 minutes'")
    (task,) = stage.submit(not_before=at)
    make_pass(stage)
    (one,) = expected(stage, task)
    assert one.start_p50 is not None and timedelta() <= one.start_p50 - at < timedelta(seconds=5)


def test_a_run_ends_when_its_last_task_does_and_not_before_all_of_them_were_looked_at(stage: Stage) -> None:
    attempts(stage, "noop.single", 30, 10.0)
    stage.add_session({"db": 2})
    run = stage.one("INSERT INTO run (tenant_id, size) VALUES (%s, 4) RETURNING id", stage.tenant)
    stage.submit(n=4, run=run)
    make_pass(stage)
    whole = forecasts.of_run(stage.connection, run)
    assert whole is not None and whole.end_p50 is not None and whole.end_p90 is not None
    assert 15.0 < (whole.end_p50 - whole.at).total_seconds() < 27.0
    stage.connection.execute("UPDATE forecast_pass SET most = 20")
    stage.submit(n=300, run=run)
    make_pass(stage)
    part = forecasts.of_run(stage.connection, run)
    assert part is not None and (part.end_p50, part.reason) == (None, "far")


def test_a_pass_looks_at_what_it_may_cost_and_at_the_first_of_every_flow(stage: Stage) -> None:
    stage.add_session({"db": 4})
    long = stage.submit(n=900)
    (last,) = stage.submit(tenant=stage.add_tenant("small"))
    found = make_pass(stage)
    assert found.looked_at <= foresee.MOST_FIRST
    told = forecasts.of_tasks(stage.connection, [*long, last])
    assert last in told and long[0] in told and long[-1] not in told
    seen = forecasts.last_pass(stage.connection)
    assert seen is not None and seen.waiting == 901 and seen.looked_at == found.looked_at


def test_more_flows_than_a_pass_looks_at_hide_no_class(stage: Stage) -> None:
    stage.add_session({"db": 4})
    stage.connection.execute(
        "INSERT INTO run (public_id, tenant_id, size, name) SELECT gen_random_uuid(), %s, 1, '' "
        "FROM generate_series(1, %s)",
        (stage.tenant, forecasts.FLOWS_MOST + 50),
    )
    for (run,) in stage.connection.execute("SELECT id FROM run WHERE id > 0 ORDER BY id").fetchall():
        stage.submit(priority=3, run=run)
    urgent = stage.submit(n=3, tenant=stage.add_tenant("other"), priority=1)
    make_pass(stage)
    assert all(one.position is not None and one.position <= 6 for one in expected(stage, *urgent))


def test_two_beats_make_one_pass_and_a_second_one_comes_later(stage: Stage) -> None:
    stage.add_session({"db": 1})
    stage.submit()
    with stage.open() as other:
        assert forecasts.lock(other)
        assert make_pass(stage).skipped
        forecasts.unlock(other)  # its server process may outlive the connection for a moment
    first = foresee.foresee(stage.connection, TOPOLOGY, Random(1))
    assert not first.skipped and foresee.foresee(stage.connection, TOPOLOGY, Random(1)).skipped
    stage.connection.execute("UPDATE forecast_pass SET at = at - interval '10 seconds'")
    assert not foresee.foresee(stage.connection, TOPOLOGY, Random(1)).skipped


def test_the_first_forecast_is_held_against_the_first_start(stage: Stage) -> None:
    session = stage.add_session({"db": 1})
    began, cancelled, waits = stage.submit(n=3)
    make_pass(stage)
    assert stage.one("SELECT count(*) FROM forecast_borne WHERE actual_s IS NULL") == 3
    stage.connection.execute("UPDATE forecast_borne SET at = at - interval '30 seconds'")
    for message in stage.tick():
        stage.claim(message, session)
    stage.connection.execute(
        "UPDATE task SET state = 'cancelled', ready = false, finished_at = clock_timestamp() WHERE id = %s",
        (cancelled,),
    )
    make_pass(stage)
    rows: dict[int, float | None] = dict(
        stage.connection.execute("SELECT task_id, actual_s FROM forecast_borne").fetchall()
    )
    assert rows.keys() == {began, waits}
    assert rows[began] == pytest.approx(30.0, abs=5.0) and rows[waits] is None


def test_forecasts_that_are_not_borne_out_are_withdrawn_and_that_is_published(stage: Stage) -> None:
    stage.add_session({"db": 1})
    ended = stage.submit(n=120)
    stage.connection.execute(
        "INSERT INTO forecast_borne (task_id, priority, at, raw_p50_s, raw_p90_s, shown_p50_s, shown_p90_s, plain_s, "
        "actual_s) SELECT id, 2, clock_timestamp() - interval '1 second' * (60 * (row_number() OVER () / 8)), 10, 20, "
        "10, 20, 30, 200 FROM unnest(%s::bigint[]) AS x(id)",
        (ended,),
    )
    found = make_pass(stage)
    assert found.calibration.trust is Trust.WITHDRAWN
    told = forecasts.of_tasks(stage.connection, ended)
    assert {one.reason for one in told.values()} == {"withdrawn"} and all(
        one.start_p50 is None for one in told.values()
    )
    seen = forecasts.last_pass(stage.connection)
    assert seen is not None and seen.trust is Trust.WITHDRAWN
    assert seen.calibration["p90_covers"] == 0.0 and seen.calibration["n"] == 120


def test_what_was_beyond_the_horizon_is_no_loss_in_seconds(stage: Stage) -> None:
    stage.add_session({"db": 1})
    ended = stage.submit(n=120)
    stage.connection.execute(
        "INSERT INTO forecast_borne (task_id, priority, at, raw_p50_s, raw_p90_s, shown_p50_s, shown_p90_s, plain_s, "
        "actual_s) SELECT id, 2, clock_timestamp() - interval '1 second' * (60 * (row_number() OVER () / 8)), 10, p90, "
        "10, p90, 30, 10 FROM unnest(%s::bigint[]) WITH ORDINALITY AS y(id, n), "
        "LATERAL (SELECT CASE WHEN n %% 2 = 0 THEN 20 ELSE 86400 END) AS x(p90)",
        (ended,),
    )
    make_pass(stage)
    seen = forecasts.last_pass(stage.connection)
    assert seen is not None and seen.calibration["n"] == 120
    assert seen.calibration["pinball_s"] == pytest.approx(1.0)  # a tenth of the 10 s that its P90 was too far
    assert seen.calibration["pinball_ratio"] == pytest.approx(1.0 / 12.0)  # the other: 0.5 and 0.1 of 20 s


def test_what_is_shown_moves_slowly_unless_something_happened_and_then_says_what(stage: Stage) -> None:
    attempts(stage, "noop.single", 30, 10.0)
    session = stage.add_session({"db": 4})
    tasks = stage.submit(n=40)
    make_pass(stage)
    (before,) = expected(stage, tasks[-1])
    stage.connection.execute("UPDATE attempt SET slot_s = slot_s * 10")
    make_pass(stage, 2)
    (eased,) = expected(stage, tasks[-1])
    p50_s, eased_s = wait_s(stage, before)[0], wait_s(stage, eased)[0]
    assert p50_s < eased_s <= 1.3 * p50_s + 6.0 and eased.moved == ""
    stage.connection.execute("UPDATE worker_session SET pools = '{\"db\": 1}' WHERE uuid = %s", (session,))
    make_pass(stage, 3)
    (jumped,) = expected(stage, tasks[-1])
    assert jumped.moved == "slots" and wait_s(stage, jumped)[0] > 5 * eased_s

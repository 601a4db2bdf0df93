"""More flows than a look takes: signals and the door still see every class, and how much waits in all."""

import pytest
from django.conf import settings

from harness.store import door, pressure
from harness.store.pressure import FLOWS_MOST
from tests.stage import Stage

RESOURCES = settings.HARNESS_TOPOLOGY.resources
RUNS = FLOWS_MOST + 1_000
DRAWN = 0.1  # every second of them is drawn by chance: seven times what they then stand for errs by


@pytest.fixture
def flood(stage: Stage) -> Stage:
    """A tenant with more runs of one task at P3 than flows are looked at; behind them somebody else's P1."""
    connection = stage.connection
    connection.execute(
        "INSERT INTO run (public_id, tenant_id, size, name) SELECT gen_random_uuid(), %s, 1, '' "
        "FROM generate_series(1, %s)",
        (stage.tenant, RUNS),
    )
    connection.execute(
        "INSERT INTO task (public_id, tenant_id, run_id, kind, version, pool, priority, signature, state, ready) "
        "SELECT gen_random_uuid(), tenant_id, id, 'noop.single', 1, 'db', 3, '', 'queued', true FROM run WHERE id > 0"
    )
    connection.execute(
        "INSERT INTO flow (pool, priority, tenant_id, run_id, signature) "
        "SELECT pool, priority, tenant_id, run_id, signature FROM task ON CONFLICT DO NOTHING"
    )
    stage.submit("noop.single", 50, tenant=stage.add_tenant("other"), priority=1)
    stage.submit("noop.sleep", 7, tenant=stage.add_tenant("third"), priority=2)
    stage.add_session({"db": 4, "tool_read": 8})
    return stage


def test_signals_see_every_class_and_what_waits_in_all(flood: Stage) -> None:
    found = pressure.facts(flood.connection, RESOURCES, connections=80, tasks=5_000)
    waiting = {(one.pool, one.priority): one.number for one in found.waiting}
    assert waiting == {("db", 3): pytest.approx(RUNS, rel=DRAWN), ("db", 1): 50, ("tool_read", 2): 7}
    assert {(one.pool, one.priority) for one in found.heads} == waiting.keys()


def test_the_door_sees_every_class_and_what_waits_in_all(flood: Stage) -> None:
    found = door.look(flood.connection, RESOURCES).facts
    assert {(one.place, one.priority): one.tasks for one in found.waiting} == {
        ("pool db", 3): pytest.approx(RUNS, rel=DRAWN),
        ("pool db", 1): 50.0,
        ("pool tool_read", 2): 7.0,
    }


def test_who_is_blocked_by_many_flows_of_its_own_hides_nobody_of_its_class(flood: Stage) -> None:
    flood.connection.execute(
        "INSERT INTO wait_reason (pool, priority, tenant_id, run_id, signature, code, subject, facts, before, since) "
        "SELECT pool, priority, tenant_id, run_id, signature, 'tenant_cap', '', '{}', '{}', clock_timestamp() "
        "FROM flow WHERE priority = 3 ORDER BY id LIMIT %s",
        (FLOWS_MOST,),
    )
    found = pressure.facts(flood.connection, RESOURCES, connections=80, tasks=5_000)
    (waits,) = (one for one in found.waiting if one.priority == 3)
    assert waits.number == pytest.approx(RUNS - FLOWS_MOST, rel=2 * DRAWN)


def test_a_long_line_of_one_among_many_short_ones_is_counted_whole(stage: Stage) -> None:
    for n in range(300):
        stage.submit("noop.single", 1, tenant=stage.add_tenant(f"small-{n}"), priority=2)
    stage.submit("noop.single", 3_000, priority=2)
    found = pressure.facts(stage.connection, RESOURCES, connections=80, tasks=5_000)
    (waits,) = found.waiting
    assert waits.number == 3_300

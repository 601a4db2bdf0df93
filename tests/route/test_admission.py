"""Admission with real processes: what is deferred starts nothing until the dispatcher lets it in, and is done then."""

import time
import uuid
from collections.abc import Iterator

import pytest

from harness.engine import submit
from harness.engine.submit import Door, TaskRequest
from harness.kinds import registry
from harness.policy.admission import Overload
from harness.policy.pressure import Level
from harness.store import queries, transitions
from harness.store.database import Connection
from tests.engine.test_pressure import set_level
from tests.route.conftest import Route
from tests.stage import wait_until

KIND = "noop.sleep"
SERVICE_S = 30.0
WAITING = 800


@pytest.fixture
def web(route: Route) -> Iterator[Connection]:
    with route.stage.open("web") as connection:
        yield connection


def test_the_deferred_are_let_in_by_a_real_dispatcher_when_the_line_is_short(route: Route, web: Connection) -> None:
    stage = route.stage
    found = registry.find(KIND)
    assert found is not None
    stage.connection.execute("INSERT INTO estimate (kind, mean_s) VALUES (%s, %s)", (KIND, SERVICE_S))
    set_level(stage, Level.ELEVATED)
    route.dispatcher()
    route.worker(found.pool)
    before = stage.submit(KIND, WAITING, input='{"sleep_s": 600}')
    wait_until(lambda: route.count("running") > 0, within_s=20)
    wait_until(lambda: _waits_for(route, found.pool) > 600.0, within_s=20)

    tenant = queries.tenant_facts(stage.connection, stage.tenant)
    assert tenant is not None
    door = Door(body_max_bytes=10_000)
    requests = [TaskRequest(kind=KIND, input={"sleep_s": 0}) for _ in range(5)]
    accepted = submit.submit(door, web, tenant, requests, actor="test")
    assert accepted.deferred == 5
    time.sleep(3.0)  # three rounds of the dispatcher's side
    assert _releases(route, accepted.task_ids) == 0, "starts before they were let in"

    set_level(stage, Level.CRITICAL)
    time.sleep(1.1)
    with pytest.raises(Overload):
        submit.submit(door, web, tenant, requests, actor="test")
    for task in before:
        transitions.cancel(stage.connection, task, actor="test")
    wait_until(lambda: _releases(route, accepted.task_ids) == 5, within_s=30)
    wait_until(lambda: route.count("succeeded") == 5, within_s=30)
    events = stage.connection.execute(
        "SELECT DISTINCT e.event FROM event e JOIN task t ON t.id = e.task_id "
        "WHERE t.public_id = ANY(%s) AND e.seq = 2",
        (list(accepted.task_ids),),
    ).fetchall()
    assert events == [("ripen",)]


def _releases(route: Route, tasks: tuple[uuid.UUID, ...]) -> int:
    return int(route.stage.one("SELECT count(*) FROM task WHERE public_id = ANY(%s) AND release_no > 0", list(tasks)))


def _waits_for(route: Route, pool: str) -> float:
    """How long the line of a pool is, by the row that the dispatcher keeps (seconds)."""
    place = route.stage.one("SELECT facts -> 'places' -> %s FROM door", f"pool {pool}")
    if not place or not place[0]:
        return 0.0
    return float(sum(tasks for tasks, _ in place[4][2]) * place[2] / place[0])

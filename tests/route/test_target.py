"""A target under real workers: more of them change nothing, others are given way, its absence blocks it alone."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from harness.store import resources
from tests.route.conftest import Route
from tests.stage import wait_until
from tests.target_database import VARIABLE, TargetDatabase, target_database

HOLDS_S = 0.2
ALL = 600
ACTS_S = 3.0


@pytest.fixture
def target(route: Route) -> Iterator[TargetDatabase]:
    with target_database() as made:
        route.environment[VARIABLE] = made.url
        yield made


def holds(seconds: float) -> str:
    return json.dumps({"report": "hold", "parameters": {"seconds": seconds}})


def test_two_workers_of_twenty_threads_keep_to_twenty_and_to_ten_when_ten_are_taken(
    route: Route, target: TargetDatabase
) -> None:
    route.dispatcher()
    route.workers("target", "target")
    wait_until(lambda: resources.kept(route.stage.connection).keys() >= {"db:main"}, within_s=10)
    route.stage.submit("db.report", n=ALL, input=holds(HOLDS_S))
    seen: list[int] = []

    def done(number: int) -> bool:
        seen.append(target.ours())
        return route.count("succeeded") >= number

    wait_until(lambda: done(80), within_s=60)
    assert 10 < max(seen) <= 20
    with ExitStack() as others:
        for _ in range(10):
            others.enter_context(target.foreign())
        wait_until(lambda: target.ours() <= 10, within_s=10)
        wait_until(lambda: resources.kept(route.stage.connection)["db:main"].limit_now == 10, within_s=5)
        # The planner takes it within a second, and what ran then ends by itself.
        acts_s = time.monotonic() + ACTS_S
        wait_until(lambda: time.monotonic() > acts_s and target.ours() <= 10, within_s=2 * ACTS_S)
        settled = route.count("succeeded")
        seen.clear()
        wait_until(lambda: done(min(settled + 60, ALL)), within_s=60)
        assert 5 < max(seen) <= 10
    wait_until(lambda: done(ALL), within_s=90)
    assert route.stage.one("SELECT count(*) FROM attempt WHERE verdict <> 'succeed'") == 0
    waited = route.stage.one(
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY (output ->> 'waited_s')::float) FROM task_body"
    )
    assert 0 < waited < 0.2
    wait_until(lambda: target.ours() == 0, within_s=15)  # the home keeps what it has for a while
    assert route.stage.one("SELECT count(DISTINCT session) FROM attempt") == 1


def test_a_target_without_an_address_blocks_its_own_work_alone(route: Route) -> None:
    route.environment.pop(VARIABLE, None)
    (early,) = route.stage.submit("db.report", input=holds(0.0))
    route.dispatcher()
    route.worker("db,target")
    wait_until(
        lambda: (kept := resources.kept(route.stage.connection).get("db:main")) is not None and kept.limit_now == 0,
        within_s=15,
    )
    late = route.stage.submit("db.report", n=3, input=holds(0.0))
    others = route.stage.submit("noop.single", n=5)
    wait_until(lambda: all(route.stage.state(task) == "succeeded" for task in others), within_s=20)
    # What was released before the planner knew comes back by itself.
    wait_until(lambda: {route.stage.state(task) for task in (early, *late)} == {"queued"}, within_s=10)
    assert {route.stage.row(task)["attempts_used"] for task in (early, *late)} == {0}
    assert resources.changes(route.stage.connection, "db:main", most=1)[0].reason == "unset"


def test_what_a_killed_worker_left_in_the_target_ends_there(route: Route, target: TargetDatabase) -> None:
    route.dispatcher()
    worker = route.worker("target")
    route.stage.submit("db.report", n=3, input=holds(55.0))
    wait_until(lambda: target.ours() == 3, within_s=15)
    worker.send_signal(signal.SIGKILL)
    wait_until(lambda: target.ours() == 0, within_s=8)


def test_the_worker_that_stands_by_takes_over_and_then_alone(route: Route, target: TargetDatabase) -> None:
    route.dispatcher()
    first = route.worker("target")
    route.worker("target")
    route.stage.submit("db.report", n=40, input=holds(0.02))
    wait_until(lambda: route.count("succeeded") == 40, within_s=30)
    assert route.stage.one("SELECT count(DISTINCT session) FROM attempt") == 1
    first.terminate()
    first.wait(15)
    route.stage.submit("db.report", n=40, input=holds(0.02))
    wait_until(lambda: route.count("succeeded") == 80, within_s=30)
    assert route.stage.one("SELECT count(DISTINCT session) FROM attempt") == 2
    assert target.ours() <= 20

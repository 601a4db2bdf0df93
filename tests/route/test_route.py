"""A task's route through real processes, and what happens when one of them dies."""

import signal

import redis

from harness.store import transitions
from tests.route.conftest import Route
from tests.stage import wait_until


def test_a_backlog_is_done_once_bundled_and_unbundled(route: Route) -> None:
    route.dispatcher()
    route.worker("db")
    bundled = route.stage.submit("noop", n=300)
    single = route.stage.submit("noop.single", n=40)
    wait_until(lambda: route.count("succeeded") == 340, within_s=30)
    for task in (*bundled[:5], *single[:5]):
        assert route.stage.events(task) == ["submit", "claim", "succeed"]
    assert route.stage.one("SELECT count(*) FROM attempt") == 340
    assert route.stage.one("SELECT count(*) FROM lease") == 0
    wait_until(lambda: route.stage.one("SELECT count(*) FROM charge") == 0, within_s=5)
    assert route.stage.one("SELECT count(*) FROM estimate") == 2


def test_a_worker_killed_with_work_in_hand_loses_none_of_it(route: Route) -> None:
    route.dispatcher()
    worker = route.worker("tool_read")
    tasks = route.stage.submit("noop.sleep", n=8, input='{"sleep_s": 3}')
    wait_until(lambda: route.count("running") == 8, within_s=15)
    worker.kill()
    worker.wait()
    route.worker("tool_read")
    wait_until(lambda: route.count("succeeded") == 8, within_s=40)
    for task in tasks:
        assert route.stage.events(task) == ["submit", "claim", "lose", "claim", "succeed"]
        assert (route.stage.row(task)["lost_starts"], route.stage.row(task)["attempts_used"]) == (1, 0)


def test_a_killed_leader_is_followed_within_five_seconds(route: Route) -> None:
    first = route.dispatcher()
    wait_until(lambda: route.leads(first), within_s=15)
    second = route.dispatcher()
    route.worker("db")
    first.kill()
    first.wait()
    (task,) = route.stage.submit()
    wait_until(lambda: route.leads(second), within_s=5 + 2)  # 2: the second may still be starting
    wait_until(lambda: route.stage.state(task) == "succeeded", within_s=5)


def test_a_stopped_leader_that_wakes_up_releases_nothing_of_its_own(route: Route) -> None:
    first = route.dispatcher()
    wait_until(lambda: route.leads(first), within_s=15)
    second = route.dispatcher()
    first.send_signal(signal.SIGSTOP)
    wait_until(lambda: route.leads(second), within_s=15)
    epoch = route.leader()[1]
    first.send_signal(signal.SIGCONT)
    route.worker("db")
    route.stage.submit("noop.single", n=50)
    wait_until(lambda: route.count("succeeded") == 50, within_s=15)
    assert route.leads(second)
    assert route.leader()[1] == epoch
    assert route.stage.one("SELECT count(*) FROM attempt") == 50


def test_a_leader_that_is_told_to_stop_hands_over_at_once(route: Route) -> None:
    first = route.dispatcher()
    wait_until(lambda: route.leads(first), within_s=15)
    first.terminate()
    assert first.wait(5) == 0
    assert route.leader() == ("", 0)


def test_an_emptied_redis_loses_no_task(route: Route) -> None:
    route.dispatcher()
    route.worker("db")
    route.stage.submit("noop.single", n=400)
    with redis.Redis.from_url(route.environment["BROKER_URL"]) as client:
        for _ in range(5):
            client.flushdb()
            wait_until(lambda: True, within_s=1)
    wait_until(lambda: route.count("succeeded") == 400, within_s=40)
    assert route.stage.one("SELECT max(attempts_used) FROM task") == 0


def test_a_kind_that_kills_its_process_ends_in_quarantine_and_its_neighbours_succeed(route: Route) -> None:
    from tests.stage import Stage

    stage: Stage = route.stage
    route.dispatcher()
    route.worker("quarantine")
    (killer,) = stage.submit("noop.fault", input='{"fail": "exit", "sleep_s": 1}')
    neighbours = stage.submit("noop.sleep", n=4, input='{"sleep_s": 2}')
    for lost in range(2):
        worker = route.worker("tool_read")
        worker.wait(20)
        stage.connection.execute(  # as if the twenty seconds without a beat had passed
            "UPDATE worker_session SET beat_at = beat_at - interval '1 minute' WHERE pid = %s", (worker.pid,)
        )
        wait_until(lambda n=lost + 1: stage.row(killer)["lost_starts"] == n, within_s=10)
    route.worker("tool_read")
    wait_until(lambda: stage.state(killer) == "failed_terminal", within_s=20)
    assert stage.events(killer)[-1] == "bury"
    assert stage.one("SELECT error ->> 'class' FROM task_body WHERE task_id = %s", killer) == "lost"
    wait_until(lambda: all(stage.state(task) == "succeeded" for task in neighbours), within_s=20)


def test_cancelling_a_running_task_stops_it_soon(route: Route) -> None:
    route.dispatcher()
    route.worker("tool_read")
    (task,) = route.stage.submit("noop.sleep", input='{"sleep_s": 60}')
    wait_until(lambda: route.stage.state(task) == "running", within_s=15)
    assert transitions.cancel(route.stage.connection, task, actor="tenant", reason="changed my mind") == "wished"
    wait_until(lambda: route.stage.state(task) == "cancelled", within_s=3)
    assert route.stage.events(task) == ["submit", "claim", "wish", "abort"]


def test_a_worker_opens_no_more_connections_than_it_declared(route: Route) -> None:
    route.dispatcher()
    route.worker("db")
    declared = route.stage.one("SELECT connections FROM worker_session")
    route.stage.submit("noop.single", n=600)
    most = 0

    def sampled() -> bool:
        nonlocal most
        now = route.stage.one(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE application_name LIKE 'harness-db%%' AND datname = current_database() AND %s",
            True,
        )
        most = max(most, int(now))
        return route.count("succeeded") == 600

    wait_until(sampled, within_s=40)
    assert 0 < most <= declared

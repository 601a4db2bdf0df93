"""A task's route through real processes; tests/recovery is about those that die."""

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


def test_a_leader_that_is_told_to_stop_hands_over_at_once(route: Route) -> None:
    first = route.dispatcher()
    wait_until(lambda: route.leads(first), within_s=15)
    first.terminate()
    assert first.wait(5) == 0
    assert route.leader() == ("", 0)


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

"""Schedules and real dispatchers: one leads, one is frozen and comes back, and each moment fires once."""

import signal

from harness.engine import schedules
from harness.engine.schedules import ScheduleRequest
from harness.store import queries
from tests.route.conftest import Route
from tests.stage import Stage, wait_until

SCHEDULES = 5


def make(stage: Stage) -> None:
    tenant = queries.tenant_facts(stage.connection, stage.tenant)
    assert tenant is not None
    for i in range(SCHEDULES):
        asked = ScheduleRequest(name=f"s{i}", kind="noop.single", input={}, cron="0 0 1 1 *")
        schedules.create(stage.connection, tenant, asked, body_max_bytes=1000, author="test")


def pass_time(stage: Stage) -> None:
    """As if the new year had begun five seconds ago."""
    moment = "clock_timestamp() - interval '5 s'"
    stage.connection.execute(f"UPDATE schedule SET next_at = {moment}, look_at = {moment}")


def test_a_frozen_leader_that_comes_back_fires_no_moment_again(route: Route) -> None:
    make(route.stage)
    first = route.dispatcher()
    wait_until(lambda: route.leads(first), within_s=15)
    second = route.dispatcher()
    route.worker("db")
    pass_time(route.stage)
    wait_until(lambda: route.count("succeeded") == SCHEDULES, within_s=20)
    first.send_signal(signal.SIGSTOP)
    wait_until(lambda: route.leads(second), within_s=15)
    pass_time(route.stage)
    first.send_signal(signal.SIGCONT)  # both sweep for a moment, until the first sees that it no longer leads
    wait_until(lambda: route.count("succeeded") == 2 * SCHEDULES, within_s=20)
    first.terminate()
    first.wait(15)  # its last round is over
    assert route.stage.one("SELECT count(*) FROM task") == 2 * SCHEDULES
    assert route.stage.one("SELECT sum(fired) FROM schedule") == 2 * SCHEDULES
    assert route.stage.one("SELECT count(*) FROM schedule WHERE next_at > clock_timestamp()") == SCHEDULES

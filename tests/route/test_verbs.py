"""Verbs with a real dispatcher and a real worker: a pause is obeyed, and its end brings no stampede."""

import time

from harness.engine import operate
from harness.policy.ramp import DOUBLES_EVERY_S, most_in_flight
from tests.route.conftest import Route
from tests.stage import wait_until


def test_a_paused_pool_starts_nothing_and_its_slots_come_back_by_the_ramp(route: Route) -> None:
    route.dispatcher()
    route.worker("tool_read")
    slots = int(route.stage.one("SELECT (pools ->> 'tool_read')::integer FROM worker_session"))
    held = "SELECT count(*) FROM lease WHERE pool = 'tool_read'"
    connection = route.stage.connection
    operate.pause_scope(connection, "pool", "tool_read", tenant=None, actor="me", reason="too hot")
    time.sleep(1.2)  # the dispatcher looks at pauses each second: what it obeys can't be passed as time
    route.stage.submit("noop.sleep", n=6 * slots, input='{"sleep_s": 0.6}')
    until_s = time.monotonic() + 1.5
    while time.monotonic() < until_s:
        assert route.stage.one(held) == 0
    operate.resume_scope(connection, "pool", "tool_read", tenant=None, actor="me")
    resumed_s = time.monotonic()
    most = 0
    while time.monotonic() < resumed_s + DOUBLES_EVERY_S - 0.5:
        most = max(most, int(route.stage.one(held)))
    assert most == most_in_flight(slots, 0), f"of {slots} slots"
    wait_until(lambda: int(route.stage.one(held)) > most_in_flight(slots, DOUBLES_EVERY_S), within_s=12)
    wait_until(lambda: route.count("succeeded") == 6 * slots, within_s=30)
    assert route.stage.one("SELECT count(*) FROM event WHERE event = 'pause'") == 0, "no task was rewritten"

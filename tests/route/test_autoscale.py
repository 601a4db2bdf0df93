"""A provider that answers 429 and a backlog that grows, on real processes: nobody is added; then there is room."""

from pathlib import Path

from harness.engine import operate
from harness.ops.emulator.behaviour import changed
from harness.policy.autoscale import Advice
from harness.store import autoscale
from tests.ops.emulator.callers import emulated
from tests.route.conftest import Route
from tests.route.test_permits import LLM, talk
from tests.route.test_pressure import beat
from tests.stage import wait_until


def advice(route: Route) -> Advice | None:
    found = autoscale.now(route.stage.connection).get("llm")
    return found.advice if found is not None and not found.stale else None


def test_while_the_provider_answers_429_a_growing_backlog_adds_no_worker_and_room_does(
    route: Route, tmp_path: Path
) -> None:
    with emulated(quota=0, latency_s=1.0, retry_after="none") as running:
        route.environment |= {"LLM_BASE_URL": running.base_url, "LLM_API_KEY": "sk", "LLM_MODEL": "m-1"}
        operate.set_resource(
            route.stage.connection, LLM, {"limiter": "csl"}, actor="jo", reason="nobody knows the quota"
        )
        route.dispatcher()
        worker, _ = route.workers("llm", "system")
        beat(route, tmp_path)
        talk(route, 1000)
        refused = running.emulator.counters
        wait_until(lambda: refused.rejected_429 >= 2, within_s=40)
        wait_until(lambda: (found := advice(route)) is not None and found.holds, within_s=20)
        for _ in range(4):
            before = refused.rejected_429
            talk(route, 1000)
            wait_until(lambda before=before: refused.rejected_429 > before, within_s=20)
            found = advice(route)
            assert found is not None
            assert (found.workers, found.desired, found.binds) == (1, 1, LLM)
            assert found.reason.startswith("adding workers will not help: llm:default ")
        assert [one for one in autoscale.changes(route.stage.connection, most=10) if one.pool == "llm"] == []
        running.emulator.behaviour = changed(running.emulator.behaviour, {"quota": 40})
        # One worker of 16 slots is what binds now: twice those is asked for, while the limit rises.
        wait_until(lambda: (found := advice(route)) is not None and found.desired >= 2, within_s=120)
        assert route.stage.one("SELECT max(attempts_used + lost_starts) FROM task") == 0
        worker.terminate()  # before the provider: it must not go with calls under way
        worker.wait(30)
        wait_until(lambda: refused.in_flight == 0, within_s=20)

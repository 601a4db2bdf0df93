"""Row A4 from end to end on real processes, by HTTP: that a provider is saturated reaches the door by itself.

saturation -> no more workers, no more in flight -> longer waits -> slower fan-out -> the door defers and refuses.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.engine import operate
from harness.ops.emulator import server
from harness.policy.pressure import Level
from harness.store import keys, pressure
from tests.ops.emulator.callers import CHAT, emulated
from tests.route.conftest import Route
from tests.route.test_autoscale import advice
from tests.route.test_permits import LLM
from tests.route.test_pressure import beat, level
from tests.stage import wait_until
from tests.web.conftest import Web, assert_problem, start_web

QUOTA = 4
FANOUT_CAP = 6
TALK = {"kind": "llm.chat", "input": {"messages": CHAT["messages"], "model": "emulator-1"}}
SLEEP = {"kind": "noop.sleep", "input": {"sleep_s": 3}, "priority": 2}


@pytest.fixture
def provider() -> Iterator[server.Running]:
    with emulated(quota=QUOTA + 1, latency_s=2.0, retry_after="none") as running:
        yield running


@pytest.fixture
def own_web(route: Route, root: Path, tmp_path: Path) -> Iterator[Web]:
    web = start_web(root, tmp_path / "web.log", route.environment)
    yield web
    web.stop()


def client(web: Web, tenant: str) -> httpx.Client:
    keys.create_tenant(tenant, top_priority=0)
    return web.client(keys.create_key(tenant))


def run(api: httpx.Client, number: int, node: dict[str, Any], **more: Any) -> str:
    answer = api.post("/api/v1/runs", json={"nodes": [node] * number, **more})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


def most_in_flight(route: Route, run_id: str, seconds: float) -> int:
    """How many of a run were in flight at once, at most, in the next seconds."""
    counted = (
        "SELECT count(*) FROM lease_member m JOIN task t ON t.id = m.task_id JOIN run r ON r.id = t.run_id "
        "WHERE r.public_id = %s"
    )
    most, until_s = 0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        most = max(most, int(route.stage.one(counted, run_id)))
        time.sleep(0.02)
    return most


def test_saturation_reaches_the_door(provider: server.Running, route: Route, own_web: Web, tmp_path: Path) -> None:
    connection = route.stage.connection
    route.environment |= {"LLM_BASE_URL": provider.base_url, "LLM_API_KEY": "sk", "LLM_MODEL": "m-1"}
    operate.set_resource(
        connection, LLM, {"capacity": QUOTA, "limiter": "fixed"}, actor="jo", reason="what the provider takes"
    )
    route.dispatcher()
    route.workers("llm", "tool_read", "system")
    beat(route, tmp_path)
    with client(own_web, "flood") as flood, client(own_web, "small") as small:
        # 0. Nothing is saturated: whatever comes is taken, and a run goes as fast as its cap.
        wait_until(lambda: level(route) is Level.NORMAL, within_s=40)
        answer = small.post("/api/v1/tasks", json=TALK | {"priority": 3})
        assert (answer.status_code, answer.json()["admission"]) == (202, "accepted")
        wide = run(small, 2000, SLEEP, fanout_cap=FANOUT_CAP)
        wait_until(lambda: most_in_flight(route, wide, 0.5) == FANOUT_CAP, within_s=40)
        # 1. More is asked of the provider than it can do.
        run(flood, 8000, TALK | {"priority": 1})
        wait_until(lambda: level(route) is Level.CRITICAL, within_s=180)
        # 2. Workers: nobody is added, and no more calls are under way than the provider takes.
        wait_until(lambda: (found := advice(route)) is not None and found.binds == LLM, within_s=20)
        found = advice(route)
        assert found is not None and (found.workers, found.desired) == (1, 1)
        assert found.reason.startswith(f"adding workers will not help: {LLM} ")
        # 3. Waits rise, and that is what the level was raised by.
        (change, *_) = pressure.changes(connection, most=1)
        assert {"p1_wait", "queue_depth"} <= change.signals.keys()
        # 4. Fan-out slows down, in another pool as well.
        wait_until(lambda: most_in_flight(route, wide, 0.2) <= FANOUT_CAP // 2, within_s=20)
        assert most_in_flight(route, wide, 4.0) == FANOUT_CAP // 2
        # 5. The door: what is urgent and small is taken, what can wait is deferred or refused, and is told so.
        urgent = small.post("/api/v1/tasks", json=TALK | {"priority": 0})
        assert (urgent.status_code, urgent.json()["admission"]) == (202, "accepted")
        before = route.stage.one("SELECT count(*) FROM task")
        refused = small.post("/api/v1/runs", json={"nodes": [TALK | {"priority": 3}] * 50})
        told = assert_problem(refused, 503, "overload")
        assert (told["level"], told["reason"]) == ("critical", "pressure")
        assert int(refused.headers["Retry-After"]) >= 5
        assert route.stage.one("SELECT count(*) FROM task") == before, "a refusal is no task"
        run(small, 200, TALK | {"priority": 1})
        time.sleep(1.1)  # what the door knows of a tenant is a second old at most
        later = small.post("/api/v1/tasks", json=TALK | {"priority": 1})
        assert (later.status_code, later.json()["admission"]) == (202, "deferred"), later.text
        assert later.json()["reason"].startswith("pressure is critical")
        assert later.json()["expected_start"]
        why = small.get(f"/api/v1/tasks/{later.json()['task_id']}/why").json()
        assert why["reason"]["code"] == "deferred"
        assert small.get("/api/v1/pressure").json()["level"] == "critical"
        # 6. All through it the provider was never asked for more than it takes.
        assert provider.emulator.counters.rejected_429 == 0
        # 7. What P0 asked for is done, saturated or not.
        path = f"/api/v1/tasks/{urgent.json()['task_id']}"
        wait_until(lambda: small.get(path).json()["state"] == "succeeded", within_s=60)

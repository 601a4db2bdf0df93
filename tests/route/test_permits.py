"""Permits through real processes: what is killed, emptied, overridden or stopped leaves none and lets none too many."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.conf import settings

from harness.engine import operate
from harness.policy.permits import Reading
from harness.policy.resources import Live
from harness.store.permits import Permits
from tasks.llm_chat.test_kind import Provider, Send, whole
from tests.ops.emulator.callers import emulated
from tests.route.conftest import Route
from tests.stage import wait_until

LLM = "llm:default"
TALK = json.dumps(
    {"messages": [{"role": "user", "content": "What is a lease? A lease is a slot."}], "model": "emulator-1"}
)


@pytest.fixture
def provider(route: Route) -> Iterator[Provider]:
    """One that is silent until it may go on."""
    playing = Provider()
    threading.Thread(target=playing.server.serve_forever, args=(0.01,), daemon=True).start()

    def late(send: Send, asked: dict[str, Any]) -> None:
        playing.go_on.wait(60)
        whole(send, asked)

    playing.play = late
    route.environment |= {"LLM_BASE_URL": playing.url, "LLM_API_KEY": "sk-of-tests", "LLM_MODEL": "m-1"}
    yield playing
    playing.go_on.set()
    playing.server.shutdown()
    playing.server.server_close()


@pytest.fixture
def reader(broker_url: str) -> Iterator[Permits]:
    lives = {name: Live(resource=one) for name, one in settings.HARNESS_TOPOLOGY.resources.items()}
    reader = Permits(broker_url, lambda: lives)
    yield reader
    reader.close()


def reading(reader: Permits) -> Reading:
    found = reader.read([LLM])
    assert found is not None
    return found[LLM]


def talk(route: Route, n: int) -> list[int]:
    return route.stage.submit("llm.chat", n=n, input=TALK)


def test_a_killed_workers_permits_are_free_when_its_tasks_are_taken_back(
    route: Route, provider: Provider, reader: Permits
) -> None:
    route.dispatcher()
    worker = route.worker("llm")
    talk(route, 3)
    wait_until(lambda: len(provider.asked) == 3, within_s=30)
    assert reading(reader).in_flight == 3
    worker.kill()
    wait_until(lambda: reading(reader).in_flight == 0, within_s=30)  # its time would be 65 s
    assert route.stage.one("SELECT count(*) FROM task WHERE lost_starts = 1") == 3
    provider.go_on.set()
    route.worker("llm")
    wait_until(lambda: route.count("succeeded") == 3, within_s=40)
    assert (reading(reader).in_flight, reading(reader).asked) == (0, 0)


def test_an_emptied_redis_learns_of_running_calls_within_seconds_and_no_task_suffers(
    route: Route, provider: Provider, reader: Permits
) -> None:
    route.dispatcher()
    route.worker("llm")
    talk(route, 5)
    wait_until(lambda: len(provider.asked) == 5, within_s=30)
    with redis.Redis.from_url(route.environment["BROKER_URL"]) as client:
        client.flushdb()
    wait_until(lambda: reading(reader).in_flight == 5, within_s=12)
    provider.go_on.set()
    wait_until(lambda: route.count("succeeded") == 5, within_s=30)
    assert reading(reader).in_flight == 0
    assert route.stage.one("SELECT max(attempts_used + lost_starts) FROM task") == 0


def test_a_worker_that_is_told_to_end_leaves_no_permit(route: Route, provider: Provider, reader: Permits) -> None:
    route.dispatcher()
    worker = route.worker("llm")
    talk(route, 2)
    wait_until(lambda: len(provider.asked) == 2, within_s=30)
    worker.send_signal(signal.SIGTERM)  # the drain is 1 s, and the provider is silent
    worker.wait(30)
    assert reading(reader).in_flight == 0
    assert route.stage.one("SELECT max(attempts_used + lost_starts) FROM task") == 0


def test_an_override_is_kept_by_all_workers_within_seconds_and_no_call_is_one_too_many(route: Route) -> None:
    with emulated(quota=100, latency_s=0.15) as emulator:
        route.environment |= {"LLM_BASE_URL": emulator.base_url, "LLM_API_KEY": "sk", "LLM_MODEL": "m-1"}
        operate.set_resource(
            route.stage.connection, LLM, {"capacity": 6, "limiter": "fixed"}, actor="jo", reason="a small plan"
        )
        route.dispatcher()
        route.workers("llm", "llm")
        talk(route, 400)
        wait_until(lambda: route.count("succeeded") >= 60, within_s=60)
        assert emulator.emulator.counters.in_flight_max == 6
        operate.set_resource(route.stage.connection, LLM, {"capacity": 2}, actor="jo", reason="smaller")
        wait_until(lambda: emulator.emulator.counters.in_flight <= 2, within_s=5)
        time.sleep(2.5)  # the other worker reads it, too
        before = route.count("succeeded")
        seen = []

        def looked() -> bool:
            seen.append(emulator.emulator.counters.in_flight)
            return route.count("succeeded") >= before + 20

        wait_until(looked, within_s=30)
        assert max(seen) <= 2 and emulator.emulator.counters.rejected_429 == 0
        assert route.stage.one("SELECT max(attempts_used + lost_starts) FROM task") == 0

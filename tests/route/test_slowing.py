"""A provider that never answers 429 but slows down, on real processes: fewer calls are sent, and nobody is refused.

The guard compares a window of half a minute with the day's. What went before is played through the scripts that all
processes use, with the moments of the last minutes; the window that ends it is real.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.conf import settings

from harness.engine import operate
from harness.policy.limits.guard import CALLS_LEAST, DAY_LEAST, WINDOW_S, WINDOWS
from harness.policy.permits import Ask, Report, Want
from harness.policy.resources import Live, in_force
from harness.store.permits import Permits, scripts
from tests.ops.emulator.callers import emulated
from tests.route.conftest import Route
from tests.route.test_permits import LLM, talk
from tests.stage import wait_until

LIMIT, SHARED_FROM = 12, 4  # calls at once; above so many the provider's power is shared
FAST_S, SLOW_S = 0.2, 0.6
LOWER: dict[str, int | float | bool | str | None] = {"capacity": LIMIT, "limiter": "csl", "start": LIMIT}


class Past:
    """Calls of the resource in minutes that have passed."""

    def __init__(self, client: Any, live: Live) -> None:
        self._scripts = {name: client.register_script(scripts.text(name)) for name in ("acquire", "finish", "read")}
        self._config = scripts.config(live)
        self._calls = 0

    def window(self, ends_s: float, latency_s: float) -> None:
        """Play a window of as few calls as say something, and the look that ends it."""
        for n in range(CALLS_LEAST):
            self._call(ends_s - WINDOW_S + 1 + n / 10, latency_s)
        self._run("read", ends_s, self._config + scripts.NOTHING_ASKED)

    def _call(self, at_s: float, latency_s: float) -> None:
        self._calls += 1
        member = f"{10**9 + self._calls}:1:1"
        asked = Ask(member=member, tenant=1, priority=2, calls_done=0, since_s=at_s, wants=(Want(LLM),), waits=False)
        question = scripts.question(asked, again=False)
        own = self._config + scripts.asked_of(None, 0, 0.0)
        assert self._run("acquire", at_s, member, asked.task, "past", 1, question, own)[0] == b"1"
        told = scripts.report(Report(outcome="success", latency_s=latency_s), about=1, jitter=0.5)
        over = self._config + scripts.asked_of(None, -1, 0.0)
        self._run("finish", at_s + latency_s, member, asked.task, told, over)

    def _run(self, name: str, at_s: float, *args: Any) -> Any:
        return self._scripts[name](keys=[scripts.key(LLM)], args=[repr(at_s), *args])


@pytest.fixture
def live() -> Live:
    return Live(resource=in_force(settings.HARNESS_TOPOLOGY.resources[LLM], LOWER))


@pytest.fixture
def reader(broker_url: str, live: Live) -> Iterator[Permits]:
    reader = Permits(broker_url, lambda: {LLM: live})
    yield reader
    reader.close()


def test_a_provider_that_slows_down_without_a_refusal_is_sent_fewer_calls_at_once(
    route: Route, reader: Permits, live: Live
) -> None:
    with emulated(quota=1000, latency_s=FAST_S, slow_from=SHARED_FROM) as running:
        route.environment |= {"LLM_BASE_URL": running.base_url, "LLM_API_KEY": "sk", "LLM_MODEL": "m-1"}
        operate.set_resource(route.stage.connection, LLM, LOWER, actor="jo", reason="a small plan")
        talk(route, 4000)
        with redis.Redis.from_url(route.environment["BROKER_URL"]) as client:
            past, now_s = Past(client, live), time.time()
            for ago in range(DAY_LEAST + WINDOWS, -1, -1):
                past.window(now_s - ago * (WINDOW_S + 1), SLOW_S if ago < WINDOWS - 1 else FAST_S)
        assert not reader.changes(), "two slow windows are no reason yet"
        route.dispatcher()
        route.worker("llm")
        seen = running.emulator.counters
        wait_until(lambda: seen.in_flight_max == LIMIT, within_s=40)
        wait_until(lambda: [one for one in reader.changes() if one.reason == "slow"], within_s=120)
        (change,) = [one for one in reader.changes() if one.reason == "slow"]
        assert (change.old, change.new) == (LIMIT, 10)
        wait_until(lambda: seen.in_flight <= 10, within_s=10)
        done, at_once = seen.answered, []

        def looked() -> bool:
            at_once.append(seen.in_flight)
            return seen.answered >= done + 40

        wait_until(looked, within_s=30)
        assert max(at_once) <= 10
        assert seen.rejected_429 == 0
        assert route.stage.one("SELECT max(attempts_used + lost_starts) FROM task") == 0

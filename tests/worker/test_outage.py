"""PostgreSQL goes away under a worker: for a moment, which it outlives, and for longer than its fence allows."""

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.gateway import Gateway
from tests.worker.conftest import Floor, eventually


@pytest.fixture
def gateway(floor: Floor) -> Iterator[Gateway]:
    """The floor's workers reach the database through it."""
    parts = urlsplit(floor.environment["DATABASE_URL"])
    gateway = Gateway(parts.hostname or "127.0.0.1", parts.port or 5432)
    login, at, _ = parts.netloc.rpartition("@")
    way = parts._replace(netloc=f"{login}{at}127.0.0.1:{gateway.port}")
    floor.environment["DATABASE_URL"] = urlunsplit(way)
    yield gateway
    gateway.close()


def test_a_worker_outlives_a_short_outage(floor: Floor, gateway: Gateway) -> None:
    worker = floor.start("tool_read")
    first = floor.run_task("noop.sleep", {"sleep_s": 0})
    floor.wait_for("succeeded", first)
    gateway.open = False
    eventually(lambda: "worker_side_failed" in worker.text)
    gateway.open = True
    eventually(lambda: "worker_side_mended" in worker.text)

    # The hint is gone with its first claim, so the first claim must find a connection that works.
    floor.wait_for("succeeded", floor.run_task("noop.sleep", {"sleep_s": 0}))
    assert worker.stop() == 0


def test_a_worker_that_cannot_beat_for_longer_than_its_fence_exits(floor: Floor, gateway: Gateway) -> None:
    worker = floor.start("tool_read")
    task = floor.run_task("noop.sleep", {"sleep_s": 60})
    floor.wait_for("running", task)
    gateway.open = False
    assert worker.process.wait(30) == 1
    assert "fence_closed" in worker.text
    assert floor.state(task) == "running"  # nobody acted for it; the sweep takes it back with its session

"""PostgreSQL goes away under a worker: for a moment, which it outlives, and for longer than its fence allows."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.worker.conftest import Floor, eventually


class Gateway:
    """A TCP way to the database that can be cut and mended."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._peers: dict[socket.socket, socket.socket] = {}
        self.open = True
        self.closed = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self.closed.is_set() or self._peers:
            for key, _ in self._selector.select(timeout=0.05):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peers:
                    self._forward(key.fileobj)
            if not self.open:
                for side in list(self._peers):
                    self._drop(side)

    def close(self) -> None:
        self.open = False
        self.closed.set()
        self._thread.join()
        self._listener.close()
        self._selector.close()

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        if not self.open:
            near.close()
            return
        far = socket.create_connection(self._target)
        for side, other in ((near, far), (far, near)):
            self._peers[side] = other
            self._selector.register(side, selectors.EVENT_READ)

    def _forward(self, side: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = side.recv(65536)
        try:
            self._peers[side].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(side)

    def _drop(self, side: socket.socket) -> None:
        for each in (side, self._peers.get(side)):
            if each is not None and self._peers.pop(each, None) is not None:
                self._selector.unregister(each)
                each.close()


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

"""A way to the database that a test can cut and mend."""

import contextlib
import selectors
import socket
import threading
import time


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

    def cut(self, within_s: float = 5.0) -> int:
        """Drop every connection and let none in until `open` is set again. Returns how many there were."""
        there = len(self._peers) // 2
        self.open = False
        until_s = time.monotonic() + within_s
        while self._peers:
            assert time.monotonic() < until_s, f"connections are left after {within_s} s"
            time.sleep(0.005)
        return there

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

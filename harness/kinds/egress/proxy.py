"""A proxy on loopback for a program that speaks HTTP by itself, such as a browser: each connection is judged.

The program resolves nothing and connects nowhere else: it names a host, and the proxy looks it up once, judges every
address, and connects to one of those. So a name that changes between check and use, a redirect and a subresource lead
nowhere private. What is refused gets a 403 and stands in `refused`; TLS goes through untouched.
"""

import contextlib
import re
import select
import socket
import threading
from collections.abc import Iterator

from harness.kinds.egress import rules, target, wire
from harness.kinds.egress.admitted import admitted
from harness.kinds.egress.deadline import Deadline
from harness.kinds.egress.resolver import Resolver, system_resolver
from harness.kinds.egress.rules import Rules
from harness.kinds.egress.target import Target
from harness.kinds.errors import Permanent, TimedOut, WorkError

CONNECT_S = 20.0  # names and connections
IDLE_S = 60.0  # a connection on which nothing moves is over
CHUNK_BYTES = 65_536
HEAD_MAX_BYTES = 65_536
CONNECTIONS = 64
REFUSED_MOST = 50  # told; further ones are refused as well
_LINE = re.compile(rb"([A-Z]{1,20}) (\S+) HTTP/1\.[01]")
_OURS = (b"proxy-", b"connection:", b"keep-alive:", b"upgrade:")


class Proxy:
    """A proxy that runs. `refused`: host:port -> why. `most_bytes`: of everything together, then all is cut."""

    def __init__(self, allowed: Rules, resolver: Resolver, most_bytes: int) -> None:
        self._allowed = allowed
        self._resolver = resolver
        self._left_bytes = most_bytes
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.refused: dict[str, str] = {}

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return int(self._listening.getsockname()[1])

    @property
    def spent(self) -> bool:
        """Whether all bytes that it may carry were carried."""
        return self._left_bytes <= 0

    def serve(self) -> None:
        """Take connections until `close`."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._places.acquire()
                threading.Thread(target=self._serve_one, args=(client,), name="egress-proxy", daemon=True).start()

    def close(self) -> None:
        """Take no more; connections end with the program that made them."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve_one(self, client: socket.socket) -> None:
        try:
            with client, contextlib.suppress(OSError):
                client.settimeout(IDLE_S)
                self._answer(client)
        finally:
            self._places.release()

    def _answer(self, client: socket.socket) -> None:
        # 1. What is asked for.
        head, rest = _head(client)
        found = _LINE.match(head)
        if found is None:
            return
        method, named = found[1], found[2].decode("latin-1")
        tunnel = method == b"CONNECT"
        # 2. Whether it may be had.
        try:
            where = target.parse(f"https://{named}/" if tunnel else named)
            if not tunnel and where.scheme != "http":
                raise Permanent("url: must begin with http:// here")
            deadline = Deadline(CONNECT_S)
            addresses = admitted(where, self._allowed, self._resolver, deadline)
        except Permanent as error:
            self._refuse(named if tunnel else named[:200], str(error))
            _say(client, 403, str(error))
            return
        except WorkError as error:
            _say(client, 504 if isinstance(error, TimedOut) else 502, str(error))
            return
        # 3. There and back.
        try:
            server = wire.connect(addresses, where.port, where.named, deadline)
        except WorkError as error:
            _say(client, 504 if isinstance(error, TimedOut) else 502, str(error))
            return
        with server:
            server.settimeout(IDLE_S)
            if tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                server.sendall(rest)
                self._carry(client, server, None)
            else:
                body_bytes = _body_bytes(head)
                server.sendall(_rewritten(method, where, head) + rest[:body_bytes])
                self._carry(client, server, body_bytes - len(rest[:body_bytes]))

    def _refuse(self, named: str, why: str) -> None:
        with self._lock:
            if len(self.refused) < REFUSED_MOST:
                self.refused.setdefault(named, why)

    def _carry(self, client: socket.socket, server: socket.socket, body_bytes: int | None) -> None:
        """Carry both ways until one side ends. `body_bytes`: what the client may still send; None: all it likes.

        Without a tunnel a connection carries one request: the next one may be meant for another host.
        """
        open_: list[socket.socket] = [server] if body_bytes == 0 else [client, server]
        while server in open_:
            readable, _, _ = select.select(open_, [], [], IDLE_S)
            if not readable:
                return
            for one in readable:
                most = CHUNK_BYTES if one is server or body_bytes is None else min(CHUNK_BYTES, body_bytes)
                data = one.recv(most)
                if not data and one is client and body_bytes is None:
                    return
                if not data:
                    open_.remove(one)
                    continue
                if not self._count(len(data)):
                    return
                (client if one is server else server).sendall(data)
                if one is client and body_bytes is not None:
                    body_bytes -= len(data)
                    if body_bytes == 0:
                        open_.remove(client)

    def _count(self, number: int) -> bool:
        with self._lock:
            self._left_bytes -= number
            return self._left_bytes > 0


@contextlib.contextmanager
def open_proxy(
    *, most_bytes: int, allowed: Rules | None = None, resolver: Resolver = system_resolver
) -> Iterator[Proxy]:
    """Run a proxy for the time of the block. `allowed` None: the rules of the environment."""
    running = Proxy(rules.from_environment() if allowed is None else allowed, resolver, most_bytes)
    thread = threading.Thread(target=running.serve, name="egress-proxy-door", daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.close()
        thread.join()


def _head(client: socket.socket) -> tuple[bytes, bytes]:
    """Read a request's head; returns it and what came behind it. Raises: OSError."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(CHUNK_BYTES)
        if not more or len(data) > HEAD_MAX_BYTES:
            raise ConnectionError("no whole request")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _body_bytes(head: bytes) -> int:
    found = re.search(rb"\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*(?:\r\n|$)", head, re.IGNORECASE)
    return int(found[1]) if found else 0


def _rewritten(method: bytes, where: Target, head: bytes) -> bytes:
    """Return the head as the server wants it: its own path, and an end after this answer."""
    kept = [
        line
        for line in head.split(b"\r\n")[1:]
        if not line.lower().startswith((*_OURS, b"host:")) and line[:1] not in (b" ", b"\t")
    ]
    first = b"%s %s HTTP/1.1" % (method, where.path.encode("latin-1", "replace"))
    return b"\r\n".join([first, b"Host: " + where.authority.encode(), *kept, b"Connection: close"]) + b"\r\n\r\n"


def _say(client: socket.socket, status: int, text: str) -> None:
    body = text.encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    client.sendall(head.encode() + body)

"""The emulator under uvicorn: a listening socket first, so that a port in use is said before anything starts."""

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn

from harness.ops.emulator.app import Emulator
from harness.ops.emulator.behaviour import Behaviour
from harness.policy.errors import Unavailable

BACKLOG = 2048  # connections that may wait while the loop is busy: more than any client of the benchmarks opens
KEEP_ALIVE_S = 75  # longer than clients keep an idle connection (5 s), so that the client is the one who closes it
SHUTDOWN_S = 2  # calls in flight get this long after SIGTERM


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """An emulator in a thread of this process."""

    url: str
    emulator: Emulator

    @property
    def base_url(self) -> str:
        """What goes into LLM_BASE_URL."""
        return f"{self.url}/v1"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one. Raises: Unavailable naming the port and the way out."""
    if not 0 <= port <= 65_535:
        raise Unavailable(f"--port {port} is no port: choose one up to 65535 (0 takes a free one)", field="port")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"--host {host} is no address of this machine: {error}", field="host") from None
    listener = socket.socket(found[0], found[1])
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found[4])
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            why = "is in use: stop what listens there or choose another --port (0 takes a free one)"
        elif error.errno == errno.EACCES:
            why = "needs more rights: choose a --port above 1023"
        else:
            why = f"can't be had: {os.strerror(error.errno or 0)}"
        raise Unavailable(f"port {port} on {host} {why}", field="port") from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address of a listening socket, `http://host:port`."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(listener: socket.socket, behaviour: Behaviour, *, seed: int = 0) -> None:
    """Serve until SIGTERM or SIGINT; calls in flight get `SHUTDOWN_S`. Only for the main thread."""
    with contextlib.suppress(KeyboardInterrupt):
        _server_of(Emulator(behaviour, seed=seed)).run(sockets=[listener])


@contextlib.contextmanager
def running(behaviour: Behaviour, *, host: str = "127.0.0.1", port: int = 0, seed: int = 0) -> Iterator[Running]:
    """Serve from a thread while the block runs. Raises: Unavailable when the port can't be had."""
    emulator = Emulator(behaviour, seed=seed)
    server = _server_of(emulator)
    with listen(host, port) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), name="emulator", daemon=True)
        thread.start()
        try:
            yield Running(url=url_of(listener), emulator=emulator)
        finally:
            server.should_exit = True
            thread.join()


def _server_of(emulator: Emulator) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            emulator,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
    )

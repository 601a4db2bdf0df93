"""The emulator on a port: a listening socket first, so that a port in use is said before anything starts."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from harness.ops.emulator.app import Emulator
from harness.ops.emulator.behaviour import Behaviour
from harness.ops.emulator.connection import Connection
from harness.policy.errors import Unavailable

BACKLOG = 2048  # connections that may wait while the loop is busy: more than any client of the benchmarks opens
SHUTDOWN_S = 2.0  # calls in flight get this long after SIGTERM


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
    # With the protocol named: only then does asyncio turn Nagle's algorithm off, with which a stream waits for acks.
    listener = socket.socket(found[0], found[1], found[2])
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

    async def until_told() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await _serve(listener, Emulator(behaviour, seed=seed), stop)

    with contextlib.suppress(KeyboardInterrupt):  # one that comes before the handlers stand
        asyncio.run(until_told())


@contextlib.contextmanager
def running(
    behaviour: Behaviour, *, host: str = "127.0.0.1", port: int = 0, seed: int = 0, emulator: Emulator | None = None
) -> Iterator[Running]:
    """Serve from a thread while the block runs. Raises: Unavailable when the port can't be had."""
    served = emulator or Emulator(behaviour, seed=seed)
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    def serve_until_told() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(_serve(listener, served, stop))

    with listen(host, port) as listener:
        thread = threading.Thread(target=serve_until_told, name="emulator", daemon=True)
        thread.start()
        try:
            yield Running(url=url_of(listener), emulator=served)
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()


async def _serve(listener: socket.socket, emulator: Emulator, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    open_ones: set[Connection] = set()
    server = await loop.create_server(lambda: Connection(emulator, open_ones), sock=listener, backlog=BACKLOG)
    try:
        await stop.wait()
        server.close()
        if answering := [task for one in list(open_ones) if (task := one.retire()) is not None]:
            await asyncio.wait(answering, timeout=SHUTDOWN_S)
    finally:
        server.close()
        for one in list(open_ones):
            one.drop()
        # Closed connections are told so in the loop's next round; without it their sockets would outlive it.
        await asyncio.sleep(0)

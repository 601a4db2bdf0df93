"""A receiver of webhooks on this machine, in a thread of the demo: it counts what came, by token."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BYTES = 1_000_000


class Receiver:
    """What has come."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.tokens: Counter[str] = Counter()


@contextlib.contextmanager
def running() -> Iterator[Receiver]:
    """Receive on a free port while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(min(int(self.headers.get("Content-Length") or 0), MAX_BYTES))
            receiver.tokens[self.headers.get("Idempotency-Key") or ""] += 1
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the demo's screen is for the figures."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, name="receiver", daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()

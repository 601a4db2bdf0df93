"""The clients of chaos: sent until answered, always under the same key; verbs in their order."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.chaos.clients import Clients
from benchmarks.chaos.schedule import Work

SHORT = Work(
    at_s=0.0,
    i=7,
    tenant="alpha",
    kind="bench.effect.cpu",
    priority=2,
    hold_s=0.1,
    effects=1,
    fails=0,
    how="transient",
    verbs=(("pause", 0.0), ("resume", 0.05)),
)


@contextmanager
def door(answers: dict[str, list[int]]) -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """Answer each path with these statuses in turn (0: hang up); note what came as (path, key, body)."""
    came: list[tuple[str, str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            came.append((self.path, self.headers.get("Idempotency-Key") or "", body))
            status = answers[self.path].pop(0)
            if not status:
                self.close_connection = True
                return
            text = json.dumps({"task_id": "t-7"}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", came
        finally:
            server.shutdown()
            thread.join()


def test_work_is_sent_again_under_its_key_until_it_is_answered_and_verbs_keep_their_order() -> None:
    tasks, pause, resume = "/api/v1/tasks", "/api/v1/tasks/t-7/pause", "/api/v1/tasks/t-7/resume"
    with door({tasks: [0, 503, 202], pause: [503, 200], resume: [409]}) as (url, came):
        clients = Clients(url, {"alpha": "key"}, [SHORT])
        clients.start(time.time())
        assert clients.finish(20.0)
    assert [path for path, _, _ in came] == [tasks, tasks, tasks, pause, pause, resume]
    assert len({(key, json.dumps(body)) for path, key, body in came if path == tasks}) == 1
    assert [(one.i, one.task, one.tenant) for one in clients.accepted] == [(7, "t-7", "alpha")]
    assert clients.answers == {503: 2, 202: 1, 200: 1, 409: 1} and clients.refused == []

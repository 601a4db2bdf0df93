"""The web process as the Procfile starts it, and a client with a key."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.store import keys
from tests.stage import Stage

STARTS_S = 60.0
METRICS_TOKEN = "only-for-scrapes"


@dataclass
class Web:
    """One uvicorn process; its log is a file."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(15)


def start_web(root: Path, log: Path, environment: Mapping[str, str] | None = None, *, port: int = 0) -> Web:
    """Start uvicorn and wait until it answers. `port`: where another one was, which has ended; 0: any free one."""
    if not port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "config.asgi:application", "--port", str(port), "--no-access-log"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=root, env=os.environ | dict(environment or {}), stdout=out, stderr=subprocess.STDOUT
        )
    web = Web(process, f"http://127.0.0.1:{port}", log)
    until_s = time.monotonic() + STARTS_S
    while True:
        try:
            if httpx.get(f"{web.url}/health/live").status_code == 200:
                return web
        except httpx.TransportError:
            pass
        assert process.poll() is None and time.monotonic() < until_s, log.read_text()
        time.sleep(0.05)


@pytest.fixture(scope="session")
def web(root: Path, tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Web]:
    """The web process of this run. A broker that nobody listens on: the request path must not need it."""
    log = tmp_path_factory.mktemp("web") / "web.log"
    web = start_web(
        root,
        log,
        {
            "BROKER_URL": "redis://127.0.0.1:1/0",
            "HARNESS_BODY_MAX_BYTES": "20000",
            "HARNESS_METRICS_TOKEN": METRICS_TOKEN,
        },
    )
    yield web
    assert web.stop() in (0, -15), log.read_text()


class Api:
    """What a tenant does with its key."""

    def __init__(self, web: Web, tenant: str, key: str) -> None:
        self.web = web
        self.tenant = tenant
        self.key = key
        self.http = web.client(key)

    def submit(self, kind: str = "noop", input: Any = None, *, key: str | None = None, **more: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key is not None else {}
        body = {"kind": kind, "input": {} if input is None else input, **more}
        return self.http.post("/api/v1/tasks", json=body, headers=headers)

    def raw(self, body: bytes, path: str = "/api/v1/tasks") -> httpx.Response:
        return self.http.post(path, content=body, headers={"Content-Type": "application/json"})

    def run(self, n: int = 3, *, key: str | None = None, **more: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key is not None else {}
        body = {"nodes": [{"kind": "noop", "input": {"i": i}} for i in range(n)], **more}
        return self.http.post("/api/v1/runs", json=body, headers=headers)


@pytest.fixture
def make_api(web: Web, database_url: str) -> Iterator[Any]:
    """Make a tenant with a key: `make_api("acme", top_priority=0)`."""
    made: list[Api] = []

    def make(name: str, *, scopes: tuple[str, ...] = keys.SCOPES, **limits: Any) -> Api:
        keys.create_tenant(name, **limits)
        made.append(Api(web, name, keys.create_key(name, scopes=scopes)))
        return made[-1]

    yield make
    for api in made:
        api.http.close()


@pytest.fixture
def api(make_api: Any) -> Api:
    """A tenant's client."""
    made: Api = make_api("alpha")
    return made


def assert_problem(answer: httpx.Response, status: int, code: str, field: str | None = None) -> dict[str, Any]:
    """Check that an answer is an RFC 9457 problem document of this kind, and return it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail", "code"} <= set(document)
    assert document["status"] == status and document["code"] == code
    assert document["type"] == f"urn:harness:problem:{code}"
    assert document.get("field") == field, document
    assert "Traceback" not in answer.text and 'File "' not in answer.text
    return document


@pytest.fixture
def stage_beside(web: Web, database_url: str) -> Iterator[Stage]:
    """The dispatcher's and the worker's side, in this process, under a tenant of its own."""
    stage = Stage(database_url)
    yield stage
    stage.close()

"""Flower as the stack configures it, on real processes: behind its login on every path, reading only, kinds by name."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from harness.ops.local import stack
from harness.ops.local.places import open_places
from harness.ops.local.servers import Known
from tests.route.conftest import Route
from tests.stage import wait_until

OPEN_IN_FLOWER = ["/metrics", "/healthcheck", "/static/css/flower.css"]
PATHS = [
    *OPEN_IN_FLOWER,
    "/",
    "/workers",
    "/tasks",
    "/tasks/datatable",
    "/broker",
    "/login",
    "/logout",
    "/api/workers",
    "/api/tasks",
    "/api/task/types",
    "/api/queues/length",
    "/task/x",
    "/worker/x",
    "/no-such-page",
    "/api/task/info/x",
]
CONTROL = ["/api/worker/shutdown/x", "/api/worker/pool/grow/x", "/api/task/revoke/x", "/api/task/async-apply/x"]


@pytest.fixture
def flower(route: Route, tmp_path: Path) -> Iterator[httpx.Client]:
    """Flower with the file that `stack up` writes, and a client that has logged in."""
    places = open_places(tmp_path / "home")
    found = stack._flower(places, Known(places.stack / "secrets.json"))
    process = route.start("-m", "celery", "-A", "config", "flower", f"--conf={places.stack / 'flower.py'}")
    login = (found["FLOWER_LOGIN"], found["FLOWER_LOGIN_PASSWORD"])

    def answers() -> bool:
        assert process.poll() is None, (tmp_path / "0.log").read_text()
        try:
            return httpx.get(found["FLOWER_WEB_URL"], auth=login, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    wait_until(answers, within_s=40)
    with httpx.Client(base_url=found["FLOWER_WEB_URL"], auth=login, timeout=15) as client:
        yield client


def test_flower_shows_a_task_by_its_kind_to_who_logs_in_and_nothing_to_others(
    flower: httpx.Client, route: Route, broker_url: str
) -> None:
    url = str(flower.base_url).rstrip("/")
    for path in PATHS:
        refused = httpx.get(f"{url}{path}", timeout=15)
        assert refused.status_code == 401, (path, refused.status_code)
        assert "Basic" in refused.headers["www-authenticate"]
        assert httpx.get(f"{url}{path}", auth=("harness", "guess"), timeout=15).status_code == 401, path
    for path in CONTROL:
        assert httpx.post(f"{url}{path}", timeout=15).status_code == 401, path
        assert flower.post(path).status_code == 403, path
        assert flower.request("PUT", path).status_code == 403
        assert flower.request("OPTIONS", path).status_code == 403
    for path in OPEN_IN_FLOWER:
        assert flower.get(path).status_code == 200, path
    password = flower.auth._auth_header.split()[1]  # type: ignore[union-attr]  # httpx.BasicAuth
    assert password and password not in " ".join(psutil.Process(route.processes[0].pid).cmdline())

    route.dispatcher()
    route.worker("tool_read")
    route.stage.submit("noop.sleep", n=3, input=json.dumps({"sleep_s": 0}))
    wait_until(lambda: route.count("succeeded") == 3, within_s=30)
    wait_until(lambda: len(flower.get("/api/tasks").json()) == 3, within_s=15)
    assert {task["name"] for task in flower.get("/api/tasks").json().values()} == {"noop.sleep"}
    page = flower.get("/tasks")
    assert page.status_code == 200 and "Flower" in page.text


def test_flower_asks_no_worker_to_send_events_that_resources_toml_keeps_quiet(tmp_path: Path) -> None:
    places = open_places(tmp_path / "home")
    stack._flower(places, Known(places.stack / "secrets.json"))
    written = places.stack / "flower.py"
    assert written.stat().st_mode & 0o777 == 0o600
    options: dict[str, object] = {}
    exec(written.read_text(), options)
    assert options["enable_events"] is False and options["read_only"] is True and options["address"] == "127.0.0.1"

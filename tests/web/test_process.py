"""The web process: documentation, probes, and life with a database that comes and goes."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import pytest
from django.conf import settings

from harness.store import keys
from tests.gateway import Gateway
from tests.stage import Stage
from tests.web.conftest import METRICS_TOKEN, Api, Web, assert_problem, start_web


def test_the_documentation_loads_nothing_from_outside(web: Web) -> None:
    page = httpx.get(f"{web.url}/api/docs")
    assert page.status_code == 200 and "swagger-ui" in page.text
    assets = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(assets) >= 4
    for asset in assets:
        assert asset.startswith("/static/"), asset
        assert httpx.get(web.url + asset).status_code == 200
    assert "://" not in page.text


def test_the_openapi_document_says_what_is_taken_and_given(web: Web) -> None:
    document = httpx.get(f"{web.url}/api/openapi.json").json()
    assert set(document["paths"]) == {
        "/api/v1/tasks",
        "/api/v1/tasks/{task_id}",
        "/api/v1/tasks/{task_id}/trace",
        "/api/v1/tasks/{task_id}/steps",
        "/api/v1/tasks/{task_id}/steps/{ordinal}",
        "/api/v1/tasks/{task_id}/why",
        "/api/v1/tasks/{task_id}/cancel",
        "/api/v1/tasks/{task_id}/pause",
        "/api/v1/tasks/{task_id}/resume",
        "/api/v1/tasks/{task_id}/requeue",
        "/api/v1/tasks/{task_id}/priority",
        "/api/v1/tasks/bulk",
        "/api/v1/tasks/{task_id}/redrive",
        "/api/v1/approvals",
        "/api/v1/tasks/{task_id}/approvals",
        "/api/v1/tasks/{task_id}/approve",
        "/api/v1/tasks/{task_id}/deny",
        "/api/v1/tasks/{task_id}/reask",
        "/api/v1/tasks/{task_id}/approval-link",
        "/api/v1/tasks/{task_id}/page-link",
        "/api/v1/dead-letters",
        "/api/v1/dead-letters/groups",
        "/api/v1/dead-letters/redrive",
        "/api/v1/dead-letters/{task_id}",
        "/api/v1/tasks/{task_id}/output",
        "/api/v1/tasks/{task_id}/stream",
        "/api/v1/pressure",
        "/api/v1/forecasts",
        "/api/v1/usage",
        "/api/v1/runs",
        "/api/v1/runs/{run_id}",
        "/api/v1/runs/{run_id}/page-link",
        "/api/v1/runs/{run_id}/cancel",
        "/api/v1/runs/{run_id}/pause",
        "/api/v1/runs/{run_id}/resume",
        "/api/v1/runs/{run_id}/requeue",
        "/api/v1/runs/{run_id}/priority",
        "/api/v1/ingestions",
        "/api/v1/schedules",
        "/api/v1/schedules/{schedule_id}",
        "/api/v1/schedules/{schedule_id}/pause",
        "/api/v1/schedules/{schedule_id}/resume",
        "/api/v1/kinds",
        "/api/v1/artifacts",
        "/api/v1/artifacts/{artifact_id}",
        "/api/v1/artifacts/{artifact_id}/content",
    }
    create = document["paths"]["/api/v1/runs"]["post"]
    schema = create["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]["nodes"]["items"]["required"]) == {"kind", "input"}
    assert {"202", "200", "409", "413", "422", "429", "503"} <= set(create["responses"])
    assert create["security"] and any(one["name"] == "Idempotency-Key" for one in create["parameters"])
    assert "#/$defs" not in str(document)


def test_ready_names_what_is_missing_and_is_ok_when_all_is_there(web: Web, stage_beside: Stage) -> None:
    assert httpx.get(f"{web.url}/health/live").json() == {"status": "ok"}
    stage_beside.connection.execute("UPDATE leader SET until = clock_timestamp() - interval '1 s'")
    problem = assert_problem(httpx.get(f"{web.url}/health/ready"), 503, "unavailable")
    assert {name: check["ok"] for name, check in problem["checks"].items()} == {
        "database": True,
        "dispatcher": False,
        "worker": False,
    }
    assert "manage.py dispatcher" in problem["detail"]
    session = stage_beside.add_session()
    stage_beside.connection.execute("UPDATE leader SET until = clock_timestamp() + interval '1 min'")
    assert httpx.get(f"{web.url}/health/ready").status_code == 200
    stage_beside.forget_beats(session)
    problem = assert_problem(httpx.get(f"{web.url}/health/ready"), 503, "unavailable")
    assert not problem["checks"]["worker"]["ok"]


def test_slow_requests_do_not_hold_up_a_probe(api: Api) -> None:
    """A request that waits for a lock holds a thread, not the event loop."""
    stage = Stage(settings.DATABASE_URL)
    with stage.connection.transaction():
        stage.connection.execute("LOCK TABLE task IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(httpx.ReadTimeout):
            api.http.post("/api/v1/tasks", json={"kind": "noop", "input": {}}, timeout=0.3)
        started_s = time.monotonic()
        assert httpx.get(f"{api.web.url}/health/live").status_code == 200
        assert time.monotonic() - started_s < 1
    stage.close()


@pytest.fixture
def far_web(root: Path, tmp_path: Path, database_url: str) -> Iterator[tuple[Web, Gateway]]:
    """A web process whose way to the database can be cut."""
    parts = urlsplit(database_url)
    gateway = Gateway(parts.hostname or "127.0.0.1", parts.port or 5432)
    login, at, _ = parts.netloc.rpartition("@")
    url = urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{gateway.port}"))
    web = start_web(root, tmp_path / "web.log", {"DATABASE_URL": url, "HARNESS_METRICS_TOKEN": METRICS_TOKEN})
    yield web, gateway
    web.stop()
    gateway.close()


def test_a_lost_database_is_503_with_retry_after_and_it_heals_by_itself(far_web: Any) -> None:
    web, gateway = far_web
    keys.create_tenant("alpha")
    api = Api(web, "alpha", keys.create_key("alpha"))
    assert api.submit().status_code == 202
    gateway.open = False
    asks: list[Callable[[], httpx.Response]] = [
        api.submit,
        api.run,
        lambda: api.http.get("/api/v1/tasks"),
        lambda: api.http.get("/health/ready"),
        lambda: httpx.get(f"{web.url}/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"}),
    ]
    for ask in asks:
        started_s = time.monotonic()
        answer = ask()
        assert_problem(answer, 503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert time.monotonic() - started_s < 5
    assert api.http.get("/health/live").status_code == 200
    gateway.open = True
    until_s = time.monotonic() + 10
    while (answer := api.submit()).status_code != 202:
        assert_problem(answer, 503, "unavailable")
        assert time.monotonic() < until_s
    assert "Traceback" not in web.log.read_text()
    api.http.close()


def test_a_restarted_database_costs_no_request(far_web: Any) -> None:
    web, gateway = far_web
    keys.create_tenant("alpha")
    api = Api(web, "alpha", keys.create_key("alpha"))
    assert api.submit().status_code == 202
    assert gateway.cut() >= 1
    gateway.open = True
    assert [api.submit().status_code for _ in range(8)] == [202] * 8
    api.http.close()


def test_web_that_cannot_load_its_kinds_ends_and_says_why(root: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "uvicorn", "config.asgi:application", "--port", "0"],
        cwd=root,
        env=os.environ | {"HARNESS_TASK_PACKAGES": "nowhere"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode != 0
    assert "HARNESS_TASK_PACKAGES: 'nowhere'" in ended.stderr and "Traceback" not in ended.stderr


def test_web_lives_under_a_wrong_database_url_and_says_so(root: Path, tmp_path: Path) -> None:
    web = start_web(root, tmp_path / "web.log", {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"})
    answer = httpx.get(f"{web.url}/health/ready", timeout=20)
    problem = assert_problem(answer, 503, "unavailable")
    assert not problem["checks"]["database"]["ok"]
    with web.client("hk_aaaaaaaa_" + "b" * 43) as http:
        assert_problem(http.post("/api/v1/tasks", content=b"{}"), 503, "unavailable")
    assert web.stop() in (0, -15)
    assert "Connection refused" in web.log.read_text()

"""`GET /metrics`: what a process manager scales by, behind a token of its own."""

import httpx
import pytest

from harness.policy.autoscale import Advice, Memory
from harness.store import autoscale
from tests.stage import Stage
from tests.web.conftest import METRICS_TOKEN, Api, Web, assert_problem


def read(web: Web, token: str | None = METRICS_TOKEN, method: str = "GET") -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.request(method, f"{web.url}/metrics", headers=headers)


def test_the_numbers_of_workers_are_there_for_prometheus(web: Web, stage_beside: Stage) -> None:
    assert read(web).text == ""
    for desired, holds in ((4, False), (6, True)):
        advice = Advice(
            pool="llm", workers=2, desired=desired, wanted=6, binds="llm:default", reason="why", holds=holds
        )
        autoscale.keep(stage_beside.connection, [(advice, Memory(), {})])
    answer = read(web)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    for line in (
        "# TYPE harness_pool_workers gauge",
        'harness_pool_workers{pool="llm"} 2',
        'harness_pool_workers_desired{pool="llm"} 6',
        'harness_pool_workers_held{pool="llm"} 1',
    ):
        assert line in lines
    assert any(line.startswith("harness_autoscale_age_seconds 0") for line in lines)
    assert "why" not in answer.text


@pytest.mark.parametrize("token", [None, "wrong", METRICS_TOKEN + "x"])
def test_who_does_not_show_the_token_sees_nothing(web: Web, database_url: str, token: str | None) -> None:
    assert_problem(read(web, token), 401, "unauthenticated")


def test_a_tenants_key_opens_nothing_here_and_nothing_can_be_written(web: Web, api: Api) -> None:
    assert_problem(read(web, api.key), 401, "unauthenticated")
    assert_problem(read(web, method="POST"), 405, "method_not_allowed")

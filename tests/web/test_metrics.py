"""`GET /metrics`: what was counted, behind a token of its own, the same from every web process."""

import json
import re

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.engine import tally
from harness.policy.autoscale import Advice, Memory
from harness.store import autoscale
from harness.store import tally as stored
from harness.telemetry.metrics import METRICS
from tests.engine.test_tally import later
from tests.stage import Stage
from tests.web.conftest import METRICS_TOKEN, Api, Web, assert_problem


def read(web: Web, token: str | None = METRICS_TOKEN, method: str = "GET") -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.request(method, f"{web.url}/metrics", headers=headers)


def sample(text: str, name: str, **labels: str) -> float | None:
    """The value of one line, as Prometheus' own parser reads it."""
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            if one.name == name and one.labels == labels:
                return float(one.value)
    return None


def test_the_numbers_of_workers_are_there_for_prometheus(web: Web, stage_beside: Stage) -> None:
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
        'harness_pool_workers{pool="llm"} 2.0',
        'harness_desired_workers{pool="llm"} 6.0',
        'harness_pool_workers_held{pool="llm"} 1.0',
    ):
        assert line in lines
    assert any(line.startswith("harness_autoscale_age_seconds 0") for line in lines)
    assert "why" not in answer.text


def test_what_was_planted_is_what_prometheus_reads(web: Web, stage_beside: Stage) -> None:
    stage = stage_beside
    tally.count(stage.connection)
    waits = stage.submit("llm.chat", 3, priority=1)
    stage.connection.execute(
        "UPDATE task SET ready_at = now() - make_interval(secs => 100 * (id - %s)) WHERE id = ANY(%s)",
        (waits[0] - 1, waits),
    )
    done = stage.submit("noop.single", 2)
    stage.connection.execute(
        "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict, error_class, slot_s) "
        "SELECT id, tenant_id, 1, now(), 'fail', 'server_error', 0.2 FROM task WHERE id = ANY(%s)",
        (done,),
    )
    stage.connection.execute(
        "INSERT INTO resource_state (resource, limit_now, mode, breaker, in_flight, waiting, seen_at) "
        "VALUES ('llm:default', 37, 'aimd', 'half_open', 5, 2, now())"
    )
    stage.connection.execute(
        "INSERT INTO audit_finding (rule, level, subject, found_at, seen_at, seen) "
        "VALUES ('lease_without_member', 'fault', 'lease 1', now(), now(), 1)"
    )
    stage.connection.execute(
        "INSERT INTO forecast_pass (id, at, took_s, waiting, looked_at, most, trust, calibration, under) VALUES "
        "(1, now(), 0.1, 0, 0, 100, 'good', %s, '{}')",
        (json.dumps({"p50_covers": 0.52, "p90_covers": 0.91, "pinball_ratio": 0.6}),),
    )
    later(stage)
    tally.count(stage.connection)
    text = read(web).text
    assert sample(text, "harness_queue_depth_by_priority", pool="llm", priority="1") == 3
    assert sample(text, "harness_queue_depth_by_priority", pool="db", priority="2") == 2
    assert sample(text, "harness_queue_depth_by_priority", pool="browser", priority="0") == 0
    age_s = sample(text, "harness_oldest_job_age_seconds", pool="llm", priority="1")
    assert age_s is not None and 100 <= age_s < 160, "of the first in line, not of the oldest of all"
    assert sample(text, "harness_retry_count_total", pool="db", priority="2", error="server_error") == 2
    assert sample(text, "harness_task_run_time_seconds_count", pool="db", kind="noop.single") == 2
    assert sample(text, "harness_task_run_time_seconds_bucket", pool="db", kind="noop.single", le="0.1") == 0
    assert sample(text, "harness_task_run_time_seconds_bucket", pool="db", kind="noop.single", le="0.25") == 2
    assert sample(text, "harness_resource_limit", resource="llm:default") == 37
    assert sample(text, "harness_breaker", resource="llm:default", state="half_open") == 1
    assert sample(text, "harness_breaker", resource="llm:default", state="open") == 0
    assert sample(text, "harness_audit_findings", rule="lease_without_member", level="fault") == 1
    assert sample(text, "harness_eta_coverage", quantile="0.9") == 0.91
    assert sample(text, "harness_tenant_waiting", tenant="acme") == 5
    lag_s = sample(text, "harness_dispatcher_lag_seconds")
    assert lag_s is not None and lag_s < 60
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert len(family.samples) <= 800, family.name


def test_every_web_process_gives_the_same_answer_and_a_scrape_counts_nothing(web: Web, stage_beside: Stage) -> None:
    tally.count(stage_beside.connection)
    assert len(stage_beside.submit(n=3)) == 3

    def totals() -> list[str]:
        # Ages grow from one scrape to the next; nothing else may differ.
        return [line for line in read(web).text.splitlines() if not re.match(r"harness_\w+(age|lag)_seconds\b", line)]

    first = totals()
    assert len(first) > 100 and totals() == first


def test_a_scrape_with_nothing_counted_yet_is_empty_and_no_error(web: Web, stage_beside: Stage) -> None:
    answer = read(web)
    assert answer.status_code == 200
    assert {family.name for family in text_string_to_metric_families(answer.text)} <= {"harness_dispatcher_lag_seconds"}


def test_a_tenant_sees_nothing_of_what_was_counted_whatever_it_says(stage_beside: Stage) -> None:
    stage = stage_beside
    tally.count(stage.connection)
    with stage.open("web") as web:
        assert web.execute("SELECT count(*) FROM tally").fetchone() == (0,)
        web.execute("SELECT set_config('harness.scrape', 'yes', false), set_config('harness.tenant', '1', false)")
        assert web.execute("SELECT count(*) FROM tally").fetchone() == (0,)
        web.execute("SELECT set_config('harness.tenant', '', false)")
        assert web.execute("SELECT count(*) FROM tally").fetchone() == (1,)
        with pytest.raises(Exception, match="permission denied"):
            web.execute("UPDATE tally SET took_s = 0")
    with stage.open("web") as web:
        assert stored.scraped(web).kept is not None
        assert web.execute("SELECT count(*) FROM tally").fetchone() == (0,), "the next request is a tenant's"


@pytest.mark.parametrize("token", [None, "wrong", METRICS_TOKEN + "x"])
def test_who_does_not_show_the_token_sees_nothing(web: Web, database_url: str, token: str | None) -> None:
    assert_problem(read(web, token), 401, "unauthenticated")


def test_a_tenants_key_opens_nothing_here_and_nothing_can_be_written(web: Web, api: Api) -> None:
    assert_problem(read(web, api.key), 401, "unauthenticated")
    assert_problem(read(web, method="POST"), 405, "method_not_allowed")


def test_every_metric_is_described_and_named_after_what_it_is() -> None:
    for name, one in METRICS.items():
        assert re.fullmatch(r"harness_[a-z_]+", name) and one.what.endswith(".")
        assert name.endswith("_total") == (one.kind == "counter"), name
        assert name.endswith("_seconds") or one.kind != "histogram", name
        assert not {"task", "task_id", "run", "session", "key"} & set(one.labels), name

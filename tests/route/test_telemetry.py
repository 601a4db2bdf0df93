"""Real processes tell of a task in logs and traces: where it is, what came of it, and nothing of what it is about."""

import http.server
import json
import re
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from harness.store import keys
from tests.route.conftest import Route
from tests.stage import wait_until
from tests.web.conftest import METRICS_TOKEN, start_web

CANARY = "canary-7f3a"  # in all that a tenant says
LINE = re.compile(r"^\{.*\}$", re.MULTILINE)
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@dataclass
class Collector:
    """Takes spans as OpenTelemetry's collector does."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)

    def spans(self) -> list[tuple[str, Any]]:
        """Return (service, span) of all that came."""
        found = []
        for body in list(self.bodies):
            for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                (service,) = (one.value.string_value for one in each.resource.attributes if one.key == "service.name")
                found += [(service, span) for scope in each.scope_spans for span in scope.spans]
        return found

    def of(self, task: str) -> list[tuple[str, Any]]:
        return [(service, span) for service, span in self.spans() if span.trace_id == uuid.UUID(task).bytes]


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        collector.url = f"http://127.0.0.1:{server.server_port}"
        yield collector
        server.shutdown()


def attributes(span: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in span.attributes}


def test_a_task_is_one_trace_and_its_logs_say_which_and_neither_says_what_it_is_about(
    route: Route, collector: Collector, root: Path, tmp_path: Path
) -> None:
    route.environment |= {
        "HARNESS_TASK_PACKAGES": "tasks,tests.route.kinds",
        "HARNESS_LOG_LEVEL": "DEBUG",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "SECRET_KEY": f"{CANARY}-of-the-session",
        "HARNESS_METRICS_TOKEN": METRICS_TOKEN,
    }
    key = keys.create_key("acme")
    route.dispatcher()
    route.worker("tool_read")
    web = start_web(root, tmp_path / "web.log", route.environment)
    try:
        with httpx.Client(base_url=web.url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as api:

            def submit(**more: Any) -> httpx.Response:
                return api.post(
                    "/api/v1/tasks",
                    json={"kind": "route.traced", "title": CANARY, "tags": [CANARY], **more},
                    headers={"traceparent": PARENT, "Idempotency-Key": f"{CANARY}-{len(more['input'])}"},
                )

            good = submit(input={"words": CANARY}).json()["task_id"]
            bad = submit(input={"words": CANARY, "fail": True}).json()["task_id"]
            assert submit(input={"wrong": CANARY, "b": 1, "c": 2}).status_code == 422
            assert api.get(f"/api/v1/tasks/{CANARY}").status_code in (404, 422)
            assert httpx.get(f"{web.url}/api/v1/tasks", headers={"Authorization": f"Bearer hk_{CANARY}"}).is_error
            assert httpx.get(f"{web.url}/metrics", headers={"Authorization": f"Bearer {CANARY}"}).is_error
            wait_until(lambda: route.count("succeeded") == 1 and route.count("failed_terminal") == 1, within_s=60)
            assert api.get(f"/api/v1/tasks/{good}").json()["result"] == {"words": CANARY}
            assert CANARY in json.dumps(api.get(f"/api/v1/tasks/{bad}").json()["error"]), "who asks is told"

        whole = {"submit", "wait", "release", "claim", "attempt", "step", "call", "permit", "settle"}
        for task in (good, bad):
            wait_until(lambda task=task: {span.name for _, span in collector.of(task)} >= whole, within_s=30)
    finally:
        web.stop()

    # 1. One trace, whose spans hang together, from three processes
    for task, verdict in ((good, "succeed"), (bad, "bury")):
        found = collector.of(task)
        of = {span.name: span for _, span in found}
        assert {service for service, _ in found} == {"harness-web", "harness-dispatcher", "harness-worker"}
        top = of["submit"]
        assert not top.parent_span_id and attributes(top)["http.route"] == "POST /api/v1/tasks"
        assert [link.trace_id.hex() for link in top.links] == [PARENT.split("-")[1]], "who asked is linked"
        for name in ("wait", "release", "claim", "attempt", "settle"):
            assert of[name].parent_span_id == top.span_id, name
        assert of["step"].parent_span_id == of["attempt"].span_id
        assert of["call"].parent_span_id == of["step"].span_id
        assert of["permit"].parent_span_id == of["call"].span_id
        assert attributes(of["step"])["harness.step"] == "think"
        assert attributes(of["call"])["harness.resource"] == "tool:http"
        assert attributes(of["settle"])["harness.verdict"] == verdict
        starts = [of[name].start_time_unix_nano for name in ("submit", "release", "attempt", "step", "call", "settle")]
        assert starts == sorted(starts)

    # 2. Logs are JSON, a line an event, with the task and its trace
    told = {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    assert len(told) == 3
    lines = [json.loads(line) for text in told.values() for line in LINE.findall(text)]
    ended = {line["task_id"]: line for line in lines if line["event"] in ("attempt_succeeded", "attempt_ended")}
    assert ended.keys() == {good, bad}
    for task, line in ended.items():
        assert line["trace_id"] == uuid.UUID(task).hex == line["task_id"].replace("-", "")
        assert (line["kind"], line["attempt"], line["priority"]) == ("route.traced", 1, 2)
    assert (ended[good]["event"], ended[bad]["verdict"]) == ("attempt_succeeded", "bury")

    # 3. Nothing of what was said, and no secret, is in either
    secrets = (CANARY, key, key.rpartition("_")[2], METRICS_TOKEN)
    for place, text in {**told, "traces": "".join(body.decode("latin-1") for body in collector.bodies)}.items():
        assert [one for one in secrets if one in text] == [], place

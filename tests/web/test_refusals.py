"""What the door refuses: each with a problem document that names the field, and without a trace in the database."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from harness.store import keys
from tests.stage import Stage
from tests.web.conftest import Api, Web, assert_problem

DOCUMENT = {"name": "a", "content": "b", "content_type": "text/plain"}


def test_an_unknown_kind_is_named(api: Api) -> None:
    problem = assert_problem(api.submit("nope"), 422, "invalid", "kind")
    assert "/api/v1/kinds" in problem["detail"]


def test_every_wrong_value_of_a_payload_is_named_with_its_path(api: Api) -> None:
    problem = assert_problem(api.submit("noop", {"i": -1, "tag": "two words", "x": 1}), 422, "invalid", "input.tag")
    assert {error["field"] for error in problem["errors"]} == {"input.i", "input.tag", "input.x"}
    assert "two words" not in problem["detail"]  # values may be secrets


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input": {}}, "kind"),
        ({"kind": "noop"}, "input"),
        ({"kind": "noop", "input": {}, "priority": 4}, "priority"),
        ({"kind": "noop", "input": {}, "priority": "1"}, "priority"),
        ({"kind": "noop", "input": {}, "extra": 1}, "extra"),
        ({"kind": "noop", "input": [1]}, "input"),
        ({"kind": "noop", "input": {}, "not_before": "2030-01-01T00:00:00"}, "not_before"),
        ({"kind": "noop", "input": {}, "deadline": "2020-01-01T00:00:00Z"}, "deadline"),
        ({"kind": "noop", "input": {}, "not_before": "9999-12-31T23:59:59-12:00"}, "not_before"),
        ({"kind": "noop", "input": {}, **{f"k{i}": 1 for i in range(20)}}, "body"),
        ([], "body"),
        ("text", "body"),
    ],
)
def test_a_wrong_envelope_is_named(api: Api, body: object, field: str) -> None:
    assert_problem(api.raw(json.dumps(body).encode()), 422, "invalid", field)


def test_a_time_to_start_by_must_come_after_not_before(api: Api) -> None:
    soon, later = (datetime.now(UTC) + timedelta(hours=hours) for hours in (1, 2))
    answer = api.submit(not_before=later.isoformat(), start_by=soon.isoformat())
    assert_problem(answer, 422, "invalid", "start_by")


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (b'{"name": "a\\u0000b", "content": "c", "content_type": "text/plain"}', "input.name"),
        (b'{"name": "a\x00b", "content": "c", "content_type": "text/plain"}', "input.name"),
        (b'{"name": "a", "content": "\\ud800", "content_type": "text/plain"}', "input.content"),
        (b'{"name": "a", "content": "\\udc00\\ud800", "content_type": "text/plain"}', "input.content"),
        (b'{"list": [{"a": 1}, {"b": "\\ud83d"}]}', "input.list[1].b"),
        (b'{"\\u0000": 1}', "input"),
        (b'{"ts": 1e999}', "input.ts"),
        (b'{"ts": NaN}', "input.ts"),
    ],
)
def test_text_and_numbers_that_cannot_be_stored_are_refused_by_path(api: Api, payload: bytes, field: str) -> None:
    assert_problem(api.raw(b'{"kind": "ingest.document", "input": ' + payload + b"}"), 422, "invalid", field)


def test_text_that_only_looks_dangerous_goes_through_unchanged(api: Api, stage_beside: Stage) -> None:
    text = "\\u0000 NaN Infinity \U0001f600 \u2028"
    made = api.submit("ingest.document", DOCUMENT | {"content": text}).json()
    stored = stage_beside.one(
        "SELECT input ->> 'content' FROM task_body b JOIN task t ON t.id = b.task_id WHERE public_id = %s",
        made["task_id"],
    )
    assert stored == text


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b"[" * 5000 + b"]" * 5000, b'{"kind": "noop", "input": {"i": ' + b"9" * 5000 + b"}}"],
)
def test_what_is_not_json_is_a_400(api: Api, body: bytes) -> None:
    assert_problem(api.raw(body), 400, "bad_json")


def test_a_payload_over_the_limit_is_413_and_named_also_within_a_run(api: Api) -> None:
    large = DOCUMENT | {"content": "x" * 21_000}
    assert_problem(api.submit("ingest.document", large), 413, "too_large", "input")
    nodes = [{"kind": "noop", "input": {}}, {"kind": "ingest.document", "input": large}]
    answer = api.http.post("/api/v1/runs", json={"nodes": nodes})
    assert_problem(answer, 413, "too_large", "nodes[1].input")
    assert api.submit("ingest.document", DOCUMENT | {"content": "x" * 19_000}).status_code == 202


def test_a_body_over_the_limit_is_413_announced_or_not(api: Api) -> None:
    size = 33 * 1024 * 1024
    assert_problem(api.raw(b" " * size, "/api/v1/runs"), 413, "too_large", "body")
    chunks = (b" " * (1024 * 1024) for _ in range(33))
    assert_problem(api.http.post("/api/v1/runs", content=chunks), 413, "too_large", "body")
    assert_problem(api.raw(b" " * 1_000_000), 413, "too_large", "body")


def test_a_run_of_10_000_nodes_is_taken_and_one_more_is_413(api: Api, stage_beside: Stage) -> None:
    answer = api.run(10_000)
    assert answer.status_code == 202 and len(answer.json()["task_ids"]) == 10_000
    count = "SELECT count(*) FROM task t JOIN run r ON r.id = t.run_id WHERE r.public_id = %s"
    assert stage_beside.one(count, answer.json()["run_id"]) == 10_000
    assert_problem(api.run(10_001), 413, "too_large", "nodes")


def test_a_run_is_refused_whole_when_one_node_is_wrong(api: Api, stage_beside: Stage) -> None:
    nodes: list[dict[str, Any]] = [{"kind": "noop", "input": {"i": i}} for i in range(30)]
    nodes[17]["input"] = {"i": "many"}
    answer = api.http.post("/api/v1/runs", json={"nodes": nodes})
    assert_problem(answer, 422, "invalid", "nodes[17].input.i")
    nodes[17] = {"kind": "noop", "input": {}, "priority": 0}
    answer = api.http.post("/api/v1/runs", json={"nodes": nodes})
    assert_problem(answer, 403, "forbidden", "nodes[17].priority")
    assert_problem(api.http.post("/api/v1/runs", json={"nodes": []}), 422, "invalid", "nodes")
    assert_problem(api.run(1, fanout_cap=0), 422, "invalid", "fanout_cap")
    assert_problem(api.run(1, name="a\x00b"), 422, "invalid", "name")
    assert stage_beside.one("SELECT count(*) FROM task") == 0 and stage_beside.one("SELECT count(*) FROM run") == 0


def test_a_priority_above_the_tenants_is_forbidden(api: Api, make_api: Any) -> None:
    problem = assert_problem(api.submit(priority=0), 403, "forbidden", "priority")
    assert "ask for 1" in problem["detail"]
    assert make_api("urgent", top_priority=0).submit(priority=0).status_code == 202
    assert make_api("batch", top_priority=3).submit().json()["priority"] == 3


def test_a_full_backlog_is_429_with_retry_after_until_work_ends(make_api: Any) -> None:
    api = make_api("small", backlog_quota=5)
    first = api.submit().json()
    assert api.run(4).status_code == 202
    answer = api.submit()
    problem = assert_problem(answer, 429, "over_quota")
    assert int(answer.headers["retry-after"]) >= 1 and "5" in problem["detail"]
    never = api.run(6)
    assert_problem(never, 429, "over_quota", "nodes")
    assert "retry-after" not in never.headers  # waiting doesn't help
    api.http.post(first["links"]["cancel"])
    assert_problem(api.submit(), 429, "over_quota")  # counted at most once a second


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer x y",
        "Basic abc",
        "Bearer hk_short",
        "Bearer hk_aaaaaaaa_" + "b" * 43,
        "Bearer hk_\u00e9",
    ],
)
def test_a_bad_key_is_401(web: Web, api: Api, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.encode()}
    for method, path in (("GET", "/api/v1/tasks"), ("POST", "/api/v1/tasks"), ("GET", "/api/v1/kinds")):
        answer = httpx.request(method, web.url + path, headers=headers)  # type: ignore[arg-type]  # bytes are fine
        assert_problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_the_right_prefix_with_a_wrong_secret_and_a_revoked_key_are_401(web: Web, api: Api) -> None:
    with web.client(api.key[:-1] + ("A" if api.key[-1] != "A" else "B")) as forged:
        assert_problem(forged.get("/api/v1/tasks"), 401, "unauthenticated")
    assert api.http.get("/api/v1/tasks").status_code == 200
    keys.revoke_key(api.key.split("_")[1])
    assert_problem(api.http.get("/api/v1/tasks"), 401, "unauthenticated")  # at once


def test_a_key_does_what_its_scopes_say(make_api: Any) -> None:
    reader, writer = make_api("reader", scopes=("read",)), make_api("writer", scopes=("write",))
    assert reader.http.get("/api/v1/tasks").status_code == 200
    assert_problem(reader.submit(), 403, "forbidden")
    made = writer.submit()
    assert made.status_code == 202
    assert_problem(writer.http.get(made.json()["links"]["self"]), 403, "forbidden")


def test_unknown_paths_and_methods_are_problems_too(api: Api) -> None:
    for path in ("/api/v1/nothing", "/api/v1/tasks/not-a-uuid", "/api/v1/tasks/", "/health/x"):
        assert_problem(api.http.get(path), 404, "not_found")
    answer = api.http.delete("/api/v1/tasks")
    assert_problem(answer, 405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "POST"}
    assert_problem(httpx.get(api.web.url + "/api/v1/kinds", headers={"Host": "evil.example"}), 400, "bad_request")


def test_the_front_names_the_ways_in_for_people_and_for_programs(web: Web) -> None:
    people = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    page = httpx.get(web.url, headers=people)
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    told = httpx.get(web.url).json()["links"]
    for link in told.values():
        assert link == told["openapi"] or f'href="{link}"' in page.text
        assert httpx.get(web.url + link, follow_redirects=True).status_code in {200, 503}, link

    for path in ("/nothing", "/admin", "/api/docs/nothing"):
        assert httpx.get(web.url + path, headers=people).status_code in {301, 302, 404}
    lost = httpx.get(f"{web.url}/nothing<b>", headers=people)
    assert lost.status_code == 404 and told["admin"] in lost.text and "<b>" not in lost.text
    assert_problem(httpx.get(f"{web.url}/nothing"), 404, "not_found")
    assert_problem(httpx.post(web.url), 405, "method_not_allowed")

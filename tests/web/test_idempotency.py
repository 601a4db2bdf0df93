"""The same key and body make one thing, whoever asks and how often; another body is told what differs."""

import threading
from typing import Any

import httpx

from tests.stage import Stage
from tests.web.conftest import Api, assert_problem


def test_the_same_key_and_body_return_the_same_task_with_200(api: Api, stage_beside: Stage) -> None:
    first = api.submit("noop", {"i": 1, "tag": "a"}, key="once")
    body = b'{"input": {"tag": "a",  "i": 1}, "kind": "noop", "priority": null}'  # the same, spelled otherwise
    again = api.http.post("/api/v1/tasks", content=body, headers={"Idempotency-Key": "once"})
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json()["task_id"] == first.json()["task_id"] and again.json()["existing"] is True
    api.http.post(first.json()["links"]["cancel"])
    assert api.submit("noop", {"i": 1, "tag": "a"}, key="once").json()["state"] == "cancelled"
    assert stage_beside.one("SELECT count(*) FROM task") == 1


def test_another_body_is_409_with_the_task_and_the_field_that_differs(api: Api) -> None:
    made = api.submit("noop", {"i": 1}, key="once").json()["task_id"]
    for more, field in (
        ({"input": {"i": 2}}, "input.i"),
        ({"input": {"i": 1, "tag": "x"}}, "input.tag"),
        ({"kind": "noop.single", "input": {"i": 1}}, "kind"),
        ({"input": {"i": 1}, "priority": 3}, "priority"),
    ):
        problem = assert_problem(api.submit(**{"kind": "noop", **more}, key="once"), 409, "conflict", field)  # type: ignore[arg-type]
        assert problem["task_id"] == made


def test_a_run_has_keys_of_its_own_and_names_the_node_that_differs(api: Api) -> None:
    task = api.submit("noop", {"i": 0}, key="k")
    run = api.run(5, key="k", name="a")
    assert (task.status_code, run.status_code) == (202, 202)
    again = api.run(5, key="k", name="a")
    assert again.status_code == 200 and again.json() == run.json() | {"existing": True}
    assert_problem(api.run(5, key="k", name="b"), 409, "conflict", "name")
    assert_problem(api.run(6, key="k", name="a"), 409, "conflict", "nodes")
    nodes = [{"kind": "noop", "input": {"i": i if i != 3 else 33}} for i in range(5)]
    answer = api.http.post("/api/v1/runs", json={"nodes": nodes, "name": "a"}, headers={"Idempotency-Key": "k"})
    problem = assert_problem(answer, 409, "conflict", "nodes[3]")
    assert problem["run_id"] == run.json()["run_id"]


def test_fifty_clients_that_race_with_one_key_make_one_task(api: Api, stage_beside: Stage) -> None:
    answers: list[httpx.Response] = []
    gate = threading.Barrier(50)

    def client() -> None:
        with api.web.client(api.key) as http:
            http.get("/health/live")  # connected before the race
            gate.wait()
            answers.append(
                http.post(
                    "/api/v1/tasks", json={"kind": "noop", "input": {"i": 1}}, headers={"Idempotency-Key": "race"}
                )
            )

    threads = [threading.Thread(target=client) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [202]
    assert len({answer.json()["task_id"] for answer in answers}) == 1
    assert stage_beside.one("SELECT count(*) FROM task") == 1


def test_a_refusal_stores_no_key(make_api: Any, stage_beside: Stage) -> None:
    api = make_api("small", backlog_quota=1)
    assert_problem(api.submit(priority=0, key="k"), 403, "forbidden", "priority")
    assert_problem(api.submit("nope", key="k"), 422, "invalid", "kind")
    assert_problem(api.run(2, key="k"), 429, "over_quota", "nodes")
    assert stage_beside.one("SELECT count(*) FROM idempotency") == 0
    assert api.submit(key="k").status_code == 202
    assert_problem(api.submit(key="l"), 429, "over_quota")
    assert api.submit(key="k").status_code == 200  # what is there is shown, however full the backlog


def test_a_key_is_free_again_after_its_time(api: Api, stage_beside: Stage) -> None:
    first = api.submit("noop", {"i": 1}, key="k").json()["task_id"]
    hours = "SELECT extract(epoch FROM expires_at - clock_timestamp()) / 3600 FROM idempotency"
    assert 23.9 < float(stage_beside.one(hours)) <= 24
    stage_beside.connection.execute("UPDATE idempotency SET expires_at = clock_timestamp()")
    answer = api.submit("noop", {"i": 2}, key="k")
    assert answer.status_code == 202 and answer.json()["task_id"] != first


def test_a_key_that_is_none_is_named(api: Api) -> None:
    for key in ("", "a b", "x" * 256):
        assert_problem(api.submit(key=key), 422, "invalid", "Idempotency-Key")

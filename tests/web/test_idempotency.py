"""The same key and body make one thing, whoever asks and how often; another body is told what differs."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.stage import Stage
from tests.web.conftest import Api, Web, assert_problem, start_web

Answers = list[httpx.Response]


@pytest.fixture(scope="module")
def more_webs(root: Path, tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[list[Web]]:
    """Two more web processes over the same database."""
    folder = tmp_path_factory.mktemp("webs")
    webs = [start_web(root, folder / f"{n}.log", {"BROKER_URL": "redis://127.0.0.1:1/0"}) for n in range(2)]
    yield webs
    for web in webs:
        web.stop()


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


def race(webs: Sequence[Web], key: str, bodies: Sequence[dict[str, Any]], path: str = "/api/v1/tasks") -> Answers:
    """Send each body at the same moment, each by a client of its own, spread over the web processes, with one key."""
    answers: Answers = []
    gate = threading.Barrier(len(bodies))

    def client(web: Web, body: dict[str, Any]) -> None:
        with web.client(key) as http:
            http.get("/health/live")  # connected before the race
            gate.wait()
            answers.append(http.post(path, json=body, headers={"Idempotency-Key": "race"}))

    threads = [threading.Thread(target=client, args=(webs[n % len(webs)], body)) for n, body in enumerate(bodies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


NODE = {"kind": "noop", "input": {"i": 1}}


@pytest.mark.parametrize("processes", [1, 3])
def test_fifty_clients_that_race_with_one_key_make_one_task(
    api: Api, stage_beside: Stage, more_webs: list[Web], processes: int
) -> None:
    webs = [api.web, *more_webs][:processes]
    answers = race(webs, api.key, [NODE] * 50)
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [202]
    assert len({answer.json()["task_id"] for answer in answers}) == 1
    assert stage_beside.one("SELECT count(*) FROM task") == 1
    # The key has become free: the next fifty make one more.
    stage_beside.connection.execute("UPDATE idempotency SET expires_at = clock_timestamp()")
    answers = race(webs, api.key, [NODE] * 50)
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [202]
    assert stage_beside.one("SELECT count(*) FROM task") == 2


def test_of_clients_that_race_with_different_bodies_one_wins_and_the_others_are_told_the_field(
    api: Api, stage_beside: Stage, more_webs: list[Web]
) -> None:
    bodies = [{"kind": "noop", "input": {"i": n}} for n in range(20)]
    answers = race([api.web, *more_webs], api.key, bodies)
    (made,) = [answer.json()["task_id"] for answer in answers if answer.status_code == 202]
    for answer in answers:
        if answer.status_code != 202:
            assert assert_problem(answer, 409, "conflict", "input.i")["task_id"] == made
    assert stage_beside.one("SELECT count(*) FROM task") == 1


def test_clients_that_race_with_one_key_make_one_run(api: Api, stage_beside: Stage, more_webs: list[Web]) -> None:
    answers = race([api.web, *more_webs], api.key, [{"nodes": [NODE] * 30}] * 20, "/api/v1/runs")
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [202]
    assert len({(answer.json()["run_id"], *answer.json()["task_ids"]) for answer in answers}) == 1
    assert stage_beside.one("SELECT count(*) FROM task") == 30


def test_the_same_key_returns_the_task_in_whatever_state_it_is(api: Api, stage_beside: Stage) -> None:
    bodies = {
        "succeeded": ("noop.single", {"i": 1}),
        "failed_terminal": ("noop.fault", {"fail": "permanent"}),
        "failed_retryable": ("noop.fault", {"fail": "transient"}),
    }
    made = {state: api.submit(kind, input, key=state).json()["task_id"] for state, (kind, input) in bodies.items()}
    with stage_beside.process(stage_beside.add_session()) as process:
        stage_beside.run_all(process)
    for state, (kind, input) in bodies.items():
        answer = api.submit(kind, input, key=state)
        assert (answer.status_code, answer.json()["existing"]) == (200, True)
        assert (answer.json()["task_id"], answer.json()["state"]) == (made[state], state)
    assert stage_beside.one("SELECT count(*) FROM task") == 3


def test_a_key_belongs_to_its_tenant(make_api: Any, stage_beside: Stage) -> None:
    one, other = make_api("one"), make_api("other")
    mine, theirs = one.submit("noop", {"i": 1}, key="k"), other.submit("noop", {"i": 2}, key="k")
    assert (mine.status_code, theirs.status_code) == (202, 202)
    assert one.submit("noop", {"i": 1}, key="k").json()["task_id"] == mine.json()["task_id"]
    assert other.submit("noop", {"i": 2}, key="k").json()["task_id"] == theirs.json()["task_id"]


def test_a_key_whose_task_has_been_removed_is_free(api: Api, stage_beside: Stage) -> None:
    first = api.submit("noop", {"i": 1}, key="k").json()["task_id"]
    api.http.post(f"/api/v1/tasks/{first}/cancel")
    with stage_beside.connection.transaction():  # as retention does, sooner than the key's lifetime ends
        stage_beside.connection.execute("DELETE FROM task_body")
        stage_beside.connection.execute("DELETE FROM task")
    answer = api.submit("noop", {"i": 2}, key="k")
    assert answer.status_code == 202 and answer.json()["task_id"] != first
    assert api.submit("noop", {"i": 2}, key="k").status_code == 200


def test_a_refusal_stores_no_key(make_api: Any, stage_beside: Stage) -> None:
    api = make_api("small", backlog_quota=1)
    refused = assert_problem(api.submit(priority=0, key="k"), 403, "forbidden", "priority")
    assert refused["detail"].startswith("priority: 0 is more urgent")
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


def test_the_lifetime_of_keys_is_a_setting(root: Path, tmp_path: Path, make_api: Any, stage_beside: Stage) -> None:
    key = make_api("brief").key
    web = start_web(root, tmp_path / "web.log", {"HARNESS_IDEMPOTENCY_HOURS": "0.5"})
    try:
        with web.client(key) as http:
            assert http.post("/api/v1/tasks", json=NODE, headers={"Idempotency-Key": "k"}).status_code == 202
        hours = "SELECT extract(epoch FROM expires_at - clock_timestamp()) / 3600 FROM idempotency"
        assert 0.4 < float(stage_beside.one(hours)) <= 0.5
    finally:
        web.stop()
    with pytest.raises(AssertionError, match="HARNESS_IDEMPOTENCY_HOURS is 0; it must be above 0"):
        start_web(root, tmp_path / "web.log", {"HARNESS_IDEMPOTENCY_HOURS": "0"})


def test_a_key_that_is_none_is_named(api: Api) -> None:
    for key in ("", "a b", "x" * 256):
        assert_problem(api.submit(key=key), 422, "invalid", "Idempotency-Key")

"""A folder over HTTP: taken as a run, refused by name outside the allowed folders, followed by its links."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.store import keys
from tests.web.conftest import Api, Web, assert_problem, start_web


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    for name in ("a.md", "b.txt", "c.png"):
        (folder / name).write_text(f"The document {name}")
    (folder / "etc").symlink_to("/etc")
    return folder


@pytest.fixture(scope="module")
def reading_web(
    root: Path, documents: Path, tmp_path_factory: pytest.TempPathFactory, django_db_setup: None
) -> Iterator[Web]:
    log = tmp_path_factory.mktemp("web") / "web.log"
    web = start_web(root, log, {"BROKER_URL": "redis://127.0.0.1:1/0", "HARNESS_DOCUMENT_ROOTS": str(documents)})
    yield web
    assert web.stop() in (0, -15), log.read_text()


@pytest.fixture
def reader(reading_web: Web, database_url: str) -> Iterator[Api]:
    keys.create_tenant("reader")
    api = Api(reading_web, "reader", keys.create_key("reader"))
    yield api
    api.http.close()


def test_a_folder_is_taken_as_a_run_with_links_to_progress_and_failures(reader: Api, documents: Path) -> None:
    body = {"folder": str(documents), "tags": ["t"], "name": "mine"}
    answer = reader.http.post("/api/v1/ingestions", json=body, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 202, answer.text
    made = answer.json()
    assert (made["size"], made["left_out_count"]) == (2, 2)
    assert made["left_out"] == [
        {"name": "c.png", "reason": "nothing here reads .png"},
        {"name": "etc", "reason": "a symlink is not followed"},
    ]
    run = reader.http.get(made["links"]["self"]).json()
    assert (run["name"], run["states"], run["finished"]) == ("mine", {"queued": 2}, False)
    tasks = reader.http.get(made["links"]["tasks"]).json()["items"]
    assert sorted(task["title"] for task in tasks) == ["a.md", "b.txt"]
    assert reader.http.get(made["links"]["failures"]).json()["items"] == []

    again = reader.http.post("/api/v1/ingestions", json=body, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["run_id"], again.json()["size"]) == (200, made["run_id"], 2)


@pytest.mark.parametrize(
    ("folder", "status", "code"),
    [
        ("/etc", 403, "refused"),
        ("etc", 403, "refused"),
        ("../", 403, "refused"),
        ("none", 422, "invalid"),
        ("a.md", 422, "invalid"),
    ],
)
def test_what_lies_outside_is_refused_by_the_folder(reader: Api, folder: str, status: int, code: str) -> None:
    answer = reader.http.post("/api/v1/ingestions", json={"folder": folder})
    assert_problem(answer, status, code, field="folder")
    assert reader.http.get("/api/v1/tasks").json()["items"] == []


def test_without_allowed_folders_nothing_is_ingested(api: Api, documents: Path) -> None:
    answer = api.http.post("/api/v1/ingestions", json={"folder": str(documents)})
    assert "HARNESS_DOCUMENT_ROOTS" in assert_problem(answer, 403, "refused", field="folder")["detail"]


@pytest.mark.parametrize("body", [{}, {"folder": ""}, {"folder": "x", "tags": [""]}, {"folder": "x", "y": 1}])
def test_a_wrong_body_is_refused_by_field(reader: Api, body: dict[str, object]) -> None:
    assert reader.http.post("/api/v1/ingestions", json=body).status_code == 422

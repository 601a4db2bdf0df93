"""A folder becomes a run of documents that are found afterwards; what can't be read fails by name."""

from pathlib import Path
from typing import Any

import pytest

from harness.engine import ingest_folder, submit
from harness.policy.admission import TenantFacts
from harness.policy.errors import Invalid, Refused
from harness.store import queries
from tests.stage import Stage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name, content in {
        "sub/a.md": "# Waiting line\n\nThe harness holds the waiting line.",
        "b.txt": "A slot is a lease.",
        "bad.pdf": "no PDF at all",
        "empty.html": "<p></p>",
        "logo.png": "x",
        ".hidden/c.md": "hidden",
        "sub/.d.md": "hidden",
        "Makefile": "all:",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (tmp_path / "secret.md").write_text("secret")
    (root / "link.md").symlink_to(tmp_path / "secret.md")
    (root / "out").symlink_to(tmp_path)
    return root


def test_a_folder_is_listed_without_following_links(folder: Path) -> None:
    planned = ingest_folder.plan([str(folder)], str(folder), most=10, tags=["t"], priority=3)
    inputs: list[Any] = [node.input for node in planned.run.nodes]
    assert [one["name"] for one in inputs] == ["b.txt", "bad.pdf", "empty.html", "sub/a.md"]
    assert inputs[3] == {"path": f"{folder}/sub/a.md", "name": "sub/a.md", "tags": ["t"], "with_text": False}
    assert {node.priority for node in planned.run.nodes} == {3}
    assert dict(planned.left_out) == {
        "Makefile": "nothing here reads files without a suffix",
        "link.md": "a symlink is not followed",
        "logo.png": "nothing here reads .png",
        "out": "a symlink is not followed",
    }
    below = ingest_folder.plan([str(folder)], "sub", most=10)
    assert [node.title for node in below.run.nodes] == ["sub/a.md"]


@pytest.mark.parametrize(
    ("path", "error", "says"),
    [
        ("{root}/../", Refused, r"'\.\.'"),
        ("/etc", Refused, "outside the allowed folders"),
        ("{root}/out", Refused, "the symlink 'out'"),
        ("{root}/out/root", Refused, "the symlink 'out'"),
        ("{root}/b.txt", Invalid, "Not a directory"),
        ("{root}/none", Invalid, "No such file"),
        ("{root}/.hidden/none", Invalid, "No such file"),
        ("nul\0", Refused, "NUL"),
    ],
)
def test_a_folder_that_may_not_or_can_not_be_listed_is_refused_by_name(
    folder: Path, path: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as refused:
        ingest_folder.plan([str(folder)], path.format(root=folder), most=10)
    assert str(refused.value).startswith("folder: ")
    assert getattr(refused.value, "field", None) == "folder"


def test_a_folder_without_documents_or_with_too_many_is_refused(folder: Path) -> None:
    (folder / "none").mkdir()
    with pytest.raises(Invalid, match="holds no"):
        ingest_folder.plan([str(folder)], "none", most=10)
    with pytest.raises(Invalid, match="more than 3 files"):
        ingest_folder.plan([str(folder)], str(folder), most=3)
    with pytest.raises(Refused, match="HARNESS_DOCUMENT_ROOTS"):
        ingest_folder.plan([], str(folder), most=10)


def test_a_run_over_a_folder_ends_with_documents_to_find_and_failures_by_name(
    stage: Stage, folder: Path, settings: Any
) -> None:
    settings.HARNESS_DOCUMENT_ROOTS = str(folder)
    facts = TenantFacts(id=stage.tenant, name="acme", top_priority=0, backlog_quota=1000)
    planned = ingest_folder.plan([str(folder)], str(folder), most=10, tags=["t"])
    door = submit.Door(body_max_bytes=20_000)
    session = stage.add_session({"ingest": 2, "db": 2})
    for _ in range(2):  # the second time replaces
        accepted = submit.submit_run(door, stage.connection, facts, planned.run, actor="test")
        assert accepted.run_id
        with stage.process(session) as process:
            stage.run_all(process)
        run = queries.run(stage.connection, accepted.run_id)
        assert run is not None
        assert run.states == {"succeeded": 2, "failed_terminal": 2}
    failed, _ = queries.tasks(
        stage.connection, tenant=stage.tenant, run=accepted.run_id, state="failed_terminal", most=10
    )
    assert {task.title: task.error["message"].split(": ")[0] for task in failed} == {
        "bad.pdf": "content_type", "empty.html": "content",
    }  # fmt: skip
    assert all(repr(task.title) in task.error["message"] for task in failed)
    assert (stage.one("SELECT count(*) FROM document"), stage.one("SELECT count(*) FROM chunk")) == (2, 2)

    (search,) = stage.submit("rag.search", input='{"query": "waiting lines", "tags": ["t"], "name_prefix": "sub/"}')
    with stage.process(session) as process:
        stage.run_all(process)
    found = stage.one("SELECT output FROM task_body WHERE task_id = %s", search)
    (hit,) = found["hits"]
    assert (hit["name"], hit["title"]) == ("sub/a.md", "Waiting line") and "**waiting** **line**" in hit["snippet"]
    assert found["all"] and found["looked_at"] == 1

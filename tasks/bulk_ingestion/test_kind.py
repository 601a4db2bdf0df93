"""A folder's documents become tasks, once; what can't be read is told by name, and what isn't read as well."""

from pathlib import Path
from typing import Any

import pytest

from harness.kinds import Permanent
from tasks.bulk_ingestion.kind import Folder, ingest_folder
from tasks.ingest_document.kind import ingest
from tasks.ingest_document.payload import Document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in {"sub/a.md": "# A\n\nA slot.", "b.txt": "A lease.", "bad.pdf": "none", "c.png": "x"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "link.md").symlink_to("/etc/passwd")
    return tmp_path


def context(alone: Any, folder: Path) -> Any:
    ctx = alone()
    ctx.documents.roots = (str(folder),)

    def child(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        assert kind == "ingest.document"
        ingested: dict[str, Any] = ingest(ctx, Document.model_validate(payload)).model_dump(mode="json")
        return ingested

    ctx.child = child
    return ctx


def test_every_document_is_ingested_and_what_isnt_is_told_by_name(alone: Any, folder: Path) -> None:
    ctx = context(alone, folder)
    found = ingest_folder(ctx, Folder(folder=str(folder), tags=["t"]))
    assert (found.files, found.ingested, found.failed_count) == (3, 2, 1)
    assert [one.name for one in found.failed] == ["bad.pdf"] and "bad.pdf" in found.failed[0].why
    assert [(one.name, one.why) for one in found.left_out] == [
        ("c.png", "nothing here reads .png"),
        ("link.md", "a symlink is not followed"),
    ]
    kept = sorted(one.name for one, _ in ctx.documents.documents.values())
    assert kept == [f"{folder.name}/b.txt", f"{folder.name}/sub/a.md"]
    assert found.chunks == 2 and found.characters > 0


def test_a_later_attempt_works_on_the_same_files_though_the_folder_is_gone(alone: Any, folder: Path) -> None:
    ctx = context(alone, folder)
    ingest_folder(ctx, Folder(folder=str(folder)))
    before = list(ctx.spawned)
    for one in (folder / "b.txt", folder / "bad.pdf"):
        one.unlink()
    ctx.spawned.clear()
    found = ingest_folder(ctx, Folder(folder=str(folder)))
    assert ctx.spawned == before and found.files == 3


@pytest.mark.parametrize("where", ["/etc", "sub/../..", "nowhere"])
def test_a_folder_outside_or_missing_is_refused(alone: Any, folder: Path, where: str) -> None:
    with pytest.raises(Permanent, match="path: "):
        ingest_folder(context(alone, folder), Folder(folder=where))


def test_a_folder_without_documents_says_what_is_read(alone: Any, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("x")
    with pytest.raises(Permanent, match=r"folder: .* holds no \.docx, "):
        ingest_folder(context(alone, tmp_path), Folder(folder=str(tmp_path)))

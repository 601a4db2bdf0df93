"""A document comes from an upload, a file below an allowed folder, or an address; from nowhere else."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.kinds import Permanent
from tasks.ingest_document.kind import ingest
from tasks.ingest_document.payload import Document


@pytest.fixture
def ctx(alone: Any, tmp_path: Path) -> Any:
    """A context that may read below tmp_path/root."""
    made = alone()
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    (tmp_path / "root" / "sub" / "a.md").write_text("# Allowed")
    made.documents.roots = (str(tmp_path / "root"),)
    return made


@pytest.mark.parametrize("path", ["{root}/sub/a.md", "sub/a.md"])
def test_a_file_below_an_allowed_folder_is_read(ctx: Any, tmp_path: Path, path: str) -> None:
    asked = path.format(root=tmp_path / "root")
    found = ingest(ctx, Document(path=asked))
    assert (found.title, found.name) == ("Allowed", "a.md")
    ((kept, _),) = ctx.documents.documents.values()
    assert kept.source == asked


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("{root}/../outside/secret.txt", r"'\.\.'"),
        ("../outside/secret.txt", r"'\.\.'"),
        ("{outside}/secret.txt", "outside the allowed folders"),
        ("/etc/passwd", "outside the allowed folders"),
        ("{root}/link.txt", "the symlink 'link.txt'"),
        ("{root}/folder/secret.txt", "the symlink 'folder'"),
        ("{root}-sibling/a.txt", "outside the allowed folders"),
    ],
)
def test_what_lies_outside_is_refused_by_name(ctx: Any, tmp_path: Path, path: str, says: str) -> None:
    (tmp_path / "root" / "link.txt").symlink_to(tmp_path / "outside" / "secret.txt")
    (tmp_path / "root" / "folder").symlink_to(tmp_path / "outside")
    asked = path.format(root=tmp_path / "root", outside=tmp_path / "outside")
    with pytest.raises(Permanent, match=says) as refused:
        ingest(ctx, Document(path=asked))
    assert refused.value.error_class == "permission" and asked in str(refused.value)
    assert not ctx.documents.documents


def test_a_path_is_refused_where_no_folder_is_allowed(alone: Any) -> None:
    with pytest.raises(Permanent, match="HARNESS_DOCUMENT_ROOTS"):
        ingest(alone(), Document(path="/etc/passwd"))


def test_what_is_no_file_is_refused_without_waiting_for_it(ctx: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "root" / "pipe.txt")
    for path, says in (("pipe.txt", "no regular file"), ("sub", "no regular file"), ("no.txt", "No such file")):
        with pytest.raises(Permanent, match=says):
            ingest(ctx, Document(path=path))


def test_a_file_that_is_too_large_is_refused_before_it_is_read(ctx: Any, tmp_path: Path) -> None:
    with (tmp_path / "root" / "big.txt").open("wb") as file:
        file.truncate(70 * 1024 * 1024)
    with pytest.raises(Permanent, match=r"'big\.txt' is larger than 67,108,864 bytes"):
        ingest(ctx, Document(path="big.txt"))


def test_an_upload_that_is_not_there_is_refused(alone: Any) -> None:
    with pytest.raises(Permanent, match="no artifact"):
        ingest(alone(), Document.model_validate({"artifact_id": "00000000-0000-4000-8000-000000000009"}))


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = "<html><body><h1>Over HTTP</h1><p>ж</p></body></html>".encode("koi8-r")
        self.send_response(200)
        self.send_header("Content-Type", "image/png" if self.path.startswith("/png") else "text/html; charset=koi8-r")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_address_is_fetched_where_it_is_allowed(alone: Any, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_EGRESS_ALLOW", site)
    ctx = alone()
    found = ingest(ctx, Document(url=f"http://{site}/page?x=1"))
    assert (found.title, found.name, found.text) == ("Over HTTP", "page", "Over HTTP\nж")
    with pytest.raises(Permanent, match="image/png"):
        ingest(ctx, Document(url=f"http://{site}/png"))


def test_a_private_address_is_refused(alone: Any, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_EGRESS_ALLOW", raising=False)
    with pytest.raises(Permanent) as refused:
        ingest(alone(), Document(url=f"http://{site}/page"))
    assert refused.value.error_class == "permission"

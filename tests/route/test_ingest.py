"""A document on the whole route, whose worker is killed while it is read: one copy, and no parser left behind."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from harness.store import keys
from tasks.ingest_document import made_files as made
from tests.route.conftest import Route
from tests.stage import wait_until
from tests.web.conftest import start_web

PAGES = 40  # some seconds to read


def parsers(worker: int) -> list[psutil.Process]:
    """The parser processes below a worker, with the documents' own; one that is ending is none."""
    found = []
    for one in psutil.Process(worker).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # ended meanwhile, or a zombie that nobody has reaped yet
            if "parser_process" in " ".join(one.cmdline()):
                found.append(one)
    return found


def test_a_document_whose_reader_is_killed_is_read_again_and_kept_once(route: Route, tmp_path: Path) -> None:
    page = b"BT /F1 12 Tf " + b"(some words to find) Tj " * 400 + b"ET"
    (tmp_path / "long.pdf").write_bytes(made.pdf_of([page] * PAGES))
    route.environment["HARNESS_DOCUMENT_ROOTS"] = str(tmp_path)
    route.dispatcher()
    worker = route.worker("ingest")
    (task,) = route.stage.submit("ingest.document", input='{"path": "long.pdf", "with_text": false}')
    wait_until(lambda: len(parsers(worker.pid)) == 2, within_s=30)
    reading = parsers(worker.pid)
    child = next(one.ppid() for one in reading if one.ppid() not in {other.pid for other in reading})
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: not any(one.is_running() for one in reading), within_s=5)

    wait_until(lambda: route.stage.state(task) == "succeeded", within_s=60)
    one = route.stage.one
    assert (one("SELECT lost_starts FROM task WHERE id = %s", task), one("SELECT count(*) FROM document")) == (1, 1)
    assert one("SELECT chunks FROM document") == one("SELECT count(*) FROM chunk") > 1

    (again,) = route.stage.submit("ingest.document", input='{"path": "long.pdf", "name": "again.pdf"}')
    wait_until(lambda: route.stage.state(again) == "succeeded", within_s=60)
    assert one("SELECT array_agg(name) FROM document") == ["again.pdf"]
    assert one("SELECT chunks FROM document") == one("SELECT count(*) FROM chunk")


def test_the_command_ingests_a_folder_and_lists_what_failed_by_name(route: Route, tmp_path: Path) -> None:
    root = tmp_path / "documents"
    root.mkdir()
    (root / "a.md").write_text("# Found\n\nA slot is a lease.")
    (root / "bad.pdf").write_text("no PDF")
    (root / "link.md").symlink_to("/etc/passwd")
    route.environment["HARNESS_DOCUMENT_ROOTS"] = str(root)
    command = [sys.executable, "manage.py", "ingest_folder", "--tenant", "acme", "--wait", "--json"]

    def ingest(folder: str, tenant: str = "acme") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*command, folder, "--tenant", tenant], env=route.environment, capture_output=True, text=True, check=False
        )

    assert "lies outside the allowed folders" in ingest("/etc").stderr
    assert "there is no tenant 'nobody'" in ingest(str(root), "nobody").stderr
    route.dispatcher()
    route.worker("ingest")
    done = ingest(str(root))
    assert done.returncode == 1 and "1 of 2 documents failed" in done.stderr
    told = json.loads(done.stdout)
    assert told["states"] == {"succeeded": 1, "failed_terminal": 1}
    assert told["left_out"] == [{"name": "link.md", "reason": "a symlink is not followed"}]
    (failure,) = told["failures"]
    assert (failure["name"], failure["class"]) == ("bad.pdf", "validation") and "'bad.pdf'" in failure["message"]
    assert route.stage.one("SELECT array_agg(name || ':' || title) FROM document") == ["a.md:Found"]


def test_an_uploaded_file_is_read_from_the_artifact_store_and_found(
    route: Route, root: Path, tmp_path: Path, broker_url: str
) -> None:
    route.dispatcher()
    route.worker("ingest")
    route.worker("db")
    web = start_web(root, tmp_path / "web.txt", {"BROKER_URL": broker_url})
    keys.create_tenant("alpha")
    keys.create_tenant("beta")

    with web.client(keys.create_key("alpha")) as http, web.client(keys.create_key("beta")) as other:

        def done(kind: str, payload: dict[str, Any], *, by: httpx.Client = http) -> Any:
            made_task = by.post("/api/v1/tasks", json={"kind": kind, "input": payload})
            assert made_task.status_code == 202, made_task.text
            link = made_task.json()["links"]["self"]
            wait_until(lambda: by.get(link).json()["finished_at"] is not None, within_s=40)
            return by.get(link).json()

        content = made.pdf_of([b"BT /F1 12 Tf (A zeppelin over the harbour) Tj ET"])
        upload = http.post(
            "/api/v1/artifacts",
            content=content,
            params={"name": "harbour.pdf"},
            headers={"Content-Type": "application/pdf"},
        )
        assert upload.status_code == 201, upload.text
        artifact = upload.json()["artifact_id"]
        read = done("ingest.document", {"artifact_id": artifact})
        assert (read["state"], read["result"]["name"]) == ("succeeded", "harbour.pdf"), read
        assert read["result"]["sha256"] == hashlib.sha256(content).hexdigest()

        (hit,) = done("rag.search", {"query": "zeppelin"})["result"]["hits"]
        assert (hit["name"], hit["document_id"]) == ("harbour.pdf", read["result"]["document_id"])
        assert "**zeppelin**" in hit["snippet"].lower()

        # Another tenant finds nothing of it, and can't have it read for itself.
        assert done("rag.search", {"query": "zeppelin"}, by=other)["result"]["hits"] == []
        theirs = done("ingest.document", {"artifact_id": artifact}, by=other)
        assert theirs["state"] == "failed_terminal" and artifact in theirs["error"]["message"]
    assert web.stop() in (0, -15)

"""`sandbox.python`: code that fails is a result, its files are artifacts, and without a sandbox nothing runs."""

import uuid
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.kinds import Cancelled, Permanent, sandbox
from tasks.sandbox_python import kind
from tasks.sandbox_python.kind import Program, run

needs_sandbox = pytest.mark.skipif((why := sandbox.lack()) is not None, reason=f"no sandbox here: {why}")


@needs_sandbox
def test_what_it_prints_and_leaves_comes_back(alone: Any) -> None:
    ctx = alone()
    upload = ctx.documents.add("whatever.csv", b"a,b\n1,2\n", "text/csv")
    code = "text = open('data.csv').read()\nprint(len(text))\nopen('out/copy.svg', 'w').write(text)"
    found = run(ctx, Program.model_validate({"code": code, "files": [{"name": "data.csv", "artifact_id": upload}]}))
    assert (found.ended, found.exit_code, found.stdout, found.left_out) == ("exit", 0, "8\n", [])
    (kept,) = found.files
    about = ctx.artifacts.find(kept.artifact_id)
    assert (kept.name, kept.bytes, about.content_type) == ("copy.svg", 8, "image/svg+xml")
    with ctx.artifacts.open(kept.artifact_id) as file:
        assert file.read() == b"a,b\n1,2\n"


@needs_sandbox
def test_code_that_fails_is_a_result_and_with_check_a_failure(alone: Any) -> None:
    found = run(alone(), Program(code="raise ValueError('no such column')"))
    assert (found.ended, found.exit_code, found.reason) == ("exit", 1, "")
    assert found.stderr.endswith("ValueError: no such column\n")
    with pytest.raises(Permanent, match="code: it ended with 1: ValueError: no such column"):
        run(alone(), Program(code="raise ValueError('no such column')", check=True))
    with pytest.raises(Permanent, match=r"code: it ran for more than 0\.5 s"):
        run(alone(), Program(code="while True: pass", wall_s=0.5, check=True))


def test_files_that_are_too_large_are_refused_before_anything_runs(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "GIVEN_MAX_BYTES", 10)
    ctx = alone()
    files = [
        {"name": f"{n}.csv", "artifact_id": ctx.documents.add(f"{n}.csv", b"1234567", "text/csv")} for n in range(2)
    ]
    with pytest.raises(Permanent, match=r"files: 1\.csv has 7 bytes; all files together may have 10"):
        run(ctx, Program.model_validate({"code": "1", "files": files}))


@pytest.mark.parametrize("names", [["main.py"], ["out"], ["a", "a"], ["../a"], [".a"], ["a/b"], [""]])
def test_a_name_that_is_none_is_refused_at_the_door(names: list[str]) -> None:
    files = [{"name": name, "artifact_id": str(uuid.uuid4())} for name in names]
    with pytest.raises(ValidationError):
        Program.model_validate({"code": "1", "files": files})


@needs_sandbox
def test_a_cancel_ends_it(alone: Any) -> None:
    ctx = alone()
    began: list[int] = []

    def checkpoint() -> None:
        began.append(1)
        if len(began) > 3:
            raise Cancelled

    ctx.checkpoint = checkpoint
    with pytest.raises(Cancelled):
        run(ctx, Program(code="import time\ntime.sleep(1000)", wall_s=240))


def test_without_bubblewrap_the_task_fails_and_says_what_to_install(
    alone: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Permanent, match="the sandbox can't be used: bubblewrap isn't there: install it"):
        run(alone(), Program(code="print(1)"))


def test_both_streams_fit_a_result_whatever_they_hold() -> None:
    import json

    worst = json.dumps(kind.short("\x01" * 300_000))
    assert 2 * len(worst) < 200 * 1024

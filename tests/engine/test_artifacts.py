"""`ctx.artifacts` of a running task: streamed, fenced, and the way out for a result that is larger than a row."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from pydantic import BaseModel

from harness.engine import execute
from harness.engine.process import ProcessState
from harness.kinds import Context, Permanent, kind, registry
from harness.store import artifact_files
from tests.stage import Stage


class _Ask(BaseModel):
    reads: str = ""


class _Answer(BaseModel):
    artifact_id: str
    size: int


Work = Callable[[Context, _Ask], Any]


@pytest.fixture
def run(stage: Stage) -> Callable[..., int]:
    """Run a function as a task of a kind of the test's own; returns the task's id."""
    session = stage.add_session()

    @contextmanager
    def registered(work: Work) -> Iterator[None]:
        kind("test.files", pool="db", input=_Ask, max_attempts=1)(work)
        try:
            yield
        finally:
            registry._KINDS.pop("test.files")

    def run_one(work: Work, *, tenant: int | None = None, input: str = "{}", during: Any = None) -> int:
        with registered(work), stage.process(session) as process:
            (task,) = stage.submit("test.files", tenant=tenant or stage.tenant, input=input)
            (message,) = stage.tick()
            if during:
                during(process)
            execute.run_lease(process, message.lease, message.token)
        return task

    return run_one


def body(stage: Stage, task: int, what: str = "output") -> Any:
    return stage.one(f"SELECT {what} FROM task_body WHERE task_id = %s", task)


def test_a_task_keeps_a_large_result_and_returns_its_id(stage: Stage, run: Any) -> None:
    def work(ctx: Context, asked: _Ask) -> _Answer:
        pieces = (b"x" * 100_000 for _ in range(10))
        kept = ctx.artifacts.put("report.txt", "text/plain", pieces)
        again = ctx.artifacts.put("report.txt", "text/plain", io.BytesIO(b"x" * 1_000_000))
        assert again.id == kept.id and again.existing
        with ctx.artifacts.open(kept.id) as file:
            file.seek(999_999)
            assert file.read() == b"x"
        assert ctx.artifacts.find(kept.id).name == "report.txt"
        return _Answer(artifact_id=kept.id, size=kept.bytes)

    task = run(work)
    assert stage.state(task) == "succeeded", body(stage, task, "error")
    made = stage.connection.execute("SELECT public_id::text, task_id, bytes, state FROM artifact").fetchall()
    assert made == [(body(stage, task)["artifact_id"], task, 1_000_000, "stored")]


def test_a_result_too_large_for_a_row_names_the_way_out(stage: Stage, run: Any) -> None:
    task = run(lambda ctx, asked: {"text": "x" * (settings.HARNESS_BODY_MAX_BYTES + 1)})
    assert stage.state(task) == "failed_terminal"
    assert "ctx.artifacts.put" in body(stage, task, "error")["message"]


def test_another_tenants_artifact_fails_the_task_as_one_that_never_was(stage: Stage, run: Any) -> None:
    mine = run(lambda ctx, asked: {"id": ctx.artifacts.put("a", "a/b", b"secret").id})
    theirs = body(stage, mine)["id"]
    other = stage.add_tenant("other")
    for asked in (theirs, "7d444840-9dc0-41d1-b245-5ffdce74fad2", "../etc"):
        task = run(
            lambda ctx, one: {"n": len(ctx.artifacts.open(one.reads).read())},
            tenant=other,
            input=f'{{"reads": "{asked}"}}',
        )
        assert stage.state(task) == "failed_terminal"
        assert (
            "no artifact" in body(stage, task, "error")["message"] or "no id" in body(stage, task, "error")["message"]
        )


def test_no_room_fails_the_task_and_leaves_nothing(stage: Stage, run: Any) -> None:
    stage.connection.execute("UPDATE tenant SET artifact_quota_bytes = 10")

    def work(ctx: Context, asked: _Ask) -> None:
        with pytest.raises(Permanent, match="don't fit"):
            ctx.artifacts.put("a", "a/b", b"12345678901")
        with pytest.raises(Permanent, match="name: must be"):
            ctx.artifacts.put("a/b", "a/b", b"1")

    assert stage.state(run(work)) == "succeeded"
    assert stage.one("SELECT count(*) FROM artifact") == 0 and _left(stage.tenant) == []


@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_worker_past_its_fence_keeps_nothing(stage: Stage, run: Any, when: int) -> None:
    processes: list[ProcessState] = []

    def work(ctx: Context, asked: _Ask) -> None:
        def pieces() -> Iterator[bytes]:
            for i in range(3):
                if i == when:
                    processes[0].fence.close()
                yield b"x"

        ctx.artifacts.put("late", "a/b", pieces())

    task = run(work, during=processes.append)
    assert stage.state(task) == "running"  # settled by whoever takes it back
    assert stage.one("SELECT count(*) FROM artifact") == 0 and _left(stage.tenant) == []


def test_a_cancelled_task_stops_in_the_middle_of_its_upload(stage: Stage, run: Any) -> None:
    processes: list[ProcessState] = []
    asked_for: list[int] = []

    def work(ctx: Context, asked: _Ask) -> None:
        def pieces() -> Iterator[bytes]:
            for i in range(1000):
                asked_for.append(i)
                if i == 2:
                    (running,) = processes[0].running.values()
                    running.ask_to_stop("drain")
                yield b"x"

        ctx.artifacts.put("long", "a/b", pieces())

    task = run(work, during=processes.append)
    assert stage.state(task) == "queued" and asked_for == [0, 1, 2]
    assert stage.one("SELECT count(*) FROM artifact") == 0 and _left(stage.tenant) == []


def _left(tenant: int) -> list[str]:
    folder = Path(settings.HARNESS_ARTIFACTS_DIR)
    own = folder / str(tenant)
    return [
        path.name
        for path in [*folder.glob(f"{artifact_files.SPOOL_PREFIX}*"), *(own.iterdir() if own.exists() else ())]
    ]

"""A task watched while it runs: real web process, real Redis, a worker's side in this process."""

import asyncio
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis
from pydantic import BaseModel

from harness.engine import execute
from harness.engine.context import RunContext
from harness.engine.process import ProcessState
from harness.kinds import Context, Transient, kind, registry
from harness.store import transitions
from tests.stage import Stage, wait_until
from tests.web.conftest import Api, Web, assert_problem, start_web
from tests.web.server_sent import Event, events


class Talk(BaseModel):
    """How much to say, how fast, and how often to fail after it."""

    pieces: int = 3
    gap_s: float = 0.0
    fails: int = 0
    piece: str = ""


@kind("test.talk", pool="llm", input=Talk, max_attempts=9)
def talk(ctx: Context, payload: Talk) -> str:
    """Say what the time is, or what it is told, again and again."""
    said = []
    for _ in range(payload.pieces):
        ctx.checkpoint()
        said.append(payload.piece or f"{time.monotonic():.6f} ")
        ctx.emit(said[-1])
        time.sleep(payload.gap_s)
    if ctx.attempt <= payload.fails:  # type: ignore[attr-defined]  # the fixture's own
        raise Transient("once more")
    return "".join(said)


KINDS = {"test.talk": registry._KINDS.pop("test.talk")}


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind of this file, known only to its tests; a context that knows its attempt."""
    monkeypatch.setitem(registry._KINDS, "test.talk", KINDS["test.talk"])
    monkeypatch.setattr(RunContext, "attempt", property(lambda ctx: ctx._task.release_no), raising=False)


@pytest.fixture(scope="module")
def live_web(root: Path, tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Web]:
    """A web process that reaches Redis."""
    log = tmp_path_factory.mktemp("web") / "web.log"
    web = start_web(root, log, {"BROKER_URL": os.environ["BROKER_URL"]})
    yield web
    assert web.stop() in (0, -15), log.read_text()
    assert "Traceback" not in log.read_text(), log.read_text()


class Show:
    """A tenant's client and the worker's side of its tasks."""

    def __init__(self, api: Api, web: Web, stage: Stage) -> None:
        self.http = web.client(api.key)
        self.stage = stage
        self.tenant = int(stage.one("SELECT id FROM tenant WHERE name = %s", api.tenant))

    def submit(self, **how: Any) -> tuple[int, str]:
        (task,) = self.stage.submit("test.talk", input=Talk(**how).model_dump_json(), tenant=self.tenant)
        return task, str(self.stage.one("SELECT public_id FROM task WHERE id = %s", task))

    def run(self, process: ProcessState) -> threading.Thread:
        (message,) = self.stage.tick()
        thread = threading.Thread(target=execute.run_lease, args=(process, message.lease, message.token))
        thread.start()
        return thread

    def watch(self, task_id: str, last: str | None = None) -> Any:
        headers = {"Last-Event-ID": last} if last else {}
        return self.http.stream("GET", f"/api/v1/tasks/{task_id}/stream", headers=headers)


@pytest.fixture
def show(api: Api, live_web: Web, stage_beside: Stage, broker_url: str) -> Iterator[Show]:
    shown = Show(api, live_web, stage_beside)
    yield shown
    shown.http.close()


@pytest.fixture
def process(stage_beside: Stage) -> Iterator[ProcessState]:
    session = stage_beside.add_session()
    with stage_beside.process(session) as process:
        yield process


def test_output_reaches_the_client_within_300_ms_of_being_shown(show: Show, process: ProcessState) -> None:
    _, task_id = show.submit(pieces=40, gap_s=0.02)
    late_ms: list[float] = []
    with show.watch(task_id) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = events(response)
        assert next(stream).data["event"] == "submit"
        thread = show.run(process)
        for event in stream:
            if event.name == "output":
                late_ms += [(event.at_s - float(said)) * 1000 for said in event.data["text"].split()]
        thread.join()
    assert len(late_ms) == 40
    late_ms.sort()
    assert late_ms[-1] <= 300, f"p50 {late_ms[20]:.0f} ms, worst {late_ms[-1]:.0f} ms"


def test_states_and_output_come_in_order_and_end_comes_last(show: Show, process: ProcessState) -> None:
    _, task_id = show.submit(pieces=5, gap_s=0.05)
    with show.watch(task_id) as response:
        stream = events(response)
        seen = [next(stream)]
        thread = show.run(process)
        seen += list(stream)
        thread.join()
    assert [event.data["event"] for event in seen if event.name == "state"] == ["submit", "claim", "succeed"]
    assert [event.name for event in seen][-2:] == ["state", "end"] and seen[-1].data == {"state": "succeeded"}
    output = [event.data for event in seen if event.name == "output"]
    text = "".join(part["text"] for part in output)
    assert text == show.http.get(f"/api/v1/tasks/{task_id}").json()["result"]
    assert {part["attempt"] for part in output} == {1} and output[0]["offset"] == 0
    assert len({event.id for event in seen}) >= len(output)


def test_who_comes_late_or_again_gets_the_rest_once(show: Show, process: ProcessState) -> None:
    _, task_id = show.submit(pieces=6, gap_s=0.1)
    with show.watch(task_id) as response:
        stream = events(response)
        next(stream)
        thread = show.run(process)
        first: list[Event] = []
        for event in stream:
            first.append(event)
            if sum(one.name == "output" for one in first) == 2:
                break
    with show.watch(task_id, last=first[-1].id) as response:
        second = list(events(response))
    thread.join()
    with show.watch(task_id) as response:  # after its end: all of it
        whole = list(events(response))

    def text(seen: list[Event]) -> str:
        return "".join(event.data["text"] for event in seen if event.name == "output")

    assert text(first) + text(second) == text(whole)
    states = [event.data["seq"] for event in first + second if event.name == "state"]
    assert states == sorted(set(states)) and second[-1].name == "end"
    with show.watch(task_id, last=whole[-1].id) as response:
        assert [event.name for event in events(response)] == ["end"]


def test_a_retry_supersedes_what_was_shown_before(show: Show, process: ProcessState) -> None:
    task, task_id = show.submit(pieces=2, fails=1)
    with show.watch(task_id) as response:
        stream = events(response)
        next(stream)
        show.run(process).join()
        show.stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (task,))
        transitions.wake_due(show.stage.connection, actor="test")
        show.run(process).join()
        seen = list(stream)
    attempts = [event.data["attempt"] for event in seen if event.name == "output"]
    assert attempts == sorted(attempts) and set(attempts) == {1, 2}
    second = [event for event in seen if event.name == "output" and event.data["attempt"] == 2]
    assert second[0].data["offset"] == 0
    read = show.http.get(f"/api/v1/tasks/{task_id}/output").json()
    result = show.http.get(f"/api/v1/tasks/{task_id}").json()["result"]
    assert (read["attempt"], read["text"], read["available"]) == (2, result, True)


def test_output_is_read_while_the_task_runs(show: Show, process: ProcessState) -> None:
    _, task_id = show.submit(pieces=10, gap_s=0.1, piece="word ")
    thread = show.run(process)

    def so_far() -> dict[str, Any]:
        found: dict[str, Any] = show.http.get(f"/api/v1/tasks/{task_id}/output").json()
        return found

    wait_until(lambda: so_far()["text"].startswith("word word"), within_s=5)
    found = so_far()
    assert found["state"] == "running" and found["missing_chars"] == 0 and not found["cut"]
    thread.join()
    assert so_far()["text"] == "word " * 10


def test_an_emptied_redis_fails_no_task_and_the_gap_is_told(show: Show, process: ProcessState, broker_url: str) -> None:
    task, task_id = show.submit(pieces=12, gap_s=0.1, piece="0123456789")
    thread = show.run(process)
    output = f"/api/v1/tasks/{task_id}/output"
    wait_until(lambda: len(show.http.get(output).json()["text"]) >= 30, within_s=5)
    with redis.Redis.from_url(broker_url) as client:
        client.flushdb()
    thread.join()
    assert show.stage.state(task) == "succeeded"
    found = show.http.get(output).json()
    assert found["missing_chars"] >= 30 and found["missing_chars"] + len(found["text"]) == 120
    with show.watch(task_id) as response:
        seen = list(events(response))
    assert next(event for event in seen if event.name == "output").data["offset"] >= 30
    assert seen[-1].name == "end"


def test_without_redis_states_are_streamed_and_that_output_is_missing_is_said(
    api: Api, web: Web, stage_beside: Stage, process: ProcessState
) -> None:
    shown = Show(api, web, stage_beside)  # `web` has a broker that nobody listens on
    _, task_id = shown.submit(pieces=3)
    with shown.watch(task_id) as response:
        stream = events(response)
        seen = [next(stream), next(stream)]
        shown.run(process).join()
        seen += list(stream)
    assert [event.data.get("event", event.data) for event in seen if event.name == "state"] == [
        "submit",
        "claim",
        "succeed",
    ]
    assert [event.data for event in seen if event.name == "live"] == [{"available": False}]
    assert seen[-1].name == "end" and not any(event.name == "output" for event in seen)
    found = shown.http.get(f"/api/v1/tasks/{task_id}/output")
    assert found.status_code == 200 and found.json()["available"] is False
    shown.http.close()


def test_a_cancel_is_seen_and_a_task_that_never_ran_ends_the_stream(show: Show) -> None:
    _, task_id = show.submit()
    with show.watch(task_id) as response:
        stream = events(response)
        next(stream)
        assert show.http.post(f"/api/v1/tasks/{task_id}/cancel").status_code == 200
        seen = list(stream)
    assert [event.name for event in seen] == ["state", "end"] and seen[-1].data == {"state": "cancelled"}


def test_many_streams_take_no_threads_and_each_gets_everything(
    show: Show, process: ProcessState, live_web: Web
) -> None:
    n = 200
    _, task_id = show.submit(pieces=5, gap_s=0.1)
    threads: list[int] = []

    async def watch(client: httpx.AsyncClient, ready: asyncio.Semaphore) -> str:
        text, name = "", ""
        async with client.stream("GET", f"/api/v1/tasks/{task_id}/stream") as response:
            async for line in response.aiter_lines():
                if line.startswith("event: "):
                    name = line[7:]
                    ready.release()
                elif line.startswith("data: ") and name == "output":
                    text += json.loads(line[6:])["text"]
        return text

    async def all_of_them() -> list[str]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=str(show.http.base_url), headers=show.http.headers, timeout=60, limits=limits
        ) as client:
            ready = asyncio.Semaphore(0)
            watching = [asyncio.create_task(watch(client, ready)) for _ in range(n)]
            for _ in range(n):
                await asyncio.wait_for(ready.acquire(), 60)
            threads.append(psutil.Process(live_web.process.pid).num_threads())
            thread = await asyncio.to_thread(show.run, process)
            texts = await asyncio.gather(*watching)
            await asyncio.to_thread(thread.join)
            return texts

    before = psutil.Process(live_web.process.pid).num_threads()
    texts = asyncio.run(all_of_them())
    result = show.http.get(f"/api/v1/tasks/{task_id}").json()["result"]
    assert texts == [result] * n
    assert threads[0] <= before + 10, (before, threads)  # those of the service's bounded pools


def test_whoever_joins_in_the_middle_gets_all_of_it_in_order(show: Show, process: ProcessState) -> None:
    _, task_id = show.submit(pieces=60, gap_s=0.02)

    async def watch(client: httpx.AsyncClient, after_s: float) -> str:
        await asyncio.sleep(after_s)
        text, name, offsets = "", "", []
        async with client.stream("GET", f"/api/v1/tasks/{task_id}/stream") as response:
            async for line in response.aiter_lines():
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: ") and name == "output":
                    offsets.append(json.loads(line[6:])["offset"])
                    assert offsets[-1] == len(text), offsets
                    text += json.loads(line[6:])["text"]
        return text

    async def all_of_them() -> list[str]:
        async with httpx.AsyncClient(base_url=str(show.http.base_url), headers=show.http.headers, timeout=60) as client:
            return await asyncio.gather(*[watch(client, i * 0.05) for i in range(30)])

    thread = show.run(process)
    texts = asyncio.run(all_of_them())
    thread.join()
    assert texts == [show.http.get(f"/api/v1/tasks/{task_id}").json()["result"]] * 30


def test_another_tenant_sees_neither_stream_nor_output(show: Show, make_api: Any, live_web: Web) -> None:
    _, task_id = show.submit()
    other, nobody = live_web.client(make_api("beta").key), live_web.client()
    for what in ("stream", "output"):
        assert_problem(other.get(f"/api/v1/tasks/{task_id}/{what}"), 404, "not_found")
        assert_problem(other.get(f"/api/v1/tasks/{uuid.uuid4()}/{what}"), 404, "not_found")
        assert_problem(nobody.get(f"/api/v1/tasks/{task_id}/{what}"), 401, "unauthenticated")
    other.close()
    nobody.close()


@pytest.mark.parametrize("last", ["x", "1", "1.2", "1.2-3.4", "-1.0-0", "1.0-99999999999"])
def test_a_wrong_last_event_id_is_named(show: Show, last: str) -> None:
    _, task_id = show.submit()
    answer = show.http.get(f"/api/v1/tasks/{task_id}/stream", headers={"Last-Event-ID": last})
    assert_problem(answer, 422, "invalid", "Last-Event-ID")


def test_a_server_that_is_told_to_end_ends_its_streams_at_once(
    api: Api, stage_beside: Stage, root: Path, tmp_path: Path, broker_url: str
) -> None:
    web = start_web(root, tmp_path / "web.log", {"BROKER_URL": broker_url})
    shown = Show(api, web, stage_beside)
    _, task_id = shown.submit()
    comments: list[str] = []
    with shown.watch(task_id) as response:
        stream = events(response, comments=comments)
        next(stream)
        began_s = time.monotonic()
        web.process.terminate()
        assert list(stream) == [] and ": come again" in comments
    assert web.process.wait(15) in (0, -15)
    assert time.monotonic() - began_s < 3
    assert "Traceback" not in (tmp_path / "web.log").read_text()
    shown.http.close()

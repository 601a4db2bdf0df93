"""A conversation through every process there is: HTTP, dispatcher, worker, a streaming provider, Redis, and back."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.store import keys
from tasks.llm_chat.test_kind import END, HEAD, Provider, Send, event, piece
from tests.route.conftest import Route
from tests.stage import wait_until
from tests.web.conftest import start_web
from tests.web.server_sent import events


@pytest.fixture
def provider() -> Iterator[Provider]:
    playing = Provider()
    threading.Thread(target=playing.server.serve_forever, args=(0.01,), daemon=True).start()
    yield playing
    playing.go_on.set()
    playing.server.shutdown()
    playing.server.server_close()


def test_an_answer_is_watched_as_it_comes_and_a_cancel_ends_a_silent_one_within_a_second(
    route: Route, provider: Provider, root: Path, tmp_path: Path, broker_url: str
) -> None:
    def play(send: Send, asked: dict[str, Any]) -> None:
        if "hang" in asked["messages"][0]["content"]:
            send(HEAD + piece("I wonder"))
            provider.go_on.wait(30)
            return
        send(HEAD)
        for i in range(10):
            send(piece(f"{time.monotonic():.6f} "))
            time.sleep(0.05 if i else 0.3)
        send(piece(None, finish="stop") + piece(None, usage=(1000, 2000)) + event("[DONE]") + END)

    provider.play = play
    route.environment |= {"LLM_BASE_URL": provider.url, "LLM_API_KEY": "sk-not-looked-for", "LLM_MODEL": "m-1"}
    route.dispatcher()
    route.worker("llm")
    web = start_web(root, tmp_path / "web.txt", {"BROKER_URL": broker_url})
    keys.create_tenant("alpha")
    http = web.client(keys.create_key("alpha"))

    def submit(text: str) -> str:
        body = {"kind": "llm.chat", "input": {"messages": [{"role": "user", "content": text}], "model": "emulator-1"}}
        made = http.post("/api/v1/tasks", json=body)
        assert made.status_code == 202, made.text
        return str(made.json()["task_id"])

    try:
        task_id = submit("What time is it?")
        late_ms: list[float] = []
        with http.stream("GET", f"/api/v1/tasks/{task_id}/stream") as response:
            for one in events(response):
                if one.name == "output":
                    late_ms += [(one.at_s - float(said)) * 1000 for said in one.data["text"].split()]
        assert len(late_ms) == 10 and max(late_ms) <= 300, late_ms
        task = http.get(f"/api/v1/tasks/{task_id}").json()
        assert task["state"] == "succeeded" and task["tokens"] == 3000
        assert task["usd"] == task["result"]["usd"] == pytest.approx((1000 * 0.5 + 2000 * 1.5) / 1e6)

        task_id = submit("Please hang.")
        output = f"/api/v1/tasks/{task_id}/output"
        wait_until(lambda: http.get(output).json()["text"] == "I wonder", within_s=10)
        asked_s = time.monotonic()
        assert http.post(f"/api/v1/tasks/{task_id}/cancel").status_code == 202
        with http.stream("GET", f"/api/v1/tasks/{task_id}/stream") as response:
            *_, last = events(response)
        took_s = last.at_s - asked_s
        assert last.data == {"state": "cancelled"}
        # Wishes are read every 0.5 s and the kind looks every 0.2 s; the rest is for a busy machine.
        assert took_s < 1.5, took_s
        task = http.get(f"/api/v1/tasks/{task_id}").json()
        assert task["tokens"] > 0 and task["usd"] > 0  # what was said is paid, though nobody waits for the rest
        verdict = route.stage.one("SELECT verdict FROM attempt WHERE tokens > 0 ORDER BY id DESC LIMIT 1")
        assert verdict == "abort", json.dumps(task)
    finally:
        http.close()
        web.stop()

"""What a provider can do wrong, over real sockets: the task ends as the table says, its permit always comes back."""

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from harness.engine import execute
from harness.engine.downstream import Downstream
from harness.kinds import completions
from harness.ops.emulator.behaviour import Behaviour
from tasks.llm_chat.test_kind import END, HEAD, Provider, Send, event, piece, whole
from tests.engine.line import LLM, Line, opened
from tests.ops.emulator.callers import emulated
from tests.stage import Stage, wait_until

TALK = json.dumps(
    {"messages": [{"role": "user", "content": "What is a lease? A lease is a slot."}], "model": "emulator-1"}
)


@pytest.fixture
def line(stage: Stage, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    monkeypatch.setenv("LLM_API_KEY", "sk-of-tests")
    monkeypatch.setenv("LLM_MODEL", "m-1")
    monkeypatch.setenv("LLM_TIMEOUT_S", "5")
    with opened(stage, broker_url, connections=4) as line:
        yield line
    completions.close()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    playing = Provider()
    threading.Thread(target=playing.server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("LLM_BASE_URL", playing.url)
    yield playing
    playing.go_on.set()
    playing.server.shutdown()
    playing.server.server_close()


@contextmanager
def rude() -> Iterator[int]:
    """Serve what is no TLS."""

    class Rude(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"HTTP/1.1 400 No\r\ncontent-length: 0\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Rude) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def talk(line: Line) -> int:
    return line.run("llm.chat", input=TALK)


def refuse(provider: Provider, *headers: str, code: str = "rate_limit_exceeded", status: int = 429) -> None:
    """Let the provider answer a refusal with these headers."""
    body = json.dumps({"error": {"message": "no", "type": "requests", "code": code}}).encode()
    head = "\r\n".join(
        [f"HTTP/1.1 {status} No", "content-type: application/json", f"content-length: {len(body)}", *headers]
    )

    def play(send: Send, asked: dict[str, Any]) -> None:
        send(head.encode("latin-1") + b"\r\n\r\n" + body)

    provider.play = play


def in_20_s() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=21), usegmt=True)


@pytest.mark.parametrize(
    ("header", "least_s", "most_s"),
    [
        ("retry-after: {in_20_s}", 18, 23),
        ("retry-after: Fri, 31 Dec 1999 23:59:59 GMT", -1, 2),
        ("retry-after: -5", -1, 2),
        ("retry-after: 86400", 899, 902),
        ("retry-after: 1e999", -1, 2),
        ("retry-after: soon", -1, 2),
        ("retry-after-ms: 7500", 7, 9),
        ("x-ratelimit-limit-requests: 0", -1, 2),
        ("x-ratelimit-remaining-requests: -7", -1, 2),
        ("x-ratelimit-reset-requests: forever", -1, 2),
        ("x-ratelimit-limit-tokens: 99999999999999999999", -1, 2),
    ],
)
def test_whatever_a_429_says_the_task_comes_back_in_time_and_spends_nothing(
    line: Line, provider: Provider, header: str, least_s: float, most_s: float
) -> None:
    refuse(provider, header.format(in_20_s=in_20_s()))
    task = talk(line)
    assert (line.stage.state(task), line.stage.row(task)["attempts_used"]) == ("queued", 0)
    assert len(provider.asked) == 1, "one layer tries again, and it isn't the client"
    assert least_s <= line.due_in_s(task) <= most_s
    reading = line.reading()
    assert reading.in_flight == 0 and reading.blocked_until_s - reading.at_s <= 900
    assert line.facts()["drop"] == 1 and "rate" not in line.facts()


def test_a_429_with_an_empty_bucket_or_a_known_code_is_one_of_the_rate(line: Line, provider: Provider) -> None:
    refuse(provider, "x-ratelimit-limit-requests: 60", "x-ratelimit-remaining-requests: 0", "retry-after: 1")
    talk(line)
    refuse(provider, "retry-after: 1", code="tokens_per_minute_exceeded")
    talk(line)
    assert (line.facts()["drop"], line.facts()["rate"]) == (2, 2)


def test_a_request_that_never_fits_fails_instead_of_coming_back_for_ever(line: Line, provider: Provider) -> None:
    refuse(provider, "retry-after: 1", code="request_too_large")
    task = talk(line)
    assert line.stage.state(task) == "failed_terminal" and line.error(task)["class"] == "validation"


def test_what_a_good_answer_says_of_its_buckets_is_obeyed(line: Line, provider: Provider) -> None:
    line.set(LLM, rpm=600.0)

    def play(send: Send, asked: dict[str, Any]) -> None:
        told = b"x-ratelimit-limit-requests: 600\r\nx-ratelimit-remaining-requests: 0\r\n"
        send(HEAD.replace(b"\r\n\r\n", b"\r\n" + told + b"\r\n"))
        for one in (piece("A slot."), piece(None, finish="stop"), piece(None, usage=(5, 3)), event("[DONE]"), END):
            send(one)

    provider.play = play
    assert line.stage.state(talk(line)) == "succeeded"
    assert line.reading().rate_wait_s > 0


def test_an_answer_without_usage_is_estimated_and_settled(line: Line, provider: Provider) -> None:
    def play(send: Send, asked: dict[str, Any]) -> None:
        send(HEAD + piece("x" * 400) + piece(None, finish="stop") + event("[DONE]") + END)

    provider.play = play
    line.set(LLM, tpm=100_000.0)
    task = talk(line)
    assert line.output(task)["usage_estimated"] and line.facts()["success"] == 1 and line.in_flight() == 0


@pytest.mark.parametrize(
    ("behaviour", "counted", "error_class"),
    [
        ({"cut_rate": 1.0}, "failure", "network"),
        ({"hang_rate": 1.0, "hang_s": 60.0}, "timed_out", "timeout"),
        ({"drop_rate": 1.0}, "failure", "network"),
        ({"error_rate": 1.0, "error_status": 500}, "failure", "server_error"),
        ({"error_rate": 1.0, "error_status": 503}, "overload", "server_error"),
        ({"latency_s": 30.0}, "timed_out", "timeout"),
    ],
)
def test_a_provider_that_breaks_hangs_drops_or_crawls_spends_one_attempt_and_its_permit_comes_back(
    line: Line, monkeypatch: pytest.MonkeyPatch, behaviour: dict[str, Any], counted: str, error_class: str
) -> None:
    monkeypatch.setenv("LLM_TIMEOUT_S", "0.4")
    with emulated(**behaviour) as provider:
        monkeypatch.setenv("LLM_BASE_URL", provider.base_url)
        task = talk(line)
        assert provider.emulator.counters.calls == 1, "one layer tries again, and it isn't the client"
    assert line.stage.state(task) == "failed_retryable" and line.error(task)["class"] == error_class
    assert line.stage.row(task)["attempts_used"] == 1
    assert line.facts()[counted] == 1 and line.in_flight() == 0


@pytest.mark.parametrize(
    "where", ["http://no-such-host.invalid/v1", "https://127.0.0.1:{port}/v1", "http://127.0.0.1:1/v1"]
)
def test_no_name_no_tls_and_no_connection_are_failures_of_the_network_until_the_breaker_opens(
    line: Line, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with rude() as port:
        monkeypatch.setenv("LLM_BASE_URL", where.format(port=port))
        tasks = [talk(line) for _ in range(7)]
    assert line.error(tasks[0])["class"] == "network"
    assert line.reading().breaker == "open" and line.in_flight() == 0
    last = line.stage.row(tasks[-1])
    assert (last["state"], last["attempts_used"]) == ("queued", 0)


def test_a_quota_that_falls_while_calls_run_costs_few_429s_and_no_attempt(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.set(LLM, limiter="csl", capacity=16, start=8)
    line.stage.add_session({"llm": 4})  # eight slots in all
    with emulated(quota=8, latency_s=0.2, retry_after_s=0.0) as provider, ThreadPoolExecutor(8) as threads:
        monkeypatch.setenv("LLM_BASE_URL", provider.base_url)
        tasks = line.stage.submit("llm.chat", n=400, input=TALK)
        began_s = time.monotonic()
        while time.monotonic() - began_s < 8.0:
            if time.monotonic() - began_s > 3.0:
                provider.emulator.behaviour = Behaviour(quota=2, latency_s=0.2, retry_after_s=0.0)
            for message in list(line.stage.tick()):
                threads.submit(execute.run_lease, line.process, message.lease, message.token)
            time.sleep(0.02)
        threads.shutdown(wait=True)
        counters = provider.emulator.counters
        refused, answered = counters.rejected_concurrency, counters.answered
        assert counters.in_flight_max <= 8
    ended = line.stage.one("SELECT count(*) FROM task WHERE state = 'succeeded'")
    assert ended == answered > 40
    assert refused <= 12, f"{refused} refusals beside {answered} answers"
    assert line.stage.one("SELECT max(attempts_used) FROM task WHERE id = ANY(%s)", tasks) == 0
    assert line.in_flight() == 0


@pytest.mark.parametrize("url", ["", "redis://127.0.0.1:1/0"])
def test_without_redis_calls_go_on_within_the_processs_own_share(
    line: Line, provider: Provider, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_TIMEOUT_S", "15")  # longer than the next one waits for the first to end
    provider.play = whole
    line.process.downstream.close()
    live = line.process.downstream.live
    line.process.downstream = Downstream(url, {name: one.resource for name, one in live.items()}, line.process.waits)
    assert line.stage.state(talk(line)) == "succeeded"
    line.set(LLM, capacity=2)  # half of it is one

    def late(send: Send, asked: dict[str, Any]) -> None:
        provider.go_on.wait(20)
        whole(send, asked)

    provider.play = late
    first, thread = line.start("llm.chat", input=TALK)
    wait_until(lambda: len(provider.asked) == 2, within_s=5)
    line.process.downstream._call_s[LLM] = 60.0
    second = talk(line)
    row = line.stage.row(second)
    assert (row["state"], row["attempts_used"], len(provider.asked)) == ("queued", 0, 2)
    assert "Redis is away" in line.why(second) or "limited to 1" in line.why(second)
    provider.go_on.set()
    thread.join(10)
    assert line.stage.state(first) == "succeeded"

"""Conversations against a provider that streams over a real socket, and what such a stream can do wrong."""

import json
import os
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from pydantic import ValidationError

from harness.engine.answers import call, classify
from harness.kinds import Cancelled, Permanent, RateLimited, TimedOut, Transient, completions
from tasks.llm_chat.kind import Conversation, Message, chat

Send = Callable[[bytes], None]
Play = Callable[[Send, dict[str, Any]], None]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def piece(text: str | None, *, finish: str | None = None, usage: tuple[int, int] | None = None) -> bytes:
    """Return one event of a stream as a chunk of HTTP/1.1."""
    data: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m-1", "choices": []}
    if text is not None or finish:
        data["choices"] = [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]
    if usage:
        data["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return event(json.dumps(data))


def event(data: str) -> bytes:
    content = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(content), content)


class Provider:
    """A server that plays one answer to every request, and keeps what it was asked."""

    def __init__(self) -> None:
        self.play: Play = lambda send, asked: None
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.hung_up = threading.Event()
        self.go_on = threading.Event()
        provider = self

        class Handler(socketserver.StreamRequestHandler):
            def send(self, data: bytes) -> None:
                self.wfile.write(data)

            def handle(self) -> None:
                self.rfile.readline()
                headers = {}
                while line := self.rfile.readline().strip():
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                asked = json.loads(self.rfile.read(int(headers["content-length"])))
                provider.asked.append(asked)
                provider.keys.append(headers["authorization"])
                try:
                    provider.play(self.send, asked)
                except OSError:
                    provider.hung_up.set()

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    playing = Provider()
    threading.Thread(target=playing.server.serve_forever, args=(0.01,), daemon=True).start()
    for name, value in (("LLM_BASE_URL", playing.url), ("LLM_API_KEY", "sk-canary-of-tests"), ("LLM_MODEL", "m-1")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LLM_TIMEOUT_S", raising=False)
    yield playing
    playing.go_on.set()
    completions.close()
    playing.server.shutdown()
    playing.server.server_close()


def asked(**more: Any) -> Conversation:
    return Conversation(messages=[Message(role="user", content="What is a lease?")], **more)


def whole(send: Send, _: dict[str, Any]) -> None:
    send(HEAD)
    for text in ("A lease ", "is a ", "slot."):
        send(piece(text))
    send(piece(None, finish="stop"))
    send(piece(None, usage=(12, 5)))
    send(event("[DONE]") + END)


def test_each_piece_is_shown_and_the_whole_is_the_result(alone: Any, provider: Provider) -> None:
    provider.play = whole
    ctx = alone()
    reply = chat(ctx, asked(model="emulator-1", temperature=0.5, max_tokens=50))
    assert ctx.shown == ["A lease ", "is a ", "slot."]
    assert reply.text == "A lease is a slot." and reply.finish_reason == "stop" and reply.model == "m-1"
    assert (reply.tokens_in, reply.tokens_out, reply.usage_estimated) == (12, 5, False)
    assert reply.usd == pytest.approx((12 * 0.5 + 5 * 1.5) / 1e6) and reply.warning is None
    assert ctx.used == [("emulator-1", 12, 5)] and ctx.calls == ["llm:default"]
    (request,) = provider.asked
    assert (request["model"], request["stream"], request["temperature"]) == ("emulator-1", True, 0.5)
    assert request["stream_options"] == {"include_usage": True} and request["max_completion_tokens"] == 50
    assert provider.keys == ["Bearer sk-canary-of-tests"]


def test_a_provider_that_counts_nothing_is_estimated_and_says_so(alone: Any, provider: Provider) -> None:
    def play(send: Send, _: dict[str, Any]) -> None:
        send(HEAD + piece("x" * 401) + piece(None, finish="length") + event("[DONE]") + END)

    provider.play = play
    ctx = alone()
    reply = chat(ctx, asked())
    assert reply.usage_estimated and reply.tokens_out == 101 and reply.tokens_in == 8
    assert reply.finish_reason == "length" and ctx.used == [("m-1", 8, 101)]


def test_a_model_without_a_price_costs_null_and_warns(alone: Any, provider: Provider) -> None:
    provider.play = whole
    reply = chat(alone(), asked())
    assert provider.asked[0]["model"] == "m-1"  # LLM_MODEL, of the default model
    assert reply.usd is None and reply.warning is not None and "'m-1'" in reply.warning


def cut_off(send: Send, _: dict[str, Any]) -> None:
    send(HEAD + piece("Half an ans"))


def ended_early(send: Send, _: dict[str, Any]) -> None:
    send(HEAD + piece("Half an ans") + END)


def error_inside(send: Send, _: dict[str, Any]) -> None:
    send(HEAD + piece("Half") + event('{"error": {"message": "engine overloaded", "code": "server_error"}}') + END)


def nonsense(send: Send, _: dict[str, Any]) -> None:
    send(HEAD + piece("Half") + event("{not json") + END)


def a_list(send: Send, _: dict[str, Any]) -> None:
    send(HEAD + piece("Half") + event("[1, 2]") + END)


@pytest.mark.parametrize("play", [cut_off, ended_early, error_inside, nonsense, a_list])
def test_a_stream_that_breaks_is_transient_and_what_it_used_is_counted(
    alone: Any, provider: Provider, play: Play
) -> None:
    provider.play = play
    ctx = alone()
    with pytest.raises(Transient) as broken:
        call(lambda: chat(ctx, asked()))
    assert not isinstance(broken.value, RateLimited)
    assert len(ctx.used) == 1 and ctx.used[0][2] > 0 and "".join(ctx.shown).startswith("Half")
    assert len(provider.asked) == 1


def test_a_page_that_is_no_stream_is_transient(alone: Any, provider: Provider) -> None:
    provider.play = lambda send, _: send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>"
    )
    with pytest.raises(Transient, match="ended before the answer"):
        chat(alone(), asked())


def test_a_limit_reached_within_the_stream_is_a_rate_limit(alone: Any, provider: Provider) -> None:
    provider.play = lambda send, _: send(
        HEAD + event('{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}') + END
    )
    with pytest.raises(RateLimited, match="slow down"):
        chat(alone(), asked())


def test_a_refusal_before_the_stream_is_known_by_its_status(alone: Any, provider: Provider) -> None:
    body = b'{"error": {"message": "wrong key sk-canary-of-tests"}}'
    provider.play = lambda send, _: send(
        b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    )
    ctx = alone()
    with pytest.raises(openai.AuthenticationError) as refused:
        chat(ctx, asked())
    assert isinstance(classify(refused.value), Permanent) and ctx.used == []


@pytest.mark.parametrize("first", [b"", HEAD, HEAD + piece("One ")], ids=["silent", "headers", "a piece"])
def test_a_cancel_acts_within_a_second_however_silent_the_provider(
    alone: Any, provider: Provider, first: bytes
) -> None:
    def play(send: Send, asked: dict[str, Any]) -> None:
        if first:
            send(first)
        provider.go_on.wait(20)
        for _ in range(100):  # a client that has left is noticed at the second write, at the latest
            send(piece("more"))
            time.sleep(0.01)

    provider.play = play
    ctx = alone()
    asked_s: list[float] = []

    def stop() -> None:
        asked_s.append(time.monotonic())
        ctx.stop = True

    threading.Timer(0.5, stop).start()
    with pytest.raises(Cancelled):
        chat(ctx, asked())
    assert asked_s and time.monotonic() - asked_s[0] < 1.0
    assert len(ctx.used) == (1 if first.endswith(piece("One ")) else 0)
    provider.go_on.set()
    if first:
        assert provider.hung_up.wait(5)  # the connection was shut: the provider needn't go on


def test_a_provider_silent_for_too_long_is_a_time_out(
    alone: Any, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(send: Send, _: dict[str, Any]) -> None:
        send(HEAD + piece("One "))
        provider.go_on.wait(10)

    provider.play = play
    monkeypatch.setenv("LLM_TIMEOUT_S", "0.3")
    with pytest.raises(TimedOut):
        call(lambda: chat(alone(), asked()))


def test_an_empty_answer_fails_at_once_and_is_paid(alone: Any, provider: Provider) -> None:
    provider.play = lambda send, _: send(HEAD + piece(" ", finish="content_filter") + event("[DONE]") + END)
    ctx = alone()
    with pytest.raises(Permanent, match="content_filter"):
        chat(ctx, asked())
    assert len(ctx.used) == 1


def test_a_key_that_the_provider_sends_back_is_blotted_out(alone: Any, provider: Provider) -> None:
    provider.play = lambda send, _: send(
        HEAD + piece("Your key is sk-canary") + piece("-of-tests.", finish="stop") + END
    )
    assert chat(alone(), asked()).text == "Your key is [redacted]."


def test_no_thread_is_left_behind(alone: Any, provider: Provider) -> None:
    provider.play = whole
    for _ in range(5):
        chat(alone(), asked())
    end_s = time.monotonic() + 5
    while any(thread.name == "llm-stream" for thread in threading.enumerate()):
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.parametrize("name", ["LLM_BASE_URL", "LLM_MODEL"])
def test_a_worker_that_is_not_set_up_says_which_variable(
    alone: Any, provider: Provider, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(name)
    assert "LLM_API_KEY" in os.environ
    with pytest.raises(Permanent, match=f"{name} is not set"):
        chat(alone(), asked())


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"model": "gpt-nobody-told"}, "model"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, ""),
        ({"messages": [{"role": "user", "content": "x" * 150_000}] * 2}, ""),
        ({"top_p": 1}, "top_p"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_door_by_name(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Conversation.model_validate({"messages": [{"role": "user", "content": "x"}]} | wrong)
    assert field in (refused.value.errors()[0]["loc"] or ("",))

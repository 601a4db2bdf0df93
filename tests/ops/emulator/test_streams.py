"""Streamed answers with the real openai client, and byte by byte as OpenAI writes them."""

import itertools
import json
import time
import urllib.request
from typing import Any

import openai
import pytest

from tests.ops.emulator.callers import CHAT, TEXT, change, chat, client_of, emulated, stats


def events_of(url: str, **more: Any) -> list[str]:
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(CHAT | {"stream": True} | more).encode())
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-ratelimit-remaining-requests"]
        raw = answer.read().decode()
    assert raw.endswith("\n\n")
    return [event.removeprefix("data: ") for event in raw[:-2].split("\n\n")]


def test_the_real_client_puts_the_same_answer_together_from_a_stream() -> None:
    with emulated() as provider, client_of(provider) as client:
        chunks = list(client.chat.completions.create(**CHAT, stream=True))  # type: ignore[call-overload]
        whole = client.chat.completions.create(**CHAT).choices[0].message.content  # type: ignore[call-overload]
        seen = stats(provider)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole == TEXT
    assert len(chunks) > 10 and len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "stop"]
    assert all(chunk.usage is None for chunk in chunks)
    assert (seen["answered"], seen["streamed"], seen["in_flight"]) == (2, 1, 0)


def test_the_usage_comes_in_a_chunk_of_its_own_when_it_is_asked_for() -> None:
    with emulated() as provider, client_of(provider) as client:
        chunks = list(
            client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True})  # type: ignore[call-overload]
        )
        usage = client.chat.completions.create(**CHAT).usage  # type: ignore[call-overload]
    assert chunks[-1].choices == [] and chunks[-1].usage == usage
    assert all(chunk.usage is None and len(chunk.choices) == 1 for chunk in chunks[:-1])


def test_events_are_written_as_openai_writes_them() -> None:
    with emulated() as provider:
        events = events_of(provider.base_url, stream_options={"include_usage": True}, max_tokens=2)
    assert events[-1] == "[DONE]"
    first, *_, last, usage = [json.loads(event) for event in events[:-1]]
    assert first["object"] == "chat.completion.chunk" and first["model"] == "m"
    assert first["choices"] == [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": "", "refusal": None},
            "logprobs": None,
            "finish_reason": None,
        }
    ]
    assert last["choices"][0]["delta"] == {} and last["choices"][0]["finish_reason"] == "length"
    assert all(json.loads(event)["usage"] is None for event in events[:-2])
    assert usage["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    "text", ["", "日本語。二つ目。", 'He said "no\\u0000" and left twice.', "\x00", "\x00 a\x00b."]
)
def test_any_text_survives_the_stream(text: str) -> None:
    messages = [{"role": "user", "content": text}]
    with emulated() as provider:
        events = events_of(provider.base_url, messages=messages)
        whole = chat(provider, messages=messages)[1]["choices"][0]["message"]["content"]
    words = [json.loads(event)["choices"][0]["delta"].get("content", "") for event in events[:-1]]
    assert "".join(words) == whole


def test_words_come_over_the_latency_and_the_place_is_taken_until_the_last() -> None:
    with emulated(latency_s=1.5, first_token_ratio=0.4, quota=1) as provider, client_of(provider) as client:
        began_s = time.monotonic()
        times = []
        for chunk in client.chat.completions.create(**CHAT, stream=True):  # type: ignore[call-overload]
            times.append(time.monotonic() - began_s)
            if len(times) == 3:
                assert chunk.choices[0].finish_reason is None
                assert chat(provider)[1]["error"]["code"] == "rate_limit_exceeded"
        change(provider, latency_s=0)
        assert chat(provider)[0] == 200
    assert times[0] >= 0.6 and times[-1] >= 1.5
    assert sum(later - earlier > 0.01 for earlier, later in itertools.pairwise(times)) > 5


def test_a_stream_is_refused_as_a_plain_answer() -> None:
    with emulated(quota=0) as provider, client_of(provider) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(**CHAT, stream=True)  # type: ignore[call-overload]
        assert refused.value.code == "rate_limit_exceeded"


def test_a_client_that_leaves_a_stream_is_counted_as_gone_and_frees_its_place_in_time() -> None:
    with emulated(latency_s=1, quota=1) as provider:
        with client_of(provider) as client:
            stream = client.chat.completions.create(**CHAT, stream=True)  # type: ignore[call-overload]
            next(iter(stream))
            stream.close()
        deadline_s = time.monotonic() + 5
        while stats(provider)["in_flight"] and time.monotonic() < deadline_s:
            pass
        seen = stats(provider)
    assert (seen["abandoned"], seen["answered"], seen["in_flight"]) == (1, 0, 0)

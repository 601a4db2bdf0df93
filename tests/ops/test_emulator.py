"""The provider emulator with the real openai client: an exact quota, honest refusals, answers made of the document."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.ops.emulator import extract, server
from harness.ops.emulator.behaviour import Behaviour, changed
from harness.policy.errors import Invalid, Unavailable

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = """# Harness

Harness runs long agent tasks for many tenants on Celery. PostgreSQL holds the waiting line and the truth, and a
dispatcher releases a task only when every limit has room. Workers report what the downstream did.

It was written on a rainy day. A task that is refused waits in the database; the dispatcher knows why each task waits.
"""


@pytest.fixture
def provider() -> Iterator[server.Running]:
    with server.running(Behaviour(quota=7, latency_s=0)) as running:
        yield running


def ask(client: openai.OpenAI, document: str = DOCUMENT, **more: Any) -> str:
    prompt = f"Summarise in at most 2 sentences.\n<document>\n{document}\n</document>"
    answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": prompt}], **more)
    return answer.choices[0].message.content or ""


def client_of(provider: server.Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=provider.base_url, api_key="none", max_retries=0)


def http(url: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


async def crowd(provider: server.Running, clients: int, calls: int) -> Counter[str]:
    """Let `clients` callers make `calls` calls each, one after the other. Returns how they ended."""
    ends: Counter[str] = Counter()
    async with openai.AsyncOpenAI(base_url=provider.base_url, api_key="none", max_retries=0) as client:

        async def caller() -> None:
            for _ in range(calls):
                try:
                    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": DOCUMENT}])
                    ends["200"] += 1
                except openai.RateLimitError as refused:
                    ends["429"] += 1
                    ends["with retry-after"] += refused.response.headers["retry-after"] == "1"

        await asyncio.gather(*(caller() for _ in range(clients)))
    return ends


def test_the_answer_is_sentences_of_the_document_chosen_by_its_terms(provider: server.Running) -> None:
    with client_of(provider) as client:
        first, second = ask(client), ask(client)
    assert first == second
    flat = " ".join(DOCUMENT.split())
    sentences = re.split(r"(?<=\.) ", first)
    assert len(sentences) == 2
    assert all(one in flat for one in sentences)
    assert "rainy" not in first and "dispatcher releases a task" in first


def test_usage_is_counted_and_added_up(provider: server.Running) -> None:
    with client_of(provider) as client:
        answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": DOCUMENT}])
        assert [one.id for one in client.models.list()] == ["emulator-extractive", "emulator-hashed"]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == -(-len(DOCUMENT) // 4)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    stats = http(f"{provider.url}/admin/stats")[1]
    assert (stats["prompt_tokens"], stats["answered"]) == (answer.usage.prompt_tokens, 1)


def test_max_tokens_cuts_the_answer_and_says_so(provider: server.Running) -> None:
    with client_of(provider) as client:
        answer = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": DOCUMENT}], max_completion_tokens=5
        )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None and answer.usage.completion_tokens <= 5


def test_the_quota_is_exact_when_a_crowd_comes_at_once(provider: server.Running) -> None:
    provider.emulator.behaviour = Behaviour(quota=7, latency_s=1.0)
    ends = asyncio.run(crowd(provider, clients=40, calls=1))
    stats = http(f"{provider.url}/admin/stats")[1]
    assert ends["200"] + ends["429"] == 40 and ends["429"] == ends["with retry-after"] > 0
    assert (stats["accepted"], stats["rejected_429"]) == (ends["200"], ends["429"])
    assert (stats["in_flight"], stats["in_flight_max"]) == (0, 7)


def test_clients_that_keep_to_the_quota_are_never_refused(provider: server.Running) -> None:
    provider.emulator.behaviour = Behaviour(quota=7, latency_s=0.02, sigma=0.5)
    assert asyncio.run(crowd(provider, clients=7, calls=30)) == {"200": 210}
    assert provider.emulator.counters.in_flight_max == 7


def test_a_refusal_has_openai_s_shape_and_says_when_to_come_back(provider: server.Running) -> None:
    provider.emulator.behaviour = Behaviour(quota=0, retry_after_s=1.5)
    with client_of(provider) as client, pytest.raises(openai.RateLimitError) as refused:
        ask(client)
    assert refused.value.response.headers["retry-after"] == "2"
    assert refused.value.response.headers["retry-after-ms"] == "1500"
    assert refused.value.code == "rate_limit_exceeded"
    assert "0 calls are in flight" in refused.value.message


def test_quota_and_latency_change_while_it_runs_and_counters_start_again(provider: server.Running) -> None:
    status, answer = http(f"{provider.url}/admin/config", b'{"quota": 1, "latency_s": 0.0}')
    assert (status, answer) == (200, asdict(Behaviour(quota=1, latency_s=0)))
    assert http(f"{provider.url}/admin/config") == (200, answer)
    with client_of(provider) as client:
        ask(client)
    assert http(f"{provider.url}/admin/stats")[1]["accepted"] == 1
    assert {name for name, n in http(f"{provider.url}/admin/reset", b"")[1].items() if n} == {"quota_now"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"quota": -1}', "quota"), (b'{"quota": 1.5}', "quota"), (b'{"latency": 1}', "latency"),
        (b'{"latency_s": "1"}', "latency_s"), (b'{"sigma": NaN}', "sigma"), (b'{"quota": true}', "quota"),
        (b'{"rpm": -1}', "rpm"), (b'{"burst_s": 0}', "burst_s"), (b'{"error_status": 404}', "error_status"),
        (b'{"error_rate": 1.1}', "error_rate"), (b'{"error_rate": 0.6, "drop_rate": 0.6}', "error_rate"),
        (b'{"reserve_max_tokens": 1}', "reserve_max_tokens"), (b'{"inflation_full": 0.5}', "inflation_from"),
        (b'{"rpm": 1' + b"0" * 400 + b"}", "rpm"), (b'{"quota": 3, "inflation": 0}', "inflation"),
        (b"[]", None), (b"{", None), (b"\xff", None),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused_by_name_and_changes_nothing(
    provider: server.Running, body: bytes, param: str | None
) -> None:
    status, answer = http(f"{provider.url}/admin/config", body)
    assert (status, answer["error"]["param"]) == (400, param)
    assert provider.emulator.behaviour == Behaviour(quota=7, latency_s=0)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"no", None), (b"{}", "model"), (b'{"model": "m"}', "messages"),
        (b'{"model": "m", "messages": []}', "messages"),
        (b'{"model": "m", "messages": [3]}', "messages[0].content"),
        (b'{"model": "m", "messages": [{"content": null}]}', "messages[0].content"),
        (b'{"model": "m", "messages": [{"content": "x"}], "stream": "yes"}', "stream"),
        (b'{"model": "m", "messages": [{"content": "x"}], "stream_options": {}}', "stream_options"),
        (b'{"model": "m", "messages": [{"content": "x"}], "stream": true, "stream_options": 1}', "stream_options"),
        (
            b'{"model": "m", "messages": [{"content": "x"}], "stream": true, "stream_options": {"include_usage": 1}}',
            "stream_options.include_usage",
        ),
        (b'{"model": "m", "messages": [{"content": "x"}], "max_tokens": 0}', "max_tokens"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_by_name_and_takes_no_place(
    provider: server.Running, body: bytes, param: str | None
) -> None:
    status, answer = http(f"{provider.base_url}/chat/completions", body)
    assert (status, answer["error"]["param"]) == (400, param)
    counters = provider.emulator.counters
    assert (counters.accepted, counters.errors, counters.in_flight) == (0, 1, 0)


def test_what_is_not_there_is_404(provider: server.Running) -> None:
    assert http(f"{provider.base_url}/completions", b"{}")[0] == 404


def test_text_in_parts_and_half_a_surrogate_pair_are_answered(provider: server.Running) -> None:
    parts = [{"type": "text", "text": "Cats sleep all day \\ud800."}, {"type": "image_url"}]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).replace("\\\\u", "\\u")
    status, answer = http(f"{provider.base_url}/chat/completions", body.encode())
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == "Cats sleep all day ?."


def test_a_client_that_hangs_up_keeps_its_place_until_its_time_is_over(provider: server.Running) -> None:
    provider.emulator.behaviour = Behaviour(quota=1, latency_s=0.4)
    with client_of(provider) as client:
        with pytest.raises(openai.APITimeoutError):
            ask(client, timeout=0.1)
        with pytest.raises(openai.RateLimitError):
            ask(client)
    assert provider.emulator.counters.in_flight == 1


def test_the_command_serves_without_settings_and_stops_when_told() -> None:
    command = [sys.executable, "-m", "harness.ops.emulator", "--port", "0", "--latency-s", "0", "--quota", "3"]
    with subprocess.Popen(command, cwd=ROOT, env={}, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/v1", line)
            assert found and "quota 3" in line
            with openai.OpenAI(base_url=found.group(), api_key="none", max_retries=0) as client:
                assert "dispatcher" in ask(client)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_the_management_command_is_the_same_and_asks_no_database() -> None:
    code = "import sys; from django.core.management import execute_from_command_line as run; run(sys.argv)"
    command = [sys.executable, "-c", code, "provider", "--port", "0", "--quota", "-1"]
    environment = {"DJANGO_SETTINGS_MODULE": "config.settings", "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "quota must lie between 0 and 100000" in done.stderr


def test_a_port_in_use_is_said_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=rf"port {port} on 127\.0\.0\.1 is in use: .* --port"):
            server.listen("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("no such host", 80)])
def test_an_address_that_is_none_is_refused(host: str, port: int) -> None:
    with pytest.raises(Unavailable, match=r"is no (port|address)"):
        server.listen(host, port)


def test_an_unknown_setting_lists_those_that_there_are() -> None:
    with pytest.raises(Invalid, match="unknown setting 'speed': there are quota, noise_ratio"):
        changed(Behaviour(), {"speed": 3})


@settings(deadline=None)
@given(st.text(max_size=400), st.integers(1, 9))
def test_every_answer_stands_in_its_document(document: str, number: int) -> None:
    text, cut = extract.answer(f"Give {number} sentences.\n<document>{document}</document>")
    sentences = extract.sentences_of(document)
    assert not cut
    assert bool(text) == bool(sentences)
    rest = text
    for sentence in sentences:
        rest = rest.removeprefix(sentence).removeprefix(" ")
    assert rest == "" or rest in sentences[0]

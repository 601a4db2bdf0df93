"""HTTP by hand: any pieces give the same requests, and what is no HTTP is told so."""

import contextlib
import doctest
import importlib
import itertools
import json
import socket
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ops.emulator import http1, measure, server
from harness.ops.emulator.behaviour import SETTINGS
from harness.ops.emulator.http1 import BODY_MAX_BYTES, HEAD_MAX_BYTES, Malformed, Parser
from tests.ops.emulator.callers import CHAT, emulated, stats

THREE = (
    b"POST /a?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
    b"POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n"
    b"\r\nGET /c HTTP/1.0\r\n\r\n"
)


def requests_of(pieces: list[bytes]) -> list[tuple[str, str, bytes, bool]]:
    parser, found = Parser(), []
    for piece in pieces:
        parser.feed(piece)
        while request := parser.next():
            found.append((request.method, request.path, request.body, request.keep_alive))
    return found


@given(st.lists(st.integers(0, len(THREE)), max_size=20))
def test_the_same_requests_come_out_whatever_the_pieces(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(THREE)]
    pieces = [THREE[a:b] for a, b in itertools.pairwise(edges)]
    assert requests_of(pieces) == [
        ("POST", "/a", b"hello", True), ("POST", "/b", b"abcde", True), ("GET", "/c", b"", False),
    ]  # fmt: skip


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_malformed_or_not_yet_complete(data: bytes) -> None:
    parser = Parser()
    parser.feed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
    with contextlib.suppress(Malformed):
        parser.next()


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400), (b"GET / SPDY/3\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nContent-Length: 1_0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (BODY_MAX_BYTES + 1), 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n", 413),
        (b"GET /" + b"a" * (HEAD_MAX_BYTES + 10), 431),
    ],
)  # fmt: skip
def test_what_is_no_request_is_answered_counted_and_the_connection_closed(raw: bytes, status: int) -> None:
    with emulated() as provider:
        host, port = provider.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(raw)
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 %d " % status) and b"connection: close" in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "malformed"
        assert stats(provider)["client_errors" if status < 500 else "server_errors"] == 1


def test_requests_sent_ahead_are_answered_in_their_order() -> None:
    with emulated(latency_s=0.05) as provider:
        host, port = provider.url.removeprefix("http://").split(":")
        content = json.dumps(CHAT).encode()
        post = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(content), content)
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(post + b"GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n")
            answer = b""
            while piece := connection.recv(65_536):
                answer += piece
        assert 0 < answer.index(b"chat.completion") < answer.index(b'"list"')


def test_a_client_that_waits_for_100_continue_and_one_that_sends_chunks_are_served() -> None:
    with emulated() as provider:
        url = f"{provider.base_url}/chat/completions"
        content = json.dumps(CHAT).encode()
        assert httpx.post(url, content=iter([content[:10], content[10:]])).status_code == 200
        host, port = provider.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            head = b"POST /v1/models HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
            connection.sendall(head)
            assert connection.recv(100) == http1.CONTINUE
            connection.sendall(b"{}")
            assert connection.recv(100).startswith(b"HTTP/1.1 404 ")


def test_a_stream_does_not_wait_for_acknowledgements() -> None:
    with server.listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_the_measuring_client_reads_whole_answers() -> None:
    for kind in measure.KINDS:
        with emulated() as provider:
            port = int(provider.url.rpartition(":")[2])
            statuses, took_s = measure.calls(port, kind=kind, clients=3, seconds=0.1)
            assert stats(provider)["answered"] == statuses[200] == statuses.total() >= 3
            assert took_s >= 0.1


def test_the_readme_names_every_setting() -> None:
    text = Path(http1.__file__).with_name("README.md").read_text(encoding="utf-8")
    assert [name for name in SETTINGS if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", ["behaviour", "extract", "gate", "law"])
def test_the_examples_of_a_module_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"harness.ops.emulator.{name}"))
    assert found.attempted > 0 and found.failed == 0


def test_500_calls_a_second_are_answered_with_little_cpu() -> None:
    figures = measure.measured(clients=50, seconds=1.0)
    assert set(figures["statuses"]) == {200}
    assert figures["cpu_s_per_1000"] <= 0.5, (
        "one core gives 500 calls/s at 2 ms of CPU a call; this leaves 4 times that"
    )

"""No answer is larger, slower or other than allowed, and each that isn't an answer is told as an error of work."""

import gzip
import itertools
import socket
import time
import zlib
from collections.abc import Callable

import pytest

from harness.engine import answers
from harness.kinds import Cancelled, Permanent, RateLimited, TimedOut, Transient
from harness.kinds.egress import Rules, error_of_status, fetch, post
from harness.policy.errors import ErrorClass
from tests.kinds.sites import Page, Site, get, raw

TEXT = {"content-type": "text/plain"}


# Sizes


def test_a_body_may_be_as_large_as_allowed_and_not_a_byte_larger(here: Site) -> None:
    here.pages["/"] = Page(b"x" * 1000)
    assert len(get(here, max_bytes=1000)) == 1000
    with pytest.raises(Permanent, match=r"larger than max_bytes \(999\)"):
        get(here, max_bytes=999)


def test_an_announced_giant_is_refused_before_it_is_read() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n"
    with raw(lambda connection: connection.sendall(head)) as giant, pytest.raises(Permanent, match="larger"):
        get(giant)


def test_a_stream_without_an_end_is_cut_off_at_the_limit() -> None:
    sent = 0

    def endless(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
            sent += 0x2000

    with raw(endless) as site_, pytest.raises(Permanent, match="larger"):
        get(site_)
    assert sent < 50_000_000


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_is_counted_after_unpacking_and_never_unpacked_whole(here: Site, coding: str) -> None:
    import tracemalloc

    pack = gzip.compress if coding == "gzip" else zlib.compress
    bomb = pack(bytes(200_000_000), 9)
    assert len(bomb) < 250_000
    here.pages["/"] = Page(bomb, headers={**TEXT, "content-encoding": coding})
    tracemalloc.start()
    with pytest.raises(Permanent, match="larger"):
        get(here, max_bytes=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


def test_packed_content_that_unpacks_to_nothing_ends_at_the_limit_too() -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n")
        while True:
            connection.sendall(gzip.compress(b"") * 100)

    with raw(endless) as site_, pytest.raises(Permanent, match="larger"):
        get(site_, max_bytes=10)


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", gzip.compress(b"hello " * 999)),
        ("x-gzip", gzip.compress(b"hello " * 500) + gzip.compress(b"hello " * 499) + b"\0" * 9),
        ("deflate", zlib.compress(b"hello " * 999)),
        ("deflate", _raw_deflate(b"hello " * 999)),
        ("identity", b"hello " * 999),
    ],
)
def test_packed_content_is_unpacked(here: Site, coding: str, packed: bytes) -> None:
    here.pages["/"] = Page(packed, headers={**TEXT, "content-encoding": coding})
    assert get(here, max_bytes=6 * 999) == b"hello " * 999


@pytest.mark.parametrize(
    ("coding", "packed", "error"),
    [
        ("gzip", b"not gzip", Permanent),
        ("gzip", gzip.compress(b"hello" * 99)[:-5], Transient),
        ("br", b"x", Permanent),
        ("gzip, gzip", b"x", Permanent),
    ],
)
def test_broken_or_unknown_packing_is_an_error(here: Site, coding: str, packed: bytes, error: type[Exception]) -> None:
    here.pages["/"] = Page(packed, headers={**TEXT, "content-encoding": coding})
    with pytest.raises(error):
        get(here)


# Time


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    for _ in range(500):
        connection.sendall(b"x")
        time.sleep(0.02)  # the site's slowness, not a wait for something


def drip_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for n in itertools.count():
        connection.sendall(b"x-%d: y\r\n" % n)
        time.sleep(0.02)


def silent(connection: socket.socket) -> None:
    connection.recv(1)


@pytest.mark.parametrize("slow", [drip, drip_head, silent])
def test_a_slow_site_ends_when_the_whole_time_is_over(slow: Callable[[socket.socket], None]) -> None:
    with raw(slow) as site_:
        start_s = time.monotonic()
        with pytest.raises(TimedOut, match=r"127\.0\.0\.1:\d+: no whole answer within 0.3 s"):
            get(site_, timeout_s=0.3)
        assert 0.25 < time.monotonic() - start_s < 2


def test_a_request_that_nobody_takes_ends_in_time() -> None:
    with raw(lambda connection: time.sleep(0.6)) as site_, pytest.raises(TimedOut):
        get(site_, method="POST", body=bytes(30_000_000), timeout_s=0.3)


def test_a_handshake_that_doesnt_come_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        mute = Site(listening.getsockname()[1], "https")
        with pytest.raises(TimedOut, match="TLS handshake"):
            get(mute, timeout_s=0.3)


def test_someones_wish_ends_the_waiting() -> None:
    asked = 0

    def checkpoint() -> None:
        nonlocal asked
        asked += 1
        if asked > 2:
            raise Cancelled

    with raw(silent) as site_:
        start_s = time.monotonic()
        with pytest.raises(Cancelled):
            get(site_, timeout_s=30, checkpoint=checkpoint)
        assert time.monotonic() - start_s < 3


# Types, statuses, broken answers


@pytest.mark.parametrize("allowed", [["text/html"], ["application/*", "image/png"], []])
def test_another_content_type_is_refused_by_name(here: Site, allowed: list[str]) -> None:
    with pytest.raises(Permanent, match="its content type is text/plain, not one of"):
        get(here, content_types=allowed)
    here.pages["/none"] = Page(b"x", headers={})
    with pytest.raises(Permanent, match="not named"):
        get(here, "/none", content_types=["text/html"])


def test_an_allowed_content_type_passes_whatever_its_parameters(here: Site) -> None:
    here.pages["/"] = Page(b"x", headers={"content-type": "text/html;charset=x"})
    assert get(here, content_types=["text/*"]) == get(here, content_types=["text/html"]) == b"x"


@pytest.mark.parametrize("status", [*range(400, 432), 451, *range(500, 512), 599])
def test_a_status_is_the_same_error_as_in_the_engine(status: int) -> None:
    class Answered(Exception):
        status_code = status

    mine, engines = error_of_status(status, "a"), answers.classify(Answered())
    assert mine is not None and engines is not None
    assert (type(mine), mine.error_class) == (type(engines), engines.error_class)


@pytest.mark.parametrize(("status", "error"), [(429, RateLimited), (503, Transient)])
def test_retry_after_is_kept_as_seconds_also_when_it_is_a_date(here: Site, status: int, error: type[Transient]) -> None:
    here.pages["/"] = Page(status=status, headers={"retry-after": "7"})
    with pytest.raises(error, match=f"answered {status}") as refused:
        get(here)
    assert refused.value.retry_after_s == 7
    here.pages["/"] = Page(status=status, headers={"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"})
    with pytest.raises(error) as refused:
        get(here)
    assert refused.value.retry_after_s == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
        b"HTTP/1.1 100 C\r\n\r\n" * 20, b"HTTP/1.1 101 S\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", b"\0" * 99,
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    ],
)  # fmt: skip
def test_an_answer_that_breaks_off_or_isnt_http_is_a_network_error(answer: bytes) -> None:
    with raw(lambda connection: connection.sendall(answer)) as broken, pytest.raises(Transient) as failed:
        get(broken)
    assert failed.value.error_class is ErrorClass.NETWORK and not isinstance(failed.value, TimedOut)


def test_a_closed_port_is_a_network_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(Transient, match="no connection"):
        fetch(
            f"http://127.0.0.1:{port}/",
            max_bytes=1,
            timeout_s=5,
            rules=Rules(endpoints=frozenset({("127.0.0.1", port)})),
        )


def test_a_head_has_no_body(here: Site) -> None:
    assert get(here, method="HEAD") == b""


def test_an_error_names_host_and_port_and_nothing_else_of_the_address(here: Site) -> None:
    with pytest.raises(Permanent) as refused:
        get(here, "/path-with-key?token=hunter2")
    assert str(refused.value) == f"127.0.0.1:{here.port} answered 404"


def test_a_post_returns_with_the_status_before_the_answer_ends() -> None:
    def half(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 202 Accepted\r\ncontent-length: 99999999999\r\nretry-after: 3\r\n\r\n")
        connection.recv(1)

    with raw(half) as slow:
        found = post(slow.url(), body=b"{}", headers={}, timeout_s=5, rules=slow.rules)
    assert (found.status, found.retry_after_s) == (202, 3)


def test_a_post_doesnt_follow_a_redirect(here: Site) -> None:
    here.pages["/"] = Page(status=307, headers={"location": "/elsewhere"})
    assert post(here.url(), body=b"{}", headers={}, timeout_s=5, rules=here.rules).status == 307
    assert len(here.seen) == 1


def test_a_refusal_that_comes_before_the_body_was_read_still_counts() -> None:
    def early(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        connection.close()  # with the body unread: a reset

    with raw(early) as site_:
        assert post(site_.url(), body=bytes(5_000_000), headers={}, timeout_s=5, rules=site_.rules).status == 413

"""A program behind the proxy reaches what the rules admit and nothing else, whatever it is led to."""

import http.client
import socket
from collections.abc import Sequence

import pytest

from harness.kinds import Permanent, egress
from harness.kinds.egress import Rules
from tests.kinds.sites import Page, Site, raw, site

NOTHING = Rules()


def through(proxy: egress.Proxy, url: str, *, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    """Ask for a URL through the proxy, as a program does that knows it as its HTTP proxy."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    try:
        connection.request(method, url, body, {"Proxy-Authorization": "secret", "X-Kept": "1"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def tunnel(proxy: egress.Proxy, where: str) -> tuple[bytes, socket.socket]:
    """Ask for a tunnel; returns the answer's first line and the connection."""
    connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=20)
    connection.sendall(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer and (more := connection.recv(65_536)):
        answer += more
    return answer.partition(b"\r\n")[0], connection


def test_a_request_goes_to_the_site_without_what_was_meant_for_the_proxy(here: Site) -> None:
    here.pages["/form"] = Page(b"taken")
    with egress.open_proxy(most_bytes=1_000_000, allowed=here.rules) as proxy:
        assert through(proxy, here.url()) == (200, b"hello")
        assert through(proxy, here.url("/form?a=1"), method="POST", body=b"x" * 200_000) == (200, b"taken")
    first, second = here.seen
    assert (first.method, first.path, first.headers["x-kept"]) == ("GET", "/", "1")
    assert "proxy-authorization" not in first.headers and first.headers["host"] == f"127.0.0.1:{here.port}"
    assert (second.path, second.body) == ("/form?a=1", b"x" * 200_000)


def test_a_tunnel_carries_what_it_gets_both_ways(here: Site) -> None:
    with egress.open_proxy(most_bytes=1_000_000, allowed=here.rules) as proxy:
        line, connection = tunnel(proxy, f"127.0.0.1:{here.port}")
        with connection:
            assert b" 200 " in line
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b""
            while more := connection.recv(65_536):
                answer += more
        assert answer.endswith(b"hello")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "[::1]", "169.254.169.254", "10.0.0.1", "localhost", "[::ffff:127.0.0.1]"]
)
def test_what_isnt_public_is_refused_as_a_page_and_as_a_tunnel(here: Site, host: str) -> None:
    def private(name: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    with egress.open_proxy(most_bytes=1_000_000, allowed=NOTHING, resolver=private) as proxy:
        status, body = through(proxy, f"http://{host}:80/")
        assert status == 403 and b"not allowed" in body
        line, connection = tunnel(proxy, f"{host}:443")
        connection.close()
        assert b" 403 " in line
        assert len(proxy.refused) == 2 and all("not allowed" in why for why in proxy.refused.values())
    assert not here.seen


def test_the_address_that_was_judged_is_the_one_that_is_connected_to(here: Site) -> None:
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    def changing(name: str, port: int) -> Sequence[str]:
        return next(answers)

    allowed = Rules(endpoints=frozenset({("127.0.0.1", here.port)}))
    with egress.open_proxy(most_bytes=1_000_000, allowed=allowed, resolver=changing) as proxy:
        assert through(proxy, f"http://changing.example:{here.port}/") == (200, b"hello")
        assert through(proxy, f"http://changing.example:{here.port}/")[0] == 403


def test_all_is_cut_when_more_bytes_came_than_may(here: Site) -> None:
    here.pages["/large"] = Page(bytes(500_000))
    with egress.open_proxy(most_bytes=100_000, allowed=here.rules) as proxy:
        with pytest.raises(http.client.IncompleteRead):
            through(proxy, here.url("/large"))
        assert proxy.spent


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\r\n\r\n",
        b"GET ftp://a.example/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"CONNECT : HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_of_a_proxy_gets_nowhere(line: bytes) -> None:
    with (
        egress.open_proxy(most_bytes=1_000, allowed=NOTHING) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as connection,
    ):
        connection.sendall(line + b"\r\n\r\n")
        assert connection.recv(65_536)[:12] in (b"", b"HTTP/1.1 403")


def test_a_site_that_isnt_there_is_a_bad_gateway() -> None:
    with raw(lambda connection: None) as gone:
        allowed = gone.rules
    with egress.open_proxy(most_bytes=1_000, allowed=allowed) as proxy:
        assert through(proxy, gone.url())[0] == 502
        assert not proxy.refused


def test_an_address_is_judged_without_being_asked() -> None:
    with site() as found:
        assert egress.check(found.url("/a b".replace(" ", "%20")), timeout_s=5, rules=found.rules) == found.url(
            "/a%20b"
        )
        with pytest.raises(Permanent, match="a loopback address"):
            egress.check("http://127.0.0.1/", timeout_s=5, rules=NOTHING)
    assert not found.seen

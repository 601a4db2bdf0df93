"""An exchange goes to the address that was checked, hop by hop, and credentials stay with their origin."""

import socket
import threading
import time
from pathlib import Path

import pytest

from harness.kinds import Permanent, TimedOut, Transient
from harness.kinds.egress import Rules, fetch
from harness.policy.errors import ErrorClass
from tests.kinds.sites import Page, Site, certified, get, site


def named(found: Site, *names: str) -> Rules:
    return Rules(endpoints=frozenset((name, found.port) for name in names))


def test_an_answer_comes_with_its_status_type_and_headers(here: Site) -> None:
    here.pages["/a"] = Page(b"{}", headers={"Content-Type": "Application/JSON; charset=UTF-8", "X-A": "1"})
    found = fetch(here.url("/a?q=ä b".replace(" ", "%20")), max_bytes=2, timeout_s=5, rules=here.rules)
    assert (found.status, found.content, found.content_type, found.charset) == (200, b"{}", "application/json", "utf-8")
    assert found.headers["x-a"] == "1" and found.url == here.url("/a?q=%C3%A4%20b")
    assert here.seen[0].path == "/a?q=%C3%A4%20b" and here.seen[0].headers["host"] == f"127.0.0.1:{here.port}"


def test_a_body_is_sent_with_its_length_and_the_callers_headers(here: Site) -> None:
    get(here, method="POST", body=b"data", headers={"X-Key": "k", "Content-Type": "text/csv"})
    assert (here.seen[0].method, here.seen[0].body) == ("POST", b"data")
    assert (here.seen[0].headers["x-key"], here.seen[0].headers["content-type"]) == ("k", "text/csv")


@pytest.mark.parametrize("header", [("Host", "a"), ("Content-Length", "1"), ("a b", "c"), ("x", "a\r\nb"), ("x", "ä")])
def test_a_header_that_breaks_the_request_is_refused_by_name(here: Site, header: tuple[str, str]) -> None:
    with pytest.raises(Permanent, match="headers: "):
        get(here, headers=dict([header]))
    assert not here.seen


def test_a_proxy_of_the_environment_is_ignored(here: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert get(here) == b"hello"


def test_the_environment_allows_what_it_names(here: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Permanent, match=f"port {here.port}"):
        get(here, rules=None)
    monkeypatch.setenv("HARNESS_EGRESS_PORTS", str(here.port))
    with pytest.raises(Permanent, match="a loopback address"):
        get(here, rules=None)
    monkeypatch.setenv("HARNESS_EGRESS_ALLOW", "127.0.0.0/8")
    assert get(here, rules=None) == b"hello"
    monkeypatch.delenv("HARNESS_EGRESS_PORTS")
    monkeypatch.setenv("HARNESS_EGRESS_ALLOW", here.allow)
    assert get(here, rules=None) == b"hello"


# Names and rebinding


def test_a_name_is_looked_up_once_so_that_rebinding_finds_nothing_to_change(here: Site) -> None:
    asked: list[tuple[str, int]] = []
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])

    def rebinding(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return next(answers)

    url = here.url(host="rebind.example")
    found = fetch(url, max_bytes=9, timeout_s=5, rules=named(here, "rebind.example"), resolver=rebinding)
    assert found.content == b"hello" and asked == [("rebind.example", here.port)]
    assert here.seen[0].headers["host"] == f"rebind.example:{here.port}"
    with pytest.raises(Permanent, match="a metadata address"):
        fetch(url, max_bytes=9, timeout_s=5, rules=named(here, "rebind.example"), resolver=rebinding)


def test_a_name_that_turns_private_between_two_hops_is_refused_at_the_second(here: Site) -> None:
    here.pages["/again"] = Page(status=302, headers={"location": "/"})
    answers = iter(["127.0.0.1", "::1"])
    rules = Rules(endpoints=frozenset({("127.0.0.1", here.port)}), ports=frozenset({here.port}))
    with pytest.raises(Permanent, match="a loopback address"):
        fetch(
            here.url("/again", "turn.example"),
            max_bytes=9,
            timeout_s=5,
            rules=rules,
            resolver=lambda host, port: [next(answers)],
        )
    assert [one.path for one in here.seen] == ["/again"]


def test_the_next_address_of_a_name_is_tried_when_one_takes_no_connection(here: Site) -> None:
    rules = named(here, "two.example")
    resolver = lambda host, port: ["127.0.0.2", "127.0.0.1"]  # noqa: E731
    assert fetch(here.url(host="two.example"), max_bytes=9, timeout_s=5, rules=rules, resolver=resolver).content


def test_a_resolver_that_hangs_is_a_timeout() -> None:
    done = threading.Event()

    def hanging(host: str, port: int) -> list[str]:
        done.wait(10)
        return ["127.0.0.1"]

    start_s = time.monotonic()
    with pytest.raises(TimedOut, match=r"slow\.example: its name wasn't resolved within 0\.2 s"):
        fetch("http://slow.example/", max_bytes=1, timeout_s=0.2, rules=Rules(), resolver=hanging)
    assert time.monotonic() - start_s < 2
    done.set()


def test_a_name_that_doesnt_exist_is_a_network_error_that_names_it() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(Transient, match=r"none\.example: its name can't be resolved") as failed:
        fetch("http://none.example/", max_bytes=1, timeout_s=5, rules=Rules(), resolver=unknown)
    assert failed.value.error_class is ErrorClass.NETWORK


# TLS


def test_tls_names_and_verifies_the_host_though_the_connection_goes_to_an_address(tmp_path: Path) -> None:
    server, client = certified(tmp_path, "good.example", "127.0.0.1")
    with site(server) as secure:
        secure.pages["/"] = Page(b"secret")
        rules, resolver = named(secure, "good.example", "bad.example"), lambda host, port: ["127.0.0.1"]
        more = {"max_bytes": 9, "timeout_s": 5, "resolver": resolver}
        url = secure.url(host="good.example")
        assert fetch(url, rules=rules, tls=client, **more).content == b"secret"  # type: ignore[arg-type]  # shorthand
        assert secure.names == ["good.example"]
        assert get(secure, tls=client) == b"secret"
        with pytest.raises(Permanent, match=r"bad\.example:\d+: its certificate isn't valid for it") as refused:
            fetch(secure.url(host="bad.example"), rules=rules, tls=client, **more)  # type: ignore[arg-type]  # shorthand
        assert refused.value.error_class is ErrorClass.PERMISSION
        with pytest.raises(Permanent, match="certificate"):
            fetch(url, rules=rules, **more)  # type: ignore[arg-type]  # the system doesn't trust it
        assert [one.path for one in secure.seen] == ["/", "/"]


def test_a_context_that_verifies_nothing_is_refused(here: Site, tmp_path: Path) -> None:
    _, client = certified(tmp_path, "a.example")
    client.check_hostname = False
    with pytest.raises(ValueError, match="must verify"):
        get(here, tls=client)


def test_a_redirect_from_https_to_http_is_not_followed(tmp_path: Path, here: Site) -> None:
    server, client = certified(tmp_path, "127.0.0.1")
    with site(server) as secure:
        secure.pages["/"] = Page(status=302, headers={"location": here.url()})
        rules = Rules(endpoints=secure.rules.endpoints | here.rules.endpoints)
        with pytest.raises(Permanent, match="from https to http"):
            get(secure, tls=client, rules=rules)
    assert not here.seen


# Redirects


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://[::1]/", "http://2130706433/",
        "http://0x7f.0.0.1/", "http://0177.1/", "http://[::ffff:10.0.0.1]/", "//192.168.0.1/", "https://10.0.0.1/",
        "http://100.64.0.1/", "http://localhost/", "http://127.0.0.1:22/", "http://0/",
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_a_refused_address_is_not_followed(here: Site, status: int, location: str) -> None:
    here.pages["/go"] = Page(status=status, headers={"location": location})
    with pytest.raises(Permanent) as refused:
        get(here, "/go")
    assert refused.value.error_class is ErrorClass.PERMISSION
    assert len(here.seen) == 1


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://u:hunter2@127.0.0.1/", "http://a\\b/", "ftp://a/"])
def test_a_redirect_to_what_isnt_plain_http_is_not_followed(here: Site, location: str) -> None:
    here.pages["/go"] = Page(status=302, headers={"location": location})
    with pytest.raises(Permanent) as refused:
        get(here, "/go")
    assert "hunter2" not in str(refused.value)


def test_redirects_are_followed_up_to_a_number_of_hops(here: Site) -> None:
    here.pages |= {f"/{n}": Page(b"large" * 99, 302, {"location": f"../{n + 1}?a=1#x"}) for n in range(5)}
    here.pages["/5"] = Page(b"there")
    found = fetch(here.url("/0"), max_bytes=5, timeout_s=5, rules=here.rules)
    assert (found.content, found.url) == (b"there", here.url("/5?a=1"))
    with pytest.raises(Permanent, match="more than 4 redirects"):
        get(here, "/0", max_hops=4)
    here.pages["/round"] = Page(status=302, headers={"location": "/round"})
    with pytest.raises(Permanent, match="more than 5 redirects"):
        get(here, "/round")


def test_credentials_stay_with_their_origin(here: Site) -> None:
    headers = {"Authorization": "Bearer s", "Cookie": "a=b", "X-Api-Key": "s", "Accept": "text/plain"}
    with site() as other:
        other.pages["/"] = Page(b"other")
        here.pages["/same"] = Page(status=302, headers={"location": "/away"})
        here.pages["/away"] = Page(status=302, headers={"location": other.url()})
        rules = Rules(endpoints=here.rules.endpoints | other.rules.endpoints)
        assert get(here, "/same", headers=headers, rules=rules) == b"other"
        assert here.seen[1].headers["authorization"] == "Bearer s"
        assert not {"authorization", "cookie", "x-api-key"} & set(other.seen[0].headers)
        assert other.seen[0].headers["accept"] == "text/plain"
        # A body doesn't leave its origin either.
        here.pages["/307"] = Page(status=307, headers={"location": other.url()})
        with pytest.raises(Permanent, match="another origin"):
            get(here, "/307", method="POST", body=b"x", rules=rules)
        assert len(other.seen) == 1


def test_a_post_that_is_told_to_see_other_becomes_a_get(here: Site) -> None:
    here.pages["/made"] = Page(status=303, headers={"location": "/"})
    assert get(here, "/made", method="POST", body=b"x", headers={"content-type": "a/b"}) == b"hello"
    assert (here.seen[1].method, here.seen[1].body) == ("GET", b"") and "content-type" not in here.seen[1].headers

"""What stands at an address comes as text or base64, fits a row, and leads nowhere private."""

import base64
import hashlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from harness.kinds import Cancelled, Context, Permanent
from harness.policy.errors import ErrorClass
from tasks.tool_http_get.kind import BINARY_MAX_BYTES, Get, http_get
from tests.kinds.sites import Page, Site, raw, site


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site() as found:
        monkeypatch.setenv("HARNESS_EGRESS_ALLOW", found.allow)
        yield found


def test_a_page_comes_as_text_with_its_hash(alone: Any, here: Site) -> None:
    content = "Grüße".encode("latin-1")
    here.pages["/"] = Page(content, headers={"content-type": "text/html; charset=ISO-8859-1"})
    ctx = alone()
    found = http_get(ctx, Get(url=here.url(), accept="text/html"))
    assert (found.status, found.text, found.base64, found.truncated) == (200, "Grüße", None, False)
    assert (found.bytes, found.sha256) == (5, hashlib.sha256(content).hexdigest())
    assert ctx.calls == ["tool:http"] and here.seen[0].headers["accept"] == "text/html"
    assert "authorization" not in here.seen[0].headers


@pytest.mark.parametrize("charset", ["nonsense", "zlib", "base64", "undefined", "idna", "\x00", "utf-8"])
def test_an_odd_charset_is_read_as_utf8(ctx: Context, here: Site, charset: str) -> None:
    here.pages["/"] = Page(
        "é\0".encode(), headers={"content-type": f"text/plain; charset={charset}".replace("\0", "?")}
    )
    assert http_get(ctx, Get(url=here.url())).text == "é"


def test_what_isnt_text_is_refused_unless_asked_for_and_then_comes_as_base64(ctx: Context, here: Site) -> None:
    here.pages["/"] = Page(bytes(range(256)), headers={"content-type": "image/png"})
    with pytest.raises(Permanent, match="image/png"):
        http_get(ctx, Get(url=here.url()))
    found = http_get(ctx, Get(url=here.url(), content_types=["image/*"]))
    assert found.text is None and base64.b64decode(found.base64 or "") == bytes(range(256))
    here.pages["/"] = Page(bytes(BINARY_MAX_BYTES + 1), headers={"content-type": "image/png"})
    with pytest.raises(Permanent, match="fit a result"):
        http_get(ctx, Get(url=here.url(), content_types=["image/png"]))


@pytest.mark.parametrize("letter", ["a", '"', "\x01", "é", "\U0001f600"])
def test_a_long_text_is_cut_so_that_the_result_fits_a_row(ctx: Context, here: Site, letter: str) -> None:
    content = (letter * 300_000).encode()
    here.pages["/"] = Page(content, headers={"content-type": "text/plain; charset=utf-8"})
    found = http_get(ctx, Get(url=here.url(), max_bytes=2_000_000))
    assert found.truncated and found.bytes == len(content)
    assert len(found.model_dump_json()) < 256 * 1024


def test_a_refused_address_fails_the_task_at_once_and_names_the_class(ctx: Context, here: Site) -> None:
    here.pages["/go"] = Page(status=302, headers={"location": "http://169.254.169.254/latest/meta-data/"})
    for url, named in [(here.url("/go"), "metadata"), ("http://[::1]/", "loopback"), ("http://10.0.0.1/", "private")]:
        with pytest.raises(Permanent, match=f"a {named} address") as refused:
            http_get(ctx, Get(url=url))
        assert refused.value.error_class is ErrorClass.PERMISSION


def test_a_cancelled_task_doesnt_wait_for_a_silent_site(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = alone()

    def silent(connection: Any) -> None:
        ctx.stop = True
        connection.recv(1)

    with raw(silent) as mute:
        monkeypatch.setenv("HARNESS_EGRESS_ALLOW", mute.allow)
        start_s = time.monotonic()
        with pytest.raises(Cancelled):
            http_get(ctx, Get(url=mute.url(), timeout_s=30))
        assert time.monotonic() - start_s < 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", ""),
        ("accept", "a\r\nb"),
        ("max_bytes", 0),
        ("max_bytes", 20_000_000),
        ("timeout_s", 0),
        ("timeout_s", 61),
        ("content_types", []),
        ("content_types", ["Text/HTML"]),
        ("content_types", ["*"]),
        ("headers", {"Authorization": "x"}),
    ],
)
def test_a_wrong_field_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        Get.model_validate({"url": "http://a.example/", field: value})
    assert refused.value.errors()[0]["loc"][0] == field

"""Pages are opened, clicked through, read and pictured; what hangs, hides or leads to private places ends clearly."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from harness.kinds import Cancelled, Permanent, TimedOut, Transient
from tasks.browser_visit import kind, tree
from tasks.browser_visit.kind import visit
from tasks.browser_visit.payload import Visit
from tests.kinds.sites import Page, Site, raw, site

HTML = {"content-type": "text/html; charset=utf-8"}
SHOP = """<!doctype html><title>Shop</title><h1>Our shop</h1><ul><li>bolts</li><li>nuts</li></ul>
<a id=next href=/order>order</a><form action=/done><input name=who><button>send</button></form>"""
ORDER = "<!doctype html><title>Order</title><p class=price data-eur=7>Seven euros</p><p>Thanks</p>"

needs_browser = pytest.mark.skipif(kind.missing() is not None, reason=str(kind.missing()))


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site() as found:
        monkeypatch.setenv("HARNESS_EGRESS_ALLOW", found.allow)
        found.pages |= {"/": Page(SHOP.encode(), headers=HTML), "/order": Page(ORDER.encode(), headers=HTML)}
        yield found


def asked(url: str, *actions: dict[str, Any], **more: Any) -> Visit:
    return Visit.model_validate({"url": url, "actions": list(actions)} | more)


def left_over() -> list[str]:
    """What still runs of visits, wherever in the tree of processes: each names the visit's folder."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.status() != psutil.STATUS_ZOMBIE and any("harness-visit-" in part for part in one.cmdline()):
                found.append(one.name())
    return found


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if "tasks.browser_visit.child" in one.cmdline()]


@needs_browser
def test_a_visit_clicks_through_reads_and_keeps_pictures(alone: Any, shop: Site) -> None:
    ctx = alone()
    found = visit(
        ctx,
        asked(
            shop.url(),
            {"do": "extract", "name": "goods", "selector": "li", "every": True},
            {"do": "screenshot", "name": "shop"},
            {"do": "click", "selector": "#next"},
            {"do": "wait", "selector": ".price"},
            {"do": "extract", "name": "price", "selector": ".price", "attribute": "data-eur"},
            {"do": "screenshot", "name": "order", "whole": True},
        ),
    )
    assert (found.url, found.status, found.title) == (shop.url("/order"), 200, "Order")
    assert found.extracted == {"goods": ["bolts", "nuts"], "price": "7"} and "Seven euros" in found.text
    assert [one.name for one in found.screenshots] == ["shop", "order"]
    for one in found.screenshots:
        with ctx.artifacts.open(one.artifact_id) as picture:
            assert picture.read(8) == b"\x89PNG\r\n\x1a\n"
    assert ctx.steps == ["visit"] and "actions[2] (click)\n" in ctx.shown
    assert not left_over()


@needs_browser
def test_a_form_is_filled_and_sent(alone: Any, shop: Site) -> None:
    shop.pages["/done"] = Page(ORDER.encode(), headers=HTML)
    found = visit(
        alone(),
        asked(
            shop.url(),
            {"do": "fill", "selector": "[name=who]", "text": "Ada & Co"},
            {"do": "press", "selector": "[name=who]", "key": "Enter"},
            {"do": "wait", "selector": ".price"},
        ),
    )
    assert found.title == "Order" and shop.seen[-1].path.startswith("/done")
    assert "who=Ada+%26+Co" in next(one.path for one in shop.seen if one.path.startswith("/done"))


@needs_browser
def test_a_page_that_never_loads_is_a_time_out_and_nothing_of_it_goes_on(
    alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def silent(connection: socket.socket) -> None:
        over.wait(60)

    with raw(silent) as mute:
        monkeypatch.setenv("HARNESS_EGRESS_ALLOW", mute.allow)
        with pytest.raises(TimedOut, match=r"127\.0\.0\.1:\d+: the page didn't load within 1 s"):
            visit(alone(), asked(mute.url(), load_s=1))
        with pytest.raises(TimedOut, match="deadline_s: the visit isn't over after 2 s; it was killed"):
            visit(alone(), asked(mute.url(), load_s=60, deadline_s=2))
        over.set()
    assert not left_over()


@needs_browser
def test_a_wish_ends_a_visit_at_once(alone: Any, shop: Site) -> None:
    ctx = alone()
    shown = ctx.emit

    def emit(text: str) -> None:
        shown(text)
        ctx.stop = True

    ctx.emit = emit
    with pytest.raises(Cancelled):
        visit(ctx, asked(shop.url(), {"do": "wait", "selector": "#never"}, find_s=60))
    assert not left_over()


@needs_browser
def test_a_browser_that_is_killed_is_tried_again(alone: Any, shop: Site) -> None:
    ctx = alone()

    def emit(text: str) -> None:
        for one in children():
            tree.kill(one.pid)

    ctx.emit = emit
    with pytest.raises(Transient, match="the browser's process ended"):
        visit(ctx, asked(shop.url(), {"do": "wait", "selector": "#never"}, find_s=60))


@needs_browser
def test_private_places_are_refused_also_by_redirect_link_script_and_file(alone: Any, shop: Site) -> None:
    with site() as private:
        private.pages["/"] = Page(b"secret")
        there = private.url()
        shop.pages["/away"] = Page(status=302, headers={"location": there})
        shop.pages["/link"] = Page(f"<a href={there}>x</a>".encode(), headers=HTML)
        script = f"fetch('{there}').then(r => r.text()).catch(e => 'no').then(t => document.body.append(t + '!'))"
        inside = f"<body><img src={there}><iframe src=file:///etc/passwd></iframe><script>{script}</script></body>"
        shop.pages["/script"] = Page(inside.encode(), headers=HTML)
        for visited in (
            asked(there),
            asked(shop.url("/away")),
            asked(shop.url("/link"), {"do": "click", "selector": "a"}),
            asked(shop.url("/"), {"do": "open", "url": "http://169.254.169.254/latest/"}),
        ):
            with pytest.raises(Permanent, match="which is not allowed") as refused:
                visit(alone(), visited)
            assert refused.value.error_class == "permission"
        found = visit(alone(), asked(shop.url("/script"), {"do": "wait", "selector": "text=!"}))
        assert "no!" in found.text and "secret" not in found.text
        assert any(str(private.port) in one for one in found.refused)
        assert not private.seen
    with pytest.raises(Permanent, match="must begin with http"):
        visit(alone(), asked("file:///etc/passwd"))


@needs_browser
def test_what_a_selector_doesnt_find_fails_naming_the_action(alone: Any, shop: Site) -> None:
    with pytest.raises(Permanent, match=r"actions\[0\] \(click\): nothing that '#gone' names within 0.3 s"):
        visit(alone(), asked(shop.url(), {"do": "click", "selector": "#gone"}, find_s=0.3))
    with pytest.raises(Permanent, match="answered 404"):
        visit(alone(), asked(shop.url("/nowhere")))


@needs_browser
def test_a_picture_that_waits_for_a_font_for_ever_is_a_time_out_and_too_much_text_is_refused(
    alone: Any, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def silent(connection: socket.socket) -> None:
        over.wait(60)

    with raw(silent) as mute:
        monkeypatch.setenv("HARNESS_EGRESS_ALLOW", f"{shop.allow},{mute.allow}")
        load = f"document.fonts.add(new FontFace('x', 'url({mute.url()})')); document.fonts.load('9px x')"
        paragraphs = f"<p>{'€' * 20_000}</p>" * 200
        body = f"<body style='font-family: x'>{paragraphs}<script>onload = () => {{ {load} }}</script>"
        shop.pages["/font"] = Page(body.encode(), headers=HTML)
        with pytest.raises(TimedOut, match=r"actions\[0\] \(screenshot\): no picture within 1 s"):
            visit(alone(), asked(shop.url("/font"), {"do": "screenshot"}, find_s=1))
        over.set()
        much = {"do": "extract", "name": "all", "selector": "p", "every": True}
        with pytest.raises(Permanent, match=r"actions: what is extracted is larger than"):
            visit(alone(), asked(shop.url("/font"), much))


@needs_browser
def test_nothing_of_the_workers_environment_gets_to_the_browser(
    alone: Any, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_API_KEY", "a-secret-of-the-worker")
    ctx, seen = alone(), list[list[str]]()

    def emit(text: str) -> None:
        below = [below for one in children() for below in (one, *one.children(recursive=True))]
        seen.append([key for one in below for key in one.environ()])

    ctx.emit = emit
    visit(ctx, asked(shop.url()))
    assert seen and seen[0] and "LLM_API_KEY" not in seen[0]


def test_where_no_browser_is_the_task_says_how_to_get_one(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        Permanent, match=r"(apt-get install chromium|pip install).* where the worker of pool browser runs"
    ):
        visit(alone(), asked("http://a.example/"))


@pytest.mark.parametrize(
    "actions",
    [
        [{"do": "run", "script": "x"}],
        [{"do": "click"}],
        [{"do": "screenshot", "name": "../x"}],
        [{"do": "wait", "selector": "a"}] * 51,
    ],
)
def test_a_wrong_action_is_refused_at_the_door(actions: list[dict[str, Any]]) -> None:
    with pytest.raises(ValidationError):
        asked("http://a.example/", *actions)

"""A small shop on this machine: found, clicked through, ordered from, pictured and read by a browser."""

import http.server
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from harness.ops.examples.example import Example, Outcome, Player
from harness.ops.local import browser

_HEAD = "<!doctype html><meta charset=utf-8><style>body{font:18px system-ui;margin:3rem}li{margin:.5rem 0}</style>"
PAGES = {
    "/": f"{_HEAD}<title>Hardware</title><h1>Hardware</h1><p>Everything that holds things together.</p>"
    "<a href=/goods>What we have</a>",
    "/goods": f"{_HEAD}<title>Goods</title><h1>What we have</h1><ul><li>Bolts, 4 euros</li><li>Nuts, 2 euros</li>"
    "<li>Washers, 1 euro</li></ul><form action=/thanks><label>How many nuts? <input name=nuts></label> "
    "<button>Order</button></form>",
    "/thanks": f"{_HEAD}<title>Thanks</title><h1>Thank you</h1><p class=sum>Your nuts are on their way.</p>",
}


class _Shop(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = PAGES.get(self.path.split("?")[0])
        body = (page or "not here").encode()
        self.send_response(404 if page is None else 200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def _around() -> Iterator[Mapping[str, str]]:
    """The shop; the workers may reach it, and nothing else of this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Shop) as shop:
        thread = threading.Thread(target=shop.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield {"HARNESS_EGRESS_ALLOW": f"127.0.0.1:{shop.server_port}"}
        finally:
            shop.shutdown()
            thread.join()


def _missing() -> str | None:
    if find_spec("playwright") is None:
        return "playwright isn't installed: pip install 'harness-queue[browser]'"
    return None if browser.find() else "no Chromium is installed: apt-get install chromium"


def play(player: Player) -> Outcome:
    """Visit the shop, then try a place that is private."""
    shop = f"http://{player.around['HARNESS_EGRESS_ALLOW']}"
    actions = [
        {"do": "click", "selector": "text=What we have"},
        {"do": "extract", "name": "goods", "selector": "li", "every": True},
        {"do": "screenshot", "name": "goods"},
        {"do": "fill", "selector": "[name=nuts]", "text": "12"},
        {"do": "click", "selector": "button"},
        {"do": "wait", "selector": ".sum"},
        {"do": "screenshot", "name": "thanks"},
    ]
    task = player.submit("browser.visit", {"url": shop, "actions": actions}, title="order twelve nuts")
    refused = player.submit(
        "browser.visit", {"url": "http://169.254.169.254/latest/meta-data/"}, title="what it mustn't"
    )
    result = player.result(task)
    error = player.ended(refused)["error"] or {}
    return Outcome(
        lines=(
            f"at the end: {result['title']}, {result['text'].splitlines()[-1]}",
            f"the shop has: {'; '.join(result['extracted']['goods'])}",
            f"refused: {error.get('message')}",
        ),
        files=tuple(player.fetch(one["artifact_id"], f"{one['name']}.png") for one in result["screenshots"]),
        figures={"title": result["title"], "goods": result["extracted"]["goods"], "refused": error.get("class")},
    )


EXAMPLE = Example(
    name="browser",
    about="a site opened, clicked through, pictured and read by Chromium",
    play=play,
    missing=_missing,
    around=_around,
)

"""`python -m tasks.browser_visit.child FOLDER`: one visit, in a process of its own, with its own browser and proxy.

It reads the visit (JSON, one line) from stdin and writes lines of JSON to stdout: {"did": ..} while it goes on, last
{"result": ..} or {"failed": message, "as": class of error}. Pictures go into FOLDER. When stdin ends its asker is gone,
and so is all of this. The browser resolves no names and connects to the proxy alone, which judges each connection.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.kinds import egress, errors
from tasks.browser_visit import tree
from tasks.browser_visit.payload import Click, Extract, Fill, Open, Picture, Press, Visit, Wait

if TYPE_CHECKING:
    from playwright.sync_api import Page, Response

CARRIED_MOST_BYTES: Final = 200_000_000
TEXT_MOST_CHARS: Final = 30_000
EXTRACT_MOST_CHARS: Final = 20_000
EXTRACT_MOST: Final = 200
SETTLE_S: Final = 5.0  # for a page that a click leads to, if any
PROGRAM: Final = "HARNESS_BROWSER"  # the Chromium to run
UNBOXED: Final = "HARNESS_BROWSER_NO_SANDBOX"


class Failed(Exception):
    """The visit ends here. `as_`: which error of work it is."""

    def __init__(self, message: str, as_: str = "permanent") -> None:
        super().__init__(message)
        self.as_ = as_


def main(arguments: list[str]) -> int:
    """Visit, and tell."""
    asked = sys.stdin.buffer.readline()
    threading.Thread(target=_die_with_the_asker, daemon=True).start()
    try:
        _tell({"result": _visit(Visit.model_validate_json(asked), Path(arguments[0]))})
    except Failed as error:
        _tell({"failed": str(error), "as": error.as_})
    return 0


def _die_with_the_asker() -> None:
    # By the descriptor: a buffered read would hold a lock that the interpreter wants at its end.
    while os.read(0, 4096):
        pass
    tree.kill(os.getpid())


def _tell(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _visit(visit: Visit, folder: Path) -> dict[str, Any]:
    from playwright.sync_api import Error, sync_playwright

    root = os.geteuid() == 0
    with egress.open_proxy(most_bytes=CARRIED_MOST_BYTES) as proxy, sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(
                executable_path=os.environ[PROGRAM],
                # Loopback too goes through the proxy, and names are looked up by it alone.
                proxy={"server": f"http://127.0.0.1:{proxy.port}", "bypass": "<-loopback>"},
                # Chromium refuses its own sandbox to root.
                chromium_sandbox=not root and not os.environ.get(UNBOXED),
                args=[
                    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                    "--disable-quic",
                    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
                    "--disable-dev-shm-usage",
                ],
            )
        except Error as error:
            raise Failed(f"the browser doesn't start: {_first(error)}", "transient") from None
        context = browser.new_context(
            viewport={"width": visit.width, "height": visit.height},
            accept_downloads=False,
            service_workers="block",
        )
        context.set_default_timeout(visit.find_s * 1000)
        context.set_default_navigation_timeout(visit.load_s * 1000)
        walk = _Walk(visit, context.new_page(), proxy, folder)
        try:
            return walk.whole()
        except Error as error:
            raise Failed(f"the browser broke off: {_first(error)}", "transient") from None
        finally:
            browser.close()


class _Walk:
    """One page on its way through the actions."""

    def __init__(self, visit: Visit, page: "Page", proxy: egress.Proxy, folder: Path) -> None:
        self._visit = visit
        self._page = page
        self._proxy = proxy
        self._folder = folder
        self._status = 0
        self._extracted: dict[str, str | list[str]] = {}
        self._pictures: list[str] = []
        page.on("response", self._see)

    def whole(self) -> dict[str, Any]:
        self._open(self._visit.url)
        for number, action in enumerate(self._visit.actions):
            self._do(f"actions[{number}] ({action.do})", action)
        text = self._page.locator("body").inner_text() if self._page.locator("body").count() else ""
        return {
            "url": self._page.url,
            "status": self._status,
            "title": _fit(self._page.title())[:300],
            "text": _fit(text)[:TEXT_MOST_CHARS],
            "truncated": len(text) > TEXT_MOST_CHARS,
            "extracted": self._extracted,
            "pictures": self._pictures,
            "refused": sorted(self._proxy.refused),
        }

    def _do(self, at: str, action: Any) -> None:
        from playwright.sync_api import Error
        from playwright.sync_api import TimeoutError as NotInTime

        found = self._page.locator(getattr(action, "selector", "html")).first
        try:
            match action:
                case Open(url=url):
                    self._open(url)
                case Click():
                    found.click()
                    self._settle(at)
                case Fill(text=text):
                    found.fill(text)
                case Press(key=key):
                    found.press(key)
                    self._settle(at)
                case Wait():
                    found.wait_for()
                case Picture(name=name, whole=whole):
                    self._picture(name, whole=whole)
                case Extract():
                    self._extracted[action.name] = self._read(action)
        except NotInTime:
            if isinstance(action, Picture):
                raise Failed(f"{at}: no picture within {self._visit.find_s:g} s (find_s)", "timed_out") from None
            raise Failed(f"{at}: nothing that {action.selector!r} names within {self._visit.find_s:g} s") from None
        except Error as error:
            raise Failed(f"{at}: {_first(error)}") from None
        _tell({"did": at})

    def _see(self, response: "Response") -> None:
        if response.request.is_navigation_request() and response.frame == self._page.main_frame:
            self._status = response.status

    def _open(self, url: str) -> None:
        from playwright.sync_api import Error
        from playwright.sync_api import TimeoutError as NotInTime

        try:
            url = egress.check(url, timeout_s=self._visit.load_s)
        except errors.WorkError as error:
            raise _failed(error) from None
        host = url.split("/")[2]
        try:
            self._page.goto(url, wait_until="load")
        except NotInTime:
            raise Failed(f"{host}: the page didn't load within {self._visit.load_s:g} s", "timed_out") from None
        except Error as error:
            self._raise_refused()
            raise Failed(f"{host}: {_first(error)}", "transient") from None
        self._judge(host)
        _tell({"did": f"opened {host}"})

    def _settle(self, at: str) -> None:
        """Wait for the page that a click or a key may have led to; one that goes on loading is taken as it is."""
        from playwright.sync_api import TimeoutError as NotInTime

        try:
            self._page.wait_for_load_state("load", timeout=min(SETTLE_S, self._visit.load_s) * 1000)
        except NotInTime:
            return
        self._judge(f"{at}: {self._page.url.split('/')[2] if '/' in self._page.url else self._page.url}")

    def _judge(self, host: str) -> None:
        """Raises: Failed when the page is a refusal of the proxy, or an error of its server."""
        if self._status == 403:
            self._raise_refused()
        error = egress.error_of_status(self._status, host) if self._status >= 400 else None
        if error is not None:
            raise _failed(error)

    def _raise_refused(self) -> None:
        """Raises: Failed when the page's own host is one that the proxy refused."""
        for named, why in self._proxy.refused.items():
            host = named.removeprefix("http://").split("/")[0].removesuffix(":443").removesuffix(":80")
            if f"//{host}" in self._page.url or not self._page.url.startswith("http"):
                raise Failed(why, "permission")

    def _picture(self, name: str, *, whole: bool) -> None:
        if name in self._pictures:
            raise Failed(f"actions: two screenshots are called {name!r}")
        self._page.screenshot(path=self._folder / f"{name}.png", full_page=whole)
        self._pictures.append(name)

    def _read(self, action: Extract) -> str | list[str]:
        matches = self._page.locator(action.selector)
        matches.first.wait_for(state="attached")
        number = min(matches.count(), EXTRACT_MOST) if action.every else 1
        texts = []
        for one in range(number):
            place = matches.nth(one)
            text = place.get_attribute(action.attribute) if action.attribute else place.inner_text()
            texts.append(_fit(text or "")[:EXTRACT_MOST_CHARS])
        return texts if action.every else texts[0]


def _failed(error: errors.WorkError) -> Failed:
    match error:
        case errors.RateLimited():
            as_ = "rate_limited"
        case errors.TimedOut():
            as_ = "timed_out"
        case errors.Transient():
            as_ = "transient"
        case _:
            as_ = "permission" if error.error_class == "permission" else "permanent"
    return Failed(str(error), as_)


def _first(error: Exception) -> str:
    """The first line of what the driver says, without its call log."""
    return _fit(str(error)).splitlines()[0][:300] if str(error) else type(error).__name__


def _fit(text: str) -> str:
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

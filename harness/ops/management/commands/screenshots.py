"""`manage.py screenshots`: log in to a running stack and take pictures of its admin and its pages for docs/img.

At 1440 and 390 px, light and dark. The login is made for this and removed again. What a page's scripts or its policy
complain about is printed, and fails the command. Of tasks it takes the newest that failed after steps, if one did, and
its picture is as tall as it takes to show its line of states, steps and attempts. Of people's pages it takes a task in
each state that there is one in, and the operations page, whole.
"""

import json
import secrets
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.ops.local import addresses
from harness.ops.local.browser import Browser
from harness.ops.operators import told
from harness.store import people

ROW = "#result_list a[href*='/change/']"
WITH_STEPS = ".h-dead tr:has(.h-steps + .h-steps) a.h-what"
SHOWN_ID = "#result_list .h-id"
STATES = ("queued", "running", "waiting_approval", "paused", "succeeded", "failed_terminal", "cancelled")
LOOKS = ((1440, 900, False), (1440, 900, True), (390, 844, False), (390, 844, True))


class Command(BaseCommand):
    """Pictures of the admin."""

    help = "Take pictures of the admin of a running stack."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--url", help="the web process (default: this checkout's stack)")
        parser.add_argument("--out", type=Path, default=Path(settings.BASE_DIR) / "docs" / "img")
        parser.add_argument("--whole", action="store_true", help="the whole page, not only the window")

    def handle(self, *args: object, **options: Any) -> None:
        """Take them. Raises: CommandError."""
        url = options["url"] or addresses.load(Path(settings.BASE_DIR)).get("WEB_URL")
        if not url:
            raise CommandError("no stack runs here; start one with `manage.py stack up`, or name one with --url")
        name, password = f"camera-{secrets.token_hex(4)}", secrets.token_urlsafe(24)
        options["out"].mkdir(parents=True, exist_ok=True)
        with told(), Browser() as browser:
            people.add(name, password, group="operator")
            try:
                self._take(browser, url, name, password, options["out"], whole=options["whole"])
            finally:
                User.objects.filter(username=name).delete()
        if browser.errors:
            raise CommandError("the pages complained:\n" + "\n".join(sorted(set(browser.errors))))

    def _take(self, browser: Browser, url: str, name: str, password: str, out: Path, *, whole: bool) -> None:
        browser.look(width=1440, height=900, dark=False)
        browser.open(f"{url}/admin/login/")
        browser.picture(out / "admin-login-1440-light.png")
        browser.send_form({"username": name, "password": password})
        pages = {
            "overview": "/admin/",
            "tasks": "/admin/store/task/",
            "trace": "/admin/store/traceevent/",
            "keys": "/admin/store/apikey/",
            "pause": "/admin/store/pause/add/",
            "resources": "/admin/resources/",
            "letters": "/admin/dead-letters/",
            "letters-list": "/admin/dead-letters/list/",
            "bulk": "/admin/store/task/bulk/?verb=cancel&priority=2",
        }
        if redrive := self._first(browser, f"{url}/admin/dead-letters/", "a[href*='/dead-letters/redrive/?']"):
            pages["letters-redrive"] = redrive
            pages["letters-reason"] = redrive.replace("/redrive/", "/list/")
        task = (
            self._first(browser, f"{url}/admin/dead-letters/list/", WITH_STEPS)
            or self._first(browser, f"{url}/admin/store/task/?state=failed_terminal")
            or self._first(browser, f"{url}/admin/store/task/")
        )
        if task:
            pages["task"] = task
            if failed := self._first(browser, f"{url}/admin/store/task/?state=failed_terminal"):
                pages["redrive"] = failed.replace("/change/", "/do/redrive/")
        for state in ("running", "queued"):
            if "verb" not in pages and (live := self._first(browser, f"{url}/admin/store/task/?state={state}")):
                pages["verb"] = live.replace("/change/", "/do/cancel/")
        for width, height, dark in LOOKS:
            browser.look(width=width, height=height, dark=dark)
            for page, path in pages.items():
                browser.open(f"{url}{path}")
                if page == "task":
                    below = browser.run("document.querySelector('#trace').getBoundingClientRect().top + scrollY")
                    browser.look(width=width, height=max(height, int(below)), dark=dark)
                file = out / f"admin-{page}-{width}-{'dark' if dark else 'light'}.png"
                browser.picture(file, whole=whole)
                browser.look(width=width, height=height, dark=dark)
                over = browser.run("document.documentElement.scrollWidth - innerWidth")
                self.stdout.write(f"{file.name}: {path}" + (f" ({over} px past the edge)" if over and over > 0 else ""))
        self._take_pages(browser, url, out)

    def _take_pages(self, browser: Browser, url: str, out: Path) -> None:
        found = {state: self._first(browser, f"{url}/admin/store/task/?state={state}", SHOWN_ID) for state in STATES}
        pages = {f"task-{state}": f"/work/tasks/{task}/" for state, task in found.items() if task}
        pages["operations"] = "/operations/"
        for width, height, dark in LOOKS:
            browser.look(width=width, height=height, dark=dark)
            for page, path in pages.items():
                browser.open(f"{url}{path}")
                file = out / f"page-{page}-{width}-{'dark' if dark else 'light'}.png"
                browser.picture(file, whole=True)
                over = browser.run("document.documentElement.scrollWidth - innerWidth")
                self.stdout.write(f"{file.name}: {path}" + (f" ({over} px past the edge)" if over and over > 0 else ""))

    @staticmethod
    def _first(browser: Browser, url: str, which: str = "") -> str | None:
        browser.open(url)
        address = "getAttribute('href')" + ("" if which else "?.split('?')[0]")
        if which == SHOWN_ID:
            address = "textContent"
        found = browser.run(f"document.querySelector({json.dumps(which or ROW)})?.{address}")
        return str(found) if found else None

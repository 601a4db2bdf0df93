"""The pages on the real web process, for people of every group, links, and two tenants."""

import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from harness.web.pages import shared
from harness.web.pages.shared import PageLink
from tests.admin.conftest import House, house
from tests.dead_letters import public
from tests.web.conftest import Web, api, make_api, web

__all__ = ("api", "house", "make_api", "web")


class Looker:
    """Somebody with a browser that runs no scripts: cookies, pages, and buttons pressed as forms."""

    def __init__(self, http: httpx.Client, root: str) -> None:
        self.http = http
        self.root = root

    def path(self, task: uuid.UUID) -> str:
        return f"{self.root}/tasks/{task}/"

    def page(self, task: uuid.UUID) -> str:
        answer = self.http.get(self.path(task))
        assert answer.status_code == 200, answer.text
        return answer.text

    def button(self, task: uuid.UUID, verb: str) -> str:
        """Return the token of a button that is on the page."""
        found = re.search(rf'action="[^"]*/do/{verb}".*?name="once" value="([^"]+)"', self.page(task), re.DOTALL)
        assert found is not None, f"no button {verb}"
        return found[1]

    def press(self, task: uuid.UUID, verb: str, token: str | None = None, **said: str) -> httpx.Response:
        """Press a button, and go where it leads."""
        sent = {"once": self.button(task, verb) if token is None else token, **said}
        return self.http.post(f"{self.path(task)}do/{verb}", data=sent, follow_redirects=True)


@pytest.fixture
def lookers(house: House, web: Web) -> Iterator["Lookers"]:
    """Make people who look."""
    made = Lookers(house, web)
    yield made
    for one in made.open:
        one.close()


class Lookers:
    """People who look at pages, by login or by link."""

    def __init__(self, house: House, web: Web) -> None:
        self._house, self._web = house, web
        self.open: list[httpx.Client] = []

    def login(self, name: str) -> Looker:
        cookie = self._house.login(name).cookies["harness_session"].value
        return self._looker("/work", {"harness_session": cookie})

    def link(self, task: uuid.UUID, *, acts: bool = False, tenant: int | None = None) -> Looker:
        link = PageLink(tenant=tenant or self._house.ours, what="task", public_id=task, acts=acts, label="the auditors")
        return self._looker(f"/shared/{shared.made(link, now=datetime.now(UTC))}", {})

    def nobody(self) -> Looker:
        return self._looker("/work", {})

    def _looker(self, root: str, cookies: dict[str, str]) -> Looker:
        http = httpx.Client(base_url=self._web.url, cookies=cookies, headers={"Accept": "text/html"}, timeout=30)
        self.open.append(http)
        return Looker(http, root)


def submitted(house: House, kind: str = "noop.single", **more: Any) -> tuple[int, uuid.UUID]:
    """Submit a task of ours. Returns its number and its public id."""
    if "input" in more:
        more["input"] = json.dumps(more["input"])
    (task,) = house.stage.submit(kind, tenant=house.ours, **more)
    return task, public(house.stage, task)


def run(house: House) -> None:
    """Run what waits, as a worker does."""
    with house.stage.process(house.stage.add_session()) as process:
        house.stage.run_all(process)

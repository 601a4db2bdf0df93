"""The web process for the operations page, and people who have logged in without scripts."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.admin.conftest import PASSWORD, house  # noqa: F401  (the fixture)
from tests.web.conftest import Web, start_web

Enter = Callable[[str], httpx.Client]


@pytest.fixture(scope="module")
def served(root: Path, tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Web]:
    web = start_web(root, tmp_path_factory.mktemp("operations") / "web.log")
    yield web
    web.stop()


@pytest.fixture
def enter(served: Web) -> Iterator[Enter]:
    """Log in by name."""
    with ExitStack() as opened:

        def entered(name: str) -> httpx.Client:
            http = opened.enter_context(httpx.Client(base_url=served.url, timeout=30.0, follow_redirects=True))
            page = http.get("/admin/login/?next=/operations/").text
            token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
            assert token
            fields = {"csrfmiddlewaretoken": token[1], "username": name, "password": PASSWORD, "next": "/operations/"}
            http.post("/admin/login/", data=fields, headers={"Referer": f"{served.url}/admin/login/"})
            return http

        yield entered

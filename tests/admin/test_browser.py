"""The admin in a real browser: its scripts run under its policy, nothing complains, nothing leaves a narrow window."""

from pathlib import Path

import pytest

from harness.ops.local.browser import Browser, find
from tests.admin.conftest import PASSWORD, House
from tests.web.conftest import start_web

pytestmark = pytest.mark.skipif(find() is None, reason="no Chromium is installed (apt-get install chromium)")


def test_an_operator_logs_in_finds_a_task_and_cancels_it_with_two_clicks(
    house: House, root: Path, tmp_path: Path
) -> None:
    task = house.task()
    web = start_web(root, tmp_path / "web.log")
    try:
        with Browser() as browser:
            browser.look(width=1440, height=900, dark=False)
            browser.open(f"{web.url}/admin/")
            browser.send_form({"username": "operator", "password": PASSWORD})
            assert browser.run("location.pathname") == "/admin/"
            browser.open(f"{web.url}/admin/store/task/?state=queued")
            found = browser.run("document.querySelector('#result_list a[href*=\"/change/\"]').pathname")
            assert found == f"/admin/store/task/{task}/change/"
            assert browser.run("typeof Alpine") == "object"
            ground = "getComputedStyle(document.body).backgroundColor"
            light = browser.run(ground)
            for width, height, dark in ((390, 844, False), (390, 844, True)):
                browser.look(width=width, height=height, dark=dark)
                for path in ("/admin/", "/admin/store/task/", found, "/admin/store/pause/add/"):
                    browser.open(f"{web.url}{path}")
                    assert browser.run("document.documentElement.scrollWidth <= innerWidth"), (path, width)
            assert browser.run(ground) != light, "the scheme follows the system's"
            browser.open(f"{web.url}/admin/store/task/{task}/do/cancel/")
            # The first click, whose answer the browser drops for the second's.
            browser.run(
                "document.querySelector('[name=reason]').value = 'two clicks';"
                " fetch(location.href, {method: 'POST', body: new FormData(document.querySelector('.h-page form'))})"
                ".then(() => true)"
            )
            browser.send_form({"reason": "two clicks"})
            text = browser.run("document.body.innerText")
            assert "sent already" in text and "two clicks" in text
            assert browser.errors == []
    finally:
        web.stop()
    assert house.stage.events(task) == ["submit", "cancel"]


def test_pictures_are_taken_and_the_login_made_for_them_goes(house: House, root: Path, tmp_path: Path) -> None:
    from django.contrib.auth.models import User
    from django.core.management import call_command

    house.task()
    web = start_web(root, tmp_path / "web.log")
    try:
        call_command("screenshots", url=web.url, out=tmp_path / "img")
    finally:
        web.stop()
    pictures = sorted(path.name for path in (tmp_path / "img").iterdir())
    assert {f"admin-tasks-{width}-{scheme}.png" for width in (1440, 390) for scheme in ("light", "dark")} <= {*pictures}
    assert all((tmp_path / "img" / name).read_bytes().startswith(b"\x89PNG") for name in pictures)
    assert not User.objects.filter(username__startswith="camera-").exists()

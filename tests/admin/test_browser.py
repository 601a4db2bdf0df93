"""The admin in a real browser: its scripts run under its policy, nothing complains, nothing leaves a narrow window."""

import io
from pathlib import Path

import pytest

from harness.ops.local.browser import Browser, find
from tests.admin.conftest import PASSWORD, House
from tests.dead_letters import bury, with_steps
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
                for path in ("/admin/", "/admin/store/task/", found, "/admin/resources/", "/admin/store/override/add/"):
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


def test_an_operator_ticks_tasks_and_sends_dead_letters_again_in_wide_and_narrow_windows(
    house: House, root: Path, tmp_path: Path
) -> None:
    dead = bury(house.stage, house.stage.submit("noop.single", n=3, tenant=house.ours), "row {0} is odd, " * 9)
    first, second = house.stage.submit("noop.single", n=2, tenant=house.ours)
    web = start_web(root, tmp_path / "web.log")
    try:
        with Browser() as browser:
            browser.look(width=1440, height=900, dark=False)
            browser.open(f"{web.url}/admin/")
            browser.send_form({"username": "operator", "password": PASSWORD})
            redrive = browser.run(
                f"fetch('{web.url}/admin/dead-letters/').then(a => a.text()).then(t => new DOMParser()"
                ".parseFromString(t, 'text/html').querySelector('a[href*=\"/redrive/?\"]').getAttribute('href'))"
            )
            pages = (
                "/admin/dead-letters/",
                "/admin/dead-letters/list/",
                redrive,
                f"/admin/store/task/{dead[0]}/do/redrive/",
            )
            bulk = f"/admin/store/task/bulk/?verb=pause&task={first}"
            for width, dark in ((390, True), (1440, False)):
                browser.look(width=width, height=844, dark=dark)
                for path in (*pages, bulk, "/admin/store/task/?priority=2"):
                    browser.open(f"{web.url}{path}")
                    assert browser.run("document.documentElement.scrollWidth <= innerWidth"), (path, width)
            # The boxes stand in the list, outside the form that they belong to.
            browser.run(f"document.querySelector('.h-tick[value=\"{first}\"]').click()")
            browser.run("document.querySelector('#h-bulk-verb').value = 'pause'")
            sent = browser.run("new URLSearchParams(new FormData(document.querySelector('#h-bulk'))).toString()")
            assert sent == f"priority=2&verb=pause&task={first}"
            browser.open(f"{web.url}/admin/store/task/bulk/?{sent}")
            browser.send_form({"reason": "by hand"})
            assert "1 task done" in browser.run("document.body.innerText")
            browser.open(f"{web.url}{redrive}")
            browser.send_form({"reason": "mended"})
            assert "3 tasks sent again" in browser.run("document.body.innerText")
            assert browser.errors == []
    finally:
        web.stop()
    assert (house.stage.state(first), house.stage.state(second)) == ("paused", "queued")
    assert {house.stage.state(task) for task in dead} == {"queued"}


def test_pictures_are_taken_and_the_login_made_for_them_goes(house: House, root: Path, tmp_path: Path) -> None:
    from django.contrib.auth.models import User
    from django.core.management import call_command

    within, later = bury(house.stage, [house.task(), house.task()])
    with_steps(house.stage, within)
    said = io.StringIO()
    web = start_web(root, tmp_path / "web.log")
    try:
        call_command("screenshots", url=web.url, out=tmp_path / "img", stdout=said)
    finally:
        web.stop()
    assert within < later and f"admin-task-390-dark.png: /admin/store/task/{within}/change/\n" in said.getvalue()
    assert "past the edge" not in said.getvalue()
    pictures = sorted(path.name for path in (tmp_path / "img").iterdir())
    assert {f"admin-tasks-{width}-{scheme}.png" for width in (1440, 390) for scheme in ("light", "dark")} <= {*pictures}
    assert all((tmp_path / "img" / name).read_bytes().startswith(b"\x89PNG") for name in pictures)
    assert not User.objects.filter(username__startswith="camera-").exists()

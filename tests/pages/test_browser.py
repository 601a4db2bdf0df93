"""A task's page in a real browser: live, by its buttons, under its policy, in wide and narrow windows."""

import time
from pathlib import Path
from typing import Any

import pytest

from harness.ops.local.browser import Browser, find
from tests.admin.conftest import PASSWORD, House
from tests.pages.conftest import Lookers, run, submitted
from tests.pages.test_task import EVIL
from tests.web.conftest import Web

pytestmark = pytest.mark.skipif(find() is None, reason="no Chromium is installed (apt-get install chromium)")

PATIENCE_S = 60.0  # of a busy machine


def until(browser: Browser, script: str, what: str) -> Any:
    """Wait until a script gives something true, in the page."""
    end_s = time.monotonic() + PATIENCE_S
    while not (found := browser.run(script)):
        assert time.monotonic() < end_s, f"{what}: {browser.run('document.body.innerText')}"
        time.sleep(0.1)
    return found


def reads(text: str) -> str:
    return f"document.body.innerText.replaceAll('\\u00a0', ' ').includes({text!r})"


def test_work_is_followed_live_decided_and_its_result_read_without_a_reload(house: House, web: Web) -> None:
    number, task = submitted(house, "test.page_asks", input={"say": f"Send {EVIL} by which way?"})
    with Browser() as browser:
        browser.look(width=1440, height=900, dark=False)
        browser.open(f"{web.url}/work/tasks/{task}/")
        browser.send_form({"username": "ours-admin", "password": PASSWORD})
        assert browser.run("location.pathname") == f"/work/tasks/{task}/"
        until(browser, reads("Queued: next in your line"), "it waits")
        until(browser, "document.getElementById('live-mark').textContent === 'Live'", "it is live")
        browser.run("window.kept = document.querySelector('h1')")
        run(house)
        until(browser, reads("Waiting for a decision since"), "it asks")
        assert browser.run("document.title").startswith("Waiting for a decision")
        # What somebody types stays, whatever comes meanwhile.
        browser.run("document.getElementById('note').focus(); document.getElementById('note').value = 'as ever'")
        assert browser.run("document.getElementById('choose-2').textContent") == "on paper"
        browser.run("document.getElementById('choose-2').click(); document.getElementById('choose-2').click()")
        until(browser, reads("Your answer is taken"), "it is answered")
        until(browser, reads("waiting for a slot"), "it waits for a slot")
        run(house)
        until(browser, reads("Done at"), "it is done")
        until(browser, "document.querySelector('#task-result dd')?.textContent === 'on paper'", "its result")
        until(browser, "document.getElementById('live-mark').textContent === 'Ended'", "its stream has ended")
        assert browser.run("window.kept !== undefined"), "the page was not loaded anew"
        assert browser.errors == []
    assert house.stage.events(number).count("approve") == 1
    assert house.stage.one("SELECT note FROM approval WHERE task_id = %s", number) == "as ever"


def test_a_page_fits_narrow_and_wide_windows_in_both_schemes_and_its_buttons_are_reached_by_keyboard(
    house: House, lookers: Lookers, web: Web
) -> None:
    number, task = submitted(house)
    cookie = lookers.login("ours-admin").http.cookies["harness_session"]
    with Browser() as browser:
        browser.tell("Network.setCookie", name="harness_session", value=cookie, url=web.url)
        for width, dark in ((390, False), (390, True), (1440, True), (1440, False)):
            browser.look(width=width, height=844, dark=dark)
            browser.open(f"{web.url}/work/tasks/{task}/")
            assert browser.run("document.documentElement.scrollWidth <= innerWidth"), width
            low = browser.run("document.querySelector('.answers').getBoundingClientRect().bottom")
            assert low < 720, "state, answers and buttons stand within the first view"
        browser.run("document.getElementById('do-pause').focus()")
        browser.run("document.activeElement.form.requestSubmit(document.activeElement)")
        until(browser, reads("Paused by ours-admin"), "it is paused")
        until(browser, "document.getElementById('do-resume') !== null", "it can be resumed")
        assert browser.errors == []
    assert house.stage.events(number) == ["submit", "pause"]


def test_a_page_finds_its_way_back_when_the_web_process_was_away(
    house: House, root: Path, tmp_path: Path, lookers: Lookers
) -> None:
    from tests.web.conftest import start_web

    _, task = submitted(house)
    cookie = lookers.login("ours-admin").http.cookies["harness_session"]
    web = start_web(root, tmp_path / "web.log")
    port = web.url.rpartition(":")[2]
    with Browser() as browser:
        browser.tell("Network.setCookie", name="harness_session", value=cookie, url=web.url)
        browser.open(f"{web.url}/work/tasks/{task}/")
        until(browser, "document.getElementById('live-mark').textContent === 'Live'", "it is live")
        web.stop()
        run(house)
        again = start_web(root, tmp_path / "again.log", port=int(port))
        try:
            until(browser, reads("Done at"), "what happened meanwhile is on the page")
        finally:
            again.stop()

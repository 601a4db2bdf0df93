"""The operations page as the web process serves it: what it says of a system under pressure, and what buttons do."""

import re
import time
from pathlib import Path

import httpx
import pytest

from harness.ops.local.browser import Browser, find
from tests.admin.conftest import PASSWORD, House
from tests.pages.operations.busy import busy
from tests.pages.operations.conftest import Enter
from tests.web.conftest import Web


def text_of(page: str) -> str:
    """What a person reads."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).replace("\u00a0", " ").split())


def once_of(page: str) -> str:
    found = re.search(r'name="once" value="([^"]+)"', page)
    assert found
    return found[1]


def when(http: httpx.Client, told: str) -> str:
    """What the page says, once it says this: one look serves all for seconds, and may be of the test before."""
    until_s = time.monotonic() + 60.0
    while re.search(told, said := text_of(http.get("/operations/").text)) is None:
        assert time.monotonic() < until_s, said
        time.sleep(0.5)
    return said


def test_it_says_what_drives_the_level_what_is_in_force_and_what_comes_next(house: House, enter: Enter) -> None:
    busy(house.stage)
    http = enter("viewer")
    said = when(http, "High: llm:default takes less")
    page = http.get("/operations/")
    assert page.status_code == 200 and "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "High: llm:default takes less than there is work for" in said
    assert "3 signals are out of range: provider 429s at 3.4 %, P1 wait at 71 s and oldest P1 at 74 s." in said
    assert "P2 is deferred, P3 paused but for its floor" in said
    assert re.search(r"Easing by itself: elevated at \d\d:\d\d at the earliest", said)
    assert "Raise the quota of llm:default if there is one to be had, or wait." in said
    assert "3 of 14 out of range" in said
    assert "Override a limit" not in said, "a viewer may look, and has no buttons"
    assert 'content="15"' in page.text, "without scripts it reloads itself"


def test_pools_resources_tenants_letters_and_changes_are_there_with_their_figures(house: House, enter: Enter) -> None:
    busy(house.stage)
    released = house.stage.one("SELECT count(*) FROM lease WHERE pool = 'llm'")
    waiting = house.stage.one("SELECT count(*) FROM task WHERE ready AND pool = 'llm' AND priority = 2")
    said = when(enter("operator"), rf"acme 67 % {waiting + 14} 0 .* orchard 33 % 212 38")
    assert f"llm {released} of 32 0 2 0 14 {waiting} 212" in said
    assert "Keep 2: llm:default binds" in said and "Add 1: work binds" in said and "P3 paused by ana" in said
    assert "tool:http 3 of 15" in said and "half open" in said
    assert "capacity set by ana: “the key is shared”" in said
    assert "Elevated to high" in said and "llm:default’s limit fell to 18" in said
    assert "ana paused ingest.p3" in said and "provider incident, PD-4471" in said
    assert "Its own code failed noop.single, 1 tenant 3" in said or "1 tenant 3" in said
    assert "4 live" in said and "browser +1" in said


def test_who_is_tied_to_a_tenant_and_who_is_nobody_sees_none_of_it(house: House, enter: Enter) -> None:
    busy(house.stage)
    tied = enter("ours-admin")
    for path in ("", "live", "pause/", "override/", "drain/", "resume/"):
        found = tied.get(f"/operations/{path}")
        assert found.status_code == 403 and "llm:default" not in found.text, path
    nobody = httpx.get(f"{tied.base_url}/operations/".replace("//op", "/op"))
    assert nobody.status_code == 302 and nobody.headers["Location"].startswith("/admin/login/")
    viewer = enter("viewer")
    assert viewer.get("/operations/pause/").status_code == 403


def test_a_pause_asks_for_a_reason_acts_once_and_is_lifted_again(house: House, enter: Enter) -> None:
    http = enter("operator")
    form = http.get("/operations/pause/").text
    body = {"once": once_of(form), "pool": "llm", "priority": "p3", "reason": ""}
    refused = http.post("/operations/pause/", data=body)
    assert refused.status_code == 422 and "Reason: say why" in text_of(refused.text)
    body["reason"] = "<b>PD-4471</b>"
    assert "It is paused until you resume it." in text_of(http.post("/operations/pause/", data=body).text)
    assert "it acted once" in text_of(http.post("/operations/pause/", data=body).text)
    rows = house.stage.connection.execute("SELECT scope, key, author, reason FROM pause").fetchall()
    assert rows == [("pool_priority", "llm.p3", "staff:operator", "<b>PD-4471</b>")]
    page = http.get("/operations/").text
    assert "P3 paused by operator" in page and "<b>PD" not in page and "&lt;b&gt;PD-4471" in page
    form = http.get("/operations/resume/").text
    assert "P3 of llm: operator" in text_of(form)
    body = {"once": once_of(form), "pause": "pool_priority llm.p3", "reason": "it is over"}
    assert "It goes on." in text_of(http.post("/operations/resume/", data=body).text)
    assert "Nothing is paused." in text_of(http.get("/operations/resume/").text)
    acts = house.stage.connection.execute("SELECT verb, actor, reason FROM audit_entry ORDER BY id").fetchall()
    assert acts == [
        ("pause", "staff:operator", "<b>PD-4471</b>"),
        ("resume", "staff:operator", "it is over"),
    ]


WRONG: tuple[tuple[str, dict[str, str], str], ...] = (
    ("pause", {}, "Say what to pause"),
    ("pause", {"pool": "llm", "tenant": "acme"}, "Say what to pause"),
    ("pause", {"priority": "p0"}, "use force"),
    ("pause", {"tenant": "nobody"}, "There is no tenant"),
    ("pause", {"run": "x"}, "is no id of a run"),
    ("pause", {"pool": "llm", "until": "yesterday"}, "a moment like"),
    ("pause", {"pool": "llm", "until": "2020-01-01T00:00"}, "must be a moment to come"),
    ("override", {"resource": "tool:http", "field": "capacity", "value": "many"}, "capacity must be a whole number"),
    ("override", {"resource": "gpu", "field": "capacity", "value": "1"}, "There is no resource"),
    ("override", {"resource": "tool:http", "field": "colour", "value": "1"}, "colour"),
    ("resume", {"pause": "pool llm"}, "Pool llm isn"),
    ("resume", {"pause": "moon llm"}, "There is no"),
    ("drain", {"worker": "x"}, "Choose one"),
)


def test_what_makes_no_sense_is_refused_and_can_be_mended(house: House, enter: Enter) -> None:
    house.stage.add_session()
    http = enter("operator")
    for verb, said, told in WRONG:
        once = once_of(http.get(f"/operations/{verb}/").text) if verb != "resume" else None
        if once is None:
            continue
        found = http.post(f"/operations/{verb}/", data={"once": once, "reason": "r", **said})
        assert found.status_code == 422 and told.lower() in text_of(found.text).lower(), (verb, said)
    assert http.post("/operations/pause/", data={"once": "forged", "pool": "llm", "reason": "r"}).status_code == 403
    assert house.stage.one("SELECT count(*) FROM audit_entry") == 0


def test_a_limit_is_overridden_and_a_worker_let_go(house: House, enter: Enter) -> None:
    session = house.stage.add_session({"llm": 16})
    http = enter("operator")
    form = http.get("/operations/override/?resource=llm%3Adefault").text
    assert '<option value="llm:default" selected>' in form
    body = {"once": once_of(form), "resource": "llm:default", "field": "capacity", "value": "25", "reason": "shared"}
    assert "It is set" in text_of(http.post("/operations/override/", data=body).text)
    assert house.stage.one("SELECT value FROM override WHERE resource = 'llm:default'") == 25
    form = http.get("/operations/drain/").text
    body = {"once": once_of(form), "worker": str(session), "reason": "patches"}
    assert "It takes nothing new" in text_of(http.post("/operations/drain/", data=body).text)
    assert house.stage.one("SELECT draining FROM worker_session WHERE uuid = %s", session)


def test_the_page_answers_before_anything_was_evaluated(house: House, enter: Enter) -> None:
    said = when(enter("viewer"), "Nobody has used a slot")
    assert "Not known: nobody has evaluated it yet" in said and "Is beat running" in said
    assert "No worker runs" in said


@pytest.mark.skipif(find() is None, reason="no Chromium is installed (apt-get install chromium)")
def test_an_operator_watches_live_and_pauses_in_wide_and_narrow_windows(
    house: House, served: Web, tmp_path: Path
) -> None:
    busy(house.stage)
    with Browser() as browser:
        browser.look(width=1440, height=900, dark=False)
        browser.open(f"{served.url}/admin/login/?next=/operations/")
        browser.send_form({"username": "operator", "password": PASSWORD})
        assert browser.run("location.pathname") == "/operations/"
        until_s = time.monotonic() + 60.0
        while not browser.run("document.querySelectorAll('.plot, .sig path').length > 14"):
            assert time.monotonic() < until_s, "one look serves all for seconds, and may be of the test before"
            time.sleep(0.5)
        for width, height, dark in ((1440, 900, False), (1440, 900, True), (390, 844, False), (390, 844, True)):
            browser.look(width=width, height=height, dark=dark)
            for path in ("", "pause/", "override/"):
                browser.open(f"{served.url}/operations/{path}")
                assert browser.run("document.documentElement.scrollWidth <= innerWidth"), (path, width)
                name = path.strip("/") or "page-operations"
                browser.picture(tmp_path / f"{name}-{width}-{'dark' if dark else 'light'}.png", whole=True)
        browser.look(width=1440, height=900, dark=False)
        browser.open(f"{served.url}/operations/")
        # What changes in the database comes by itself.
        house.stage.connection.execute("UPDATE level SET level = 3")
        until_s = time.monotonic() + 30.0
        while "Critical" not in browser.run("document.querySelector('h1').innerText"):
            assert time.monotonic() < until_s
            time.sleep(0.2)
        assert browser.run("document.title").startswith("Critical")
        assert "The level is critical" in browser.run("document.querySelector('[role=alert]').textContent")
        browser.run("document.querySelector('#act-pause').click()")
        until_s = time.monotonic() + 30.0
        while browser.run("location.pathname + document.readyState") != "/operations/pause/complete":
            assert time.monotonic() < until_s
            time.sleep(0.1)
        browser.send_form({"pool": "browser", "reason": "an incident"})
        assert browser.run("location.pathname") == "/operations/"
        assert "It is paused" in browser.run("document.body.innerText")
        assert browser.errors == []
    assert house.stage.one("SELECT key FROM pause WHERE reason = 'an incident'") == "browser"

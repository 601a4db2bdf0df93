"""The pages of runs and of a tenant, as people get them from the web process."""

import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client

from harness.ops.local.browser import Browser, find
from harness.policy.lifecycle import State
from harness.store import people
from harness.web.pages import shared
from harness.web.pages.shared import PageLink
from tests.runs import make_run
from tests.stage import Stage, wait_until
from tests.web.conftest import Web

PASSWORD = "correct horse battery"


class Visitor:
    """A login's browser without scripts: it keeps the session, and presses buttons by their labels."""

    def __init__(self, web: Web, name: str, tenant: str | None) -> None:
        group = "tenant admin" if tenant else "operator"
        people.add(name, PASSWORD, group=group, tenant=tenant)
        client = Client()
        client.force_login(User.objects.get(username=name), backend="django.contrib.auth.backends.ModelBackend")
        cookies = {key: morsel.value for key, morsel in client.cookies.items()}
        self.http = httpx.Client(base_url=web.url, cookies=cookies, timeout=30)

    def text(self, path: str, status: int = 200) -> str:
        """Return what stands on a page, without marks and drawings."""
        answer = self.http.get(path)
        assert answer.status_code == status, answer.text
        return readable(answer.text)

    def press(self, path: str, label: str, *, times: int = 1) -> str:
        """Press a button of a page, perhaps twice; return what the last page says."""
        page = self.http.get(path).text
        forms = [form for form in re.findall(r"<form method=\"post\".*?</form>", page, re.S) if f">{label}<" in form]
        assert len(forms) == 1, (label, page)
        action = re.search(r'action="([^"]+)"', forms[0])
        token = re.search(r'name="once" value="([^"]+)"', forms[0])
        assert action and token
        for _ in range(times):
            answer = self.http.post(action[1], data={"once": token[1]}, follow_redirects=True)
            assert answer.status_code == 200, answer.text
        return readable(answer.text)


def readable(page: str) -> str:
    """A page's text."""
    main = re.sub(r"<(script|style|svg|noscript).*?</\1>", "", page.partition("<body")[2], flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", main).replace("\u00a0", " ").replace("&#x27;", "'").split())


@pytest.fixture
def visitor(web: Web, stage_beside: Stage) -> Iterator[Visitor]:
    people.setup()
    found = Visitor(web, "mara", "acme")
    yield found
    found.http.close()


def run_path(stage: Stage, run: int) -> str:
    return f"/work/runs/{stage.one('SELECT public_id FROM run WHERE id = %s', run)}/"


MIXED = [State.SUCCEEDED] * 6 + [State.FAILED_TERMINAL] * 3 + [State.RUNNING] * 2 + [State.QUEUED]


def test_a_runs_page_says_how_far_it_is_what_failed_and_what_is_slowest(stage_beside: Stage, visitor: Visitor) -> None:
    run = make_run(stage_beside, MIXED)
    text = visitor.text(run_path(stage_beside, run))
    assert "Running: 6 of 12 tasks done, 3 failed" in text
    assert "6 done" in text and "3 failed" in text and "2 running" in text and "1 queued" in text
    assert "What failed 3 tasks, by cause" in text and "is unreadable" in text and "Odd one" in text
    assert "Slowest" in text and "since" in text
    assert visitor.text(f"/work/runs/{uuid.uuid4()}/", 404)
    page = visitor.http.get(run_path(stage_beside, run))
    assert page.text.count('<i class="') == 12 and 'class="bad"' in page.text
    assert '<meta http-equiv="refresh"' in page.text, "without scripts it comes again by itself"
    assert "style=" not in page.text and "default-src 'none'" in page.headers["content-security-policy"]


def test_a_run_of_10_000_tasks_is_400_squares(stage_beside: Stage, visitor: Visitor) -> None:
    run = make_run(stage_beside, [State.SUCCEEDED] * 9_990 + [State.FAILED_TERMINAL] * 10)
    page = visitor.http.get(run_path(stage_beside, run))
    assert page.text.count('<i class="') == 400 and len(page.text) < 60_000
    text = readable(page.text)
    assert "Failed: 10 of 10,000 tasks" in text and "one square is 25 tasks" in text and "9,990 done" in text
    assert "http-equiv" not in page.text, "what is over needs no renewal"


def test_a_graph_is_drawn_with_what_comes_after_what(stage_beside: Stage, visitor: Visitor) -> None:
    run = make_run(stage_beside, [State.SUCCEEDED, State.RUNNING, State.RUNNING, State.QUEUED])
    ids = [
        row[0] for row in stage_beside.connection.execute("SELECT id FROM task WHERE run_id = %s ORDER BY id", (run,))
    ]
    for task, on in ((1, 0), (2, 0), (3, 1), (3, 2)):
        stage_beside.connection.execute(
            "INSERT INTO dependency (task_id, on_id, tenant_id) VALUES (%s, %s, %s)",
            (ids[task], ids[on], stage_beside.tenant),
        )
    page = visitor.http.get(run_path(stage_beside, run)).text
    assert page.count('<svg class="lanes"') == 4 and '<i class="' not in page
    assert f"queued, after task {ids[1]} and task {ids[2]}" in readable(page)


def test_who_waits_for_its_children_is_nowhere_called_paused(stage_beside: Stage, visitor: Visitor) -> None:
    run = make_run(stage_beside, [State.PAUSED, State.PAUSED, State.QUEUED])
    cursor = stage_beside.connection.execute("SELECT id, public_id FROM task WHERE run_id = %s ORDER BY id", (run,))
    (first, public), (second, _), _ = cursor.fetchall()
    hold = "UPDATE task SET holds = %s WHERE id = %s"
    for task in (first, second):
        stage_beside.connection.execute(hold, (["children"], task))
    path = run_path(stage_beside, run)
    text = visitor.text(path)
    assert "2 waiting for children" in text and text.count("waiting for its children") >= 2
    assert not re.search(r"\bpaused\b(?! or waiting for children| *\.)", text), text
    assert visitor.text(f"{path}tasks/").count("waiting for its children") == 2
    assert "<title>Waiting for its children" in visitor.http.get(f"/work/tasks/{public}/").text
    stage_beside.connection.execute(hold, (["tenant"], second))
    assert "2 paused or waiting for children" in visitor.text(path)


def test_buttons_act_once_on_the_whole_run(stage_beside: Stage, visitor: Visitor) -> None:
    (first, second), path = _fresh(stage_beside)
    assert "Nothing more of it is started" in visitor.press(path, "Pause")
    assert "Paused by mara" in visitor.text(path)
    assert "It goes on." in visitor.press(path, "Resume")
    assert "sent already" in visitor.press(path, "Cancel what is left", times=2)
    assert [stage_beside.state(task) for task in (first, second)] == ["cancelled"] * 2
    assert stage_beside.events(first) == ["submit", "cancel"]
    assert "Cancelled: none of 2 tasks was done" in visitor.text(path)


def test_a_forged_or_borrowed_button_does_nothing(stage_beside: Stage, visitor: Visitor, web: Web) -> None:
    (first, _), path = _fresh(stage_beside)
    assert visitor.http.post(f"{path}cancel/", data={"once": "forged"}).status_code == 403
    token = re.search(r'cancel/".*?name="once" value="([^"]+)"', visitor.http.get(path).text)
    assert token
    assert visitor.http.post(f"{path}pause/", data={"once": token[1]}).status_code == 403
    assert httpx.post(f"{web.url}{path}cancel/", data={"once": token[1]}).status_code == 302, "to the login"
    assert stage_beside.state(first) == "queued"


def test_another_tenant_finds_nothing_and_a_link_opens_its_run_alone(
    stage_beside: Stage, visitor: Visitor, web: Web
) -> None:
    theirs = stage_beside.add_tenant("theirs")
    run, other = make_run(stage_beside, MIXED, tenant=theirs), make_run(stage_beside, MIXED, tenant=theirs)
    path, other_path = run_path(stage_beside, run), run_path(stage_beside, other)
    for below in ("", "tasks/", "live"):
        assert visitor.text(path + below, 404)
    assert visitor.http.post(f"{path}cancel/", data={"once": "x"}).status_code in (403, 404)
    link = PageLink(tenant=theirs, what="run", public_id=uuid.UUID(path.split("/")[3]), acts=False, label="Jo")
    root = f"{shared.PATH}{shared.made(link, now=datetime.now(UTC))}"
    opened = httpx.get(f"{web.url}{root}{path.removeprefix('/work')}")
    assert opened.status_code == 200 and "Running: 6 of 12 tasks done" in readable(opened.text)
    assert '<form method="post"' not in opened.text, "it was made to look only"
    assert f"{root}/tasks/" in opened.text, "its links stay below it"
    assert httpx.get(f"{web.url}{root}{path.removeprefix('/work')}tasks/").status_code == 200
    assert httpx.get(f"{web.url}{root}{other_path.removeprefix('/work')}").status_code == 404
    assert httpx.get(f"{web.url}/work/").status_code == 302


def test_whoever_may_act_makes_a_link_to_a_run(stage_beside: Stage, visitor: Visitor, web: Web) -> None:
    (first, _), path = _fresh(stage_beside)
    assert f'href="{path}share"' in visitor.http.get(path).text
    token = re.search(r'name="once" value="([^"]+)"', visitor.http.get(f"{path}share").text)
    assert token and visitor.http.post(f"{path}share", data={"once": "forged"}).status_code == 403
    links = []
    for more in ({}, {"acts": "yes"}):
        page = visitor.http.post(f"{path}share", data={"once": token[1], **more}).text
        found = re.search(r'value="http://[^/]+(/shared/[^"]+)"', page)
        assert found
        links.append(found[1])
    looks, acts = (httpx.get(f"{web.url}{link}").text for link in links)
    assert "Queued: 0 of 2" in readable(looks) and "Cancel what is left" not in looks and '/share"' not in looks
    assert "Cancel what is left" in acts, "it was made to act, too"
    assert httpx.get(f"{web.url}{links[1]}share").status_code == 403, "a link makes no links"
    assert stage_beside.state(first) == "queued"


def test_lists_go_by_state_words_and_id(stage_beside: Stage, visitor: Visitor) -> None:
    run = make_run(stage_beside, MIXED)
    path = run_path(stage_beside, run)
    failed = visitor.http.get(f"{path}tasks/?state=failed_terminal").text
    assert failed.count('id="task-') == 3 and "is unreadable" in failed
    everything = visitor.http.get("/work/tasks/").text
    assert everything.count('id="task-') == 12
    task = stage_beside.one("SELECT public_id FROM task WHERE run_id = %s LIMIT 1", run)
    found = visitor.http.get("/work/tasks/", params={"q": str(task)})
    assert found.headers["location"] == f"/work/tasks/{task}/"
    found = visitor.http.get("/work/tasks/", params={"q": path.split("/")[3]})
    assert found.headers["location"] == path
    assert visitor.http.get("/work/tasks/", params={"q": str(uuid.uuid4())}).status_code == 404
    assert "no such task" in visitor.text("/work/tasks/?q=nothing+like+it")
    assert visitor.text("/work/tasks/?q=%22%22", 422) and visitor.text("/work/tasks/?cursor=x", 422)
    for _ in range(4):
        make_run(stage_beside, MIXED)
    first = visitor.http.get("/work/tasks/").text
    older = re.search(r'href="(\?cursor=[^"]+)"', first)
    assert first.count('id="task-') == 50 and older
    assert visitor.http.get(f"/work/tasks/{older[1]}").text.count('id="task-') == 10


def test_the_start_page_is_what_the_tenants_rows_say(stage_beside: Stage, visitor: Visitor) -> None:
    assert "Nothing runs, and nothing waits" in visitor.text("/work/")
    make_run(stage_beside, [*MIXED, State.WAITING_APPROVAL])
    make_run(stage_beside, [State.QUEUED] * 40, tenant=stage_beside.add_tenant("theirs"))
    text = visitor.text("/work/")
    assert "1 in line" in text and "6 tasks in the last 24 hours" in text and "3 failed" in text
    assert "No budget is set" in text and "night" in text and "9 of 13 tasks ended, 3 failed" in text
    stage_beside.connection.execute(
        "INSERT INTO approval (task_id, tenant_id, ordinal, name, prompt, choices, on_timeout, deny, asked_at) "
        "SELECT id, tenant_id, 1, 'ask', 'Spend 4,000 on <b>tapes</b>?', '{yes}', 'pause', 'cancel', now() FROM task "
        "WHERE tenant_id = %s AND state = 'waiting_approval'",
        (stage_beside.tenant,),
    )
    stage_beside.connection.execute(
        "INSERT INTO budget (tenant_id, month_usd, spent_month_usd, counted_at) VALUES (%s, 10, 9, now())",
        (stage_beside.tenant,),
    )
    page = visitor.http.get("/work/").text
    assert "<b>tapes" not in page and "&lt;b&gt;tapes" in page
    assert "1 question waits for a decision" in readable(page)
    assert "$9.00 of $10.00 this month spent" in readable(page) and "nearly spent" in readable(page)


def test_operators_look_at_a_tenant_by_name(stage_beside: Stage, visitor: Visitor, web: Web) -> None:
    make_run(stage_beside, MIXED)
    operator = Visitor(web, "olga", None)
    assert operator.http.get("/work/").headers["location"] == "/operations/"
    assert "1 in line" in operator.text("/work/?tenant=acme")
    assert operator.http.get("/work/tasks/?tenant=acme").text.count('id="task-') == 12
    assert operator.text("/work/?tenant=nobody", 404)
    (first, _), path = _fresh(stage_beside)
    assert "cancelled" in operator.press(path, "Cancel what is left")
    assert stage_beside.state(first) == "cancelled"
    operator.http.close()
    stage_beside.add_tenant("theirs")
    assert "1 in line" in visitor.text("/work/?tenant=theirs"), "a login tied to a tenant names no other"


def test_a_change_is_on_the_page_without_asking_again(stage_beside: Stage, visitor: Visitor) -> None:
    (first, second), path = _fresh(stage_beside)
    with visitor.http.stream("GET", f"{path}live", timeout=30) as answer:
        said = parts(answer)
        assert "Queued: 0 of 2" in next(said)["state"]
        session = stage_beside.add_session()
        with stage_beside.process(session) as process:
            stage_beside.run_all(process)
        while "Done: all 2" not in (last := next(said).get("state", "")):
            assert "Failed" not in last
        assert {stage_beside.state(task) for task in (first, second)} == {"succeeded"}
        assert list(said) == [], "a run that is over ends its stream"


def parts(answer: httpx.Response) -> Iterator[dict[str, str]]:
    """What a stream puts in place, by id, as text."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: ") and name == "swap":
            found = json.loads(line.removeprefix("data: "))
            yield {key: readable(f"<body {inner}") for key, (_, inner) in found.items()}
        elif line.startswith("data: ") and name == "end":
            return


def _fresh(stage: Stage) -> tuple[list[int], str]:
    """A run of two tasks that nobody has touched."""
    run = stage.one("INSERT INTO run (tenant_id, name, size) VALUES (%s, 'two', 2) RETURNING id", stage.tenant)
    return stage.submit(n=2, run=run), run_path(stage, run)


@pytest.mark.skipif(find() is None, reason="no Chromium is installed (apt-get install chromium)")
def test_in_a_browser_runs_change_in_place_and_fit_every_width(stage_beside: Stage, visitor: Visitor, web: Web) -> None:
    _, path = _fresh(stage_beside)
    large = run_path(stage_beside, make_run(stage_beside, [*MIXED, *[State.SUCCEEDED] * 500]))
    with Browser() as browser:
        browser.look(width=1440, height=900, dark=False)
        browser.open(f"{web.url}/admin/login/")
        browser.send_form({"username": "mara", "password": PASSWORD})
        for width, dark in ((1440, False), (390, True)):
            browser.look(width=width, height=844, dark=dark)
            for place in ("/work/", "/work/tasks/", large, f"{large}tasks/?state=failed_terminal"):
                browser.open(f"{web.url}{place}")
                assert browser.run("document.documentElement.scrollWidth <= innerWidth"), (place, width)

        def says(text: str) -> None:
            wait_until(lambda: text in str(browser.run("document.body.innerText")).replace("\u00a0", " "), within_s=60)

        def press(button: str) -> None:
            browser.run(f"window.settled = false; document.getElementById('{button}').click()")
            # A form that has just been put in place is htmx's own some 30 ms later; until then it is the browser's.
            wait_until(lambda: browser.run("window.settled"), within_s=60)

        browser.open(f"{web.url}{path}")
        says("Live")
        settled = "document.addEventListener('htmx:afterSettle', e => { window.settled ||= e.target.id === 'page' })"
        browser.run(f"window.stayed = true; {settled}")
        press("do-pause")
        says("Nothing more of it is started")
        says("Paused: 0 of 2")
        press("do-resume")
        says("Queued: 0 of 2")
        with stage_beside.process(stage_beside.add_session()) as process:
            stage_beside.run_all(process)
        says("Done: all 2 tasks")
        says("Ended")
        assert browser.run("window.stayed"), "the page was never loaded again"
        assert browser.errors == []

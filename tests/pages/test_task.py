"""A task's page without scripts: its answers in each state, its buttons, who may see it, and what is thrown at it."""

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from harness.kinds import Context, kind
from harness.web.pages import shared
from harness.web.pages.shared import PageLink
from tests.admin.conftest import House
from tests.dead_letters import bury, with_steps
from tests.pages.conftest import Lookers, run, submitted
from tests.web.conftest import Api, assert_problem

EVIL = '<script>alert("x")</script>'


class Said(BaseModel):
    """What the kinds of these tests return or ask."""

    say: Any = None


@kind("test.page_says", pool="db", input=Said)
def says(ctx: Context, payload: Said) -> Any:
    with_a_step = ctx.step("look it up", lambda: 1)
    return payload.say if with_a_step else None


@kind("test.page_asks", pool="db", input=Said)
def asks(ctx: Context, payload: Said) -> Any:
    return {"answer": ctx.ask(payload.say or "Send it?", choices=["by mail", "on paper"], timeout_s=3600)}


def plain(html: str) -> str:
    """What is read on a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)).replace("\xa0", " ")


def test_a_waiting_task_says_when_why_and_what_you_can_do(house: House, lookers: Lookers) -> None:
    _, task = submitted(house)
    page = lookers.login("ours-admin").page(task)
    text = plain(page)
    assert "Queued: next in your line" in text
    assert all(word in text for word in ("When", "Why", "You can", "So far", "Trace", "noop.single", str(task)))
    assert "None has been made yet" in text, "the reason stands where the range would"
    assert "Pause" in text and "Cancel" in text
    assert '<noscript><meta http-equiv="refresh" content="15"></noscript>' in page
    assert f'data-live-path="/work/tasks/{task}/live"' in page


def test_a_page_runs_nothing_that_is_not_ours_and_is_kept_nowhere(house: House, lookers: Lookers) -> None:
    _, task = submitted(house)
    looker = lookers.login("ours-admin")
    answer = looker.http.get(looker.path(task))
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "no-store" and answer.headers["referrer-policy"] == "no-referrer"
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|(?:src|href)=\"https?:", answer.text)


def test_a_button_acts_once_however_often_it_is_pressed(house: House, lookers: Lookers) -> None:
    number, task = submitted(house)
    looker = lookers.login("ours-admin")
    token = looker.button(task, "pause")
    first, second = looker.press(task, "pause", token), looker.press(task, "pause", token)
    assert "It is paused until you resume it." in first.text and "it acted once" in second.text
    assert house.stage.events(number) == ["submit", "pause"]
    assert "Paused by ours-admin since" in plain(second.text)
    assert "It goes on." in looker.press(task, "resume").text
    assert "It is paused" in looker.press(task, "pause").text, "the same button, later, is another action"
    assert house.stage.events(number) == ["submit", "pause", "resume", "pause"]
    assert "Cancelled by ours-admin at" in plain(looker.press(task, "cancel").text)


def test_an_operator_acts_on_any_tenants_task_as_an_operator(house: House, lookers: Lookers) -> None:
    number, task = submitted(house)
    operator, ours = lookers.login("operator"), lookers.login("ours-admin")
    assert "It is paused" in operator.press(task, "pause").text
    text = plain(ours.page(task))
    assert "Paused by operator since" in text and "staff:" not in text and "when an operator resumes it" in text
    assert "/do/resume" not in ours.page(task), "what holds it isn't theirs to lift"
    assert "It goes on." in operator.press(task, "resume").text
    assert house.stage.state(number) == "queued"


def test_a_form_that_was_made_for_another_person_or_another_button_does_nothing(house: House, lookers: Lookers) -> None:
    number, task = submitted(house)
    ours, operator = lookers.login("ours-admin"), lookers.login("operator")
    for looker, token in (
        (operator, ours.button(task, "cancel")),
        (ours, ours.button(task, "pause")),
        (ours, "x"),
        (ours, ""),
    ):
        answer = looker.press(task, "cancel", token)
        assert answer.status_code == 403 and "Nothing was done" in answer.text
    assert house.stage.state(number) == "queued"


def test_a_decision_is_taken_on_the_page_once_with_a_choice_and_a_note(house: House, lookers: Lookers) -> None:
    _, task = submitted(house, "test.page_asks", input={"say": f"Send {EVIL}?"})
    run(house)
    looker = lookers.login("ours-admin")
    page = looker.page(task)
    assert "Waiting for a decision since" in plain(page) and "never approved" in plain(page)
    assert EVIL not in page and "Send &lt;script&gt;" in page
    assert 'http-equiv="refresh"' not in page, "nothing reloads under somebody who types"
    token = looker.button(task, "decide")
    nothing_chosen = looker.press(task, "decide", token)
    assert nothing_chosen.status_code == 422
    first = looker.press(task, "decide", token, choice="on paper", reason="as ever")
    second = looker.press(task, "decide", token, verdict="deny")
    assert "Your answer is taken" in first.text and "it acted once" in second.text
    assert "Approved at" in plain(second.text) and "waiting for a slot" in plain(second.text)
    run(house)
    done = plain(looker.page(task))
    assert "Done at" in done and "answer on paper" in done


def test_a_denied_task_is_cancelled_and_says_by_whom_and_why(house: House, lookers: Lookers) -> None:
    number, task = submitted(house, "test.page_asks")
    run(house)
    looker = lookers.login("ours-admin")
    assert "Your no is taken" in looker.press(task, "decide", verdict="deny", reason="not now").text
    text = plain(looker.page(task))
    assert "Cancelled by ours-admin at" in text and "“not now”" in text and "so it can’t be cancelled" in text
    assert "/do/redrive" in looker.page(task) and house.stage.state(number) == "cancelled"


def test_a_failed_task_says_what_happened_in_plain_words_and_what_to_do(house: House, lookers: Lookers) -> None:
    number, task = submitted(house)
    bury(house.stage, [number], f"no right to {EVIL}", "permission")
    with_steps(house.stage, number)
    looker = lookers.login("ours-admin")
    page = looker.page(task)
    text = plain(page)
    assert "Failed: it was refused access" in text and "What to do" in text
    assert "Have the right given that the message names." in text and "secret.py" not in page
    assert EVIL not in page and "&lt;script&gt;" in page
    assert "step 1" in text and "It was tried 2 times" in text
    assert "It was sent again." in looker.press(task, "redrive").text


RESULTS: list[tuple[Any, str]] = [
    ("Only text\nin two lines", "Only text\nin two lines"),
    ({"count": 12_345, "kept": True}, "12,345"),
    ({"rows": [{"part": "Bearing", "pieces": 40}, {"part": EVIL, "pieces": 2}]}, '<th scope="col">pieces</th>'),
    ({"report": f"# A *report*\n\n{EVIL} [here](javascript:alert(1)) [there](https://a.example)"}, "<h1>A <em>report"),
    ({"nested": {"deep": [{"a": {"b": 1}}]}}, "&quot;deep&quot;"),
    (None, "It left nothing to show."),
    ({"columns": ["a", "b"], "rows": [[1, 2]]}, '<th scope="col">a</th>'),
]


def test_a_result_is_shown_in_the_form_that_it_has(house: House, lookers: Lookers) -> None:
    tasks = [submitted(house, "test.page_says", input={"say": result})[1] for result, _ in RESULTS]
    run(house)
    looker = lookers.login("ours-admin")
    for task, (result, shown) in zip(tasks, RESULTS, strict=True):
        page = looker.page(task)
        assert shown in page and "<script>alert" not in page and 'href="javascript' not in page
        assert "look it up" in page and "Done at" in plain(page) and "data-live-path" not in page
        assert looker.http.get(f"{looker.path(task)}result").json() == result


def test_a_result_of_a_quarter_of_a_megabyte_is_shown_in_part_and_kept_whole(house: House, lookers: Lookers) -> None:
    text = "wörter & more\n" * 16_000
    _, task = submitted(house, "test.page_says", input={"say": {"text": text}})
    run(house)
    looker = lookers.login("ours-admin")
    page = looker.page(task)
    assert "its beginning" in page and len(page) < 200_000
    assert looker.http.get(f"{looker.path(task)}result").json() == {"text": text}


def test_done_work_runs_again_as_a_new_task_once(house: House, lookers: Lookers) -> None:
    _, task = submitted(house)
    run(house)
    looker = lookers.login("ours-admin")
    token = looker.button(task, "again")
    first = looker.press(task, "again", token)
    assert "as a new task" in first.text and str(task) not in str(first.url)
    assert str(task) in str(looker.press(task, "again", token).url)
    assert house.stage.one("SELECT count(*) FROM task WHERE tenant_id = %s", house.ours) == 2


def test_another_tenants_page_is_not_there(house: House, lookers: Lookers) -> None:
    (theirs,) = house.stage.submit("noop.single", tenant=house.theirs)
    task = uuid.UUID(str(house.stage.row(theirs)["public_id"]))
    _, mine = submitted(house)
    ours = lookers.login("ours-admin")
    for looker in (ours, lookers.link(mine, acts=True), lookers.link(task)):
        for rest in ("", "live", "trace", "result", "share", f"files/{uuid.uuid4()}"):
            answer = looker.http.get(f"{looker.path(task)}{rest}")
            assert answer.status_code in (403, 404), (looker.root, rest)
            assert "noop.single" not in answer.text
        answer = looker.press(task, "cancel", "x")
        assert answer.status_code in (403, 404)
    assert house.stage.state(theirs) == "queued"
    assert lookers.login("operator").page(task), "operators see every tenant"
    loose = lookers.login("loose")
    assert loose.http.get(loose.path(mine)).status_code == 403


def test_who_is_not_logged_in_is_sent_to_the_login_and_back(house: House, lookers: Lookers) -> None:
    _, task = submitted(house)
    nobody = lookers.nobody()
    answer = nobody.http.get(nobody.path(task))
    assert answer.status_code == 302 and answer.headers["location"] == f"/admin/login/?next=/work/tasks/{task}/"


def test_a_link_shows_one_task_until_it_expires_and_acts_only_if_it_may(house: House, lookers: Lookers) -> None:
    number, task = submitted(house)
    _, other = submitted(house)
    reads, acts = lookers.link(task), lookers.link(task, acts=True)
    page = reads.page(task)
    assert "/do/" not in page and "This link shows it and changes nothing." in page
    assert reads.press(task, "cancel", "x").status_code == 403
    assert reads.http.get(reads.path(other)).status_code == 404
    assert "It is paused" in acts.press(task, "pause").text
    assert house.stage.one("SELECT actor FROM event WHERE task_id = %s AND event = 'pause'", number) == (
        "link for the auditors"
    )
    link = PageLink(tenant=house.ours, what="task", public_id=task, acts=False, label="late")
    old = shared.made(link, now=datetime.now(UTC) - timedelta(days=2))
    assert reads.http.get(f"/shared/{old}/tasks/{task}/").status_code == 410
    assert reads.http.get(f"/shared/{old[:-3]}xyz/tasks/{task}/").status_code == 404


def test_a_task_is_shared_from_its_page(house: House, lookers: Lookers) -> None:
    _, task = submitted(house)
    looker = lookers.login("ours-admin")
    form = looker.http.get(f"{looker.path(task)}share").text
    token = re.search(r'name="once" value="([^"]+)"', form)
    assert token is not None
    made = looker.http.post(f"{looker.path(task)}share", data={"once": token[1]}).text
    address = re.search(r'readonly value="([^"]+)"', made)
    assert address is not None
    answer = lookers.nobody().http.get(address[1])
    assert answer.status_code == 200 and "Queued: next in your line" in plain(answer.text) and "/do/" not in answer.text


def test_the_whole_trace_is_there_a_page_at_a_time(house: House, lookers: Lookers) -> None:
    number, task = submitted(house)
    house.stage.connection.execute(
        "INSERT INTO event (task_id, tenant_id, seq, event, from_state, to_state, actor, data) "
        "SELECT %s, %s, n, 'reprioritise', 'queued', 'queued', 'staff:mara', %s FROM generate_series(2, 301) n",
        (number, house.ours, f'{{"reason": "{EVIL.replace(chr(34), "")}"}}'),
    )
    looker = lookers.login("ours-admin")
    assert "All of it" in looker.page(task)
    first = looker.http.get(f"{looker.path(task)}trace").text
    older = re.search(r'href="([^"]*before=\d+)"', first)
    assert older is not None and first.count("<li>") == 200 and "<script>alert" not in first
    assert "Submitted" in looker.http.get(older[1].replace("&amp;", "&")).text


def test_a_program_makes_a_link_to_a_page_for_people(api: Api) -> None:
    task = api.submit(title="A report").json()["task_id"]
    made = api.http.post(f"/api/v1/tasks/{task}/page-link", json={"for": "mia", "acts": True, "valid_s": 60})
    assert made.status_code == 200
    page = api.http.get(made.json()["url"], headers={"Authorization": ""})
    assert page.status_code == 200 and "A report" in page.text and "/do/cancel" in page.text
    run = api.run(2).json()["run_id"]
    assert "/shared/" in api.http.post(f"/api/v1/runs/{run}/page-link", json={"for": "mia"}).json()["url"]
    assert_problem(api.http.post(f"/api/v1/tasks/{task}/page-link", json={"for": "a\nb"}), 422, "invalid", "for")


def test_ten_thousand_children_stand_as_a_grid_with_figures_and_those_that_need_somebody(
    house: House, lookers: Lookers
) -> None:
    number, task = submitted(house)
    _, failed = submitted(house)
    house.stage.connection.execute(
        "INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready, parent_id) "
        "SELECT %s, 'noop', 1, 'db', 2, 'queued', false, %s FROM generate_series(1, 9999)",
        (house.ours, number),
    )
    house.stage.connection.execute("UPDATE task SET parent_id = %s WHERE public_id = %s", (number, failed))
    bury(house.stage, [house.stage.one("SELECT id FROM task WHERE public_id = %s", failed)])
    looker = lookers.login("ours-admin")
    page = looker.page(task)
    assert page.count("<i class=") == 400 and len(page) < 60_000
    text = plain(page)
    assert "10,000 children" in text and "9,999 queued" in text and "1 failed" in text
    assert page.index(f"/work/tasks/{failed}/") < page.index("and 9988 more")
    assert f'<a href="/work/tasks/{task}/">' in looker.page(failed), "a child leads to its parent"
    assert lookers.link(task).page(failed), "a task's link opens its children"

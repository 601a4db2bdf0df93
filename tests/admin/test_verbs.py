"""State is never edited, only acted on by the verbs that the table offers: once, with a reason and an author."""

import re
import threading
from dataclasses import replace
from typing import Any, Literal

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from harness.engine import operate, reasons
from harness.policy.lifecycle import State
from tests.admin.conftest import BACKEND, House
from tests.admin.pages import token_of
from tests.dead_letters import with_steps


def page_of(task: int, verb: str = "cancel") -> str:
    return f"/admin/store/task/{task}/do/{verb}/"


def test_a_cancel_leaves_reason_and_author_in_the_trace_and_a_second_click_does_nothing(house: House) -> None:
    client = house.login("operator")
    task = house.task()
    assert page_of(task) in client.get(f"/admin/store/task/{task}/change/").text
    form = client.get(page_of(task))
    assert house.stage.state(task) == "queued", "looking at the page does nothing"
    body = {"reason": "wrong prompt", "_once": token_of(form.text)}
    answer = client.post(page_of(task), body, follow=True)
    assert "Cancelled" in answer.text and house.stage.state(task) == "cancelled"
    row = house.stage.connection.execute(
        "SELECT actor, data FROM event WHERE task_id = %s AND event = 'cancel'", (task,)
    ).fetchall()
    assert row == [("staff:operator", {"reason": "wrong prompt"})]
    again = client.post(page_of(task), body, follow=True)
    assert "sent already" in again.text
    assert house.stage.events(task) == ["submit", "cancel"]
    shown = client.get(f"/admin/store/task/{task}/change/").text
    assert "wrong prompt" in shown and "staff:operator" in shown and page_of(task) not in shown


def test_a_task_that_someone_has_locked_is_told_and_nothing_of_it_acted(house: House) -> None:
    client, task = house.login("operator"), house.task()
    ticked = f"/admin/store/task/bulk/?verb=cancel&task={task}"
    with psycopg.connect(house.stage.url) as other:
        other.execute("SELECT FROM task WHERE id = %s FOR UPDATE", (task,))
        for page in (page_of(task), ticked):
            body = {"reason": "stuck", "_once": token_of(client.get(page).text)}
            answer = client.post(page, body, follow=True)
            assert answer.status_code == 200 and "someone else holds a lock" in answer.text
    assert house.stage.events(task) == ["submit"]


def test_two_clicks_at_once_are_one_action(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def count(connection: Any, task: Any, *, tenant: Any, actor: str, reason: str = "") -> operate.Done:
        calls.append(actor)
        return operate.Done(outcome="already")

    monkeypatch.setitem(operate.VERBS, "cancel", replace(operate.VERBS["cancel"], run=count))
    task = house.task()
    client = house.login("operator")
    body = {"reason": "x", "_once": token_of(client.get(page_of(task)).text)}
    cookies, barrier = client.cookies, threading.Barrier(2)

    def click() -> None:
        from django.db import connection

        mine = Client(HTTP_HOST="127.0.0.1")
        mine.cookies = cookies
        barrier.wait()
        mine.post(page_of(task), body)
        connection.close()

    threads = [threading.Thread(target=click) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == ["staff:operator"]


def test_a_verb_without_reason_without_token_or_with_anothers_token_does_nothing(house: House) -> None:
    client = house.login("operator")
    task, other = house.task(), house.task()
    token = token_of(client.get(page_of(task)).text)
    assert client.post(page_of(task), {"reason": "", "_once": token}).status_code == 200
    assert "too old" in client.post(page_of(other), {"reason": "x", "_once": token}).text
    assert "too old" in client.post(page_of(task), {"reason": "x"}).text
    strange = house.login("root")
    assert "too old" in strange.post(page_of(task), {"reason": "x", "_once": token}).text
    assert house.stage.state(task) == house.stage.state(other) == "queued"


def test_who_may_act(house: House) -> None:
    task, foreign = house.task(), house.task(house.theirs)
    assert house.login("viewer").get(page_of(task)).status_code == 404
    own = house.login("ours-admin")
    assert own.get(page_of(foreign)).status_code == 404
    token = token_of(own.get(page_of(task)).text)
    assert own.post(page_of(foreign), {"reason": "x", "_once": token}).status_code == 404
    own.post(page_of(task), {"reason": "mine", "_once": token})
    assert house.stage.state(task) == "cancelled" and house.stage.state(foreign) == "queued"
    assert own.get(page_of(foreign, "no-such-verb")).status_code == 404


@pytest.mark.parametrize("name", ["root", "operator", "viewer", "ours-admin"])
def test_nobody_adds_edits_or_deletes_a_task_a_run_an_attempt_a_lease_or_the_trace(house: House, name: str) -> None:
    client = house.login(name)
    task = house.task()
    for model in ("task", "run", "attempt", "lease", "traceevent"):
        base = f"/admin/store/{model}/"
        assert client.get(f"{base}add/").status_code == 403, model
        assert client.post(f"{base}add/", {}).status_code == 403, model
        assert client.post(f"{base}{task}/delete/", {"post": "yes"}).status_code in (302, 403, 404), model
        answer = client.post(f"{base}{task}/change/", {"state": "succeeded", "_once": "x"})
        assert answer.status_code in (302, 403, 404, 405), model
        listed = client.post(base, {"action": "delete_selected", "_selected_action": [task]})
        assert listed.status_code in (200, 302, 403), model
    assert house.stage.state(task) == "queued" and house.stage.events(task) == ["submit"]


def test_a_verb_that_is_added_to_the_table_appears_with_fields_for_what_it_needs(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, Any] = {}

    def move(
        connection: Any, task: Any, *, tenant: int | None, actor: str, where: Literal["front", "back"], n: int = 3
    ) -> operate.Done:
        said.update(where=where, n=n, actor=actor, tenant=tenant)
        return operate.Done(outcome="already")

    verb = replace(operate.VERBS["cancel"], run=move, help="Move it.")
    monkeypatch.setitem(operate.VERBS, "move_it", verb)
    task = house.task()
    client = house.login("ours-admin")
    assert "Move it" in client.get(f"/admin/store/task/{task}/change/").text
    form = client.get(page_of(task, "move_it"))
    assert 'name="where"' in form.text and 'name="n"' in form.text and "front" in form.text
    token = token_of(form.text)
    assert (
        client.post(page_of(task, "move_it"), {"reason": "r", "where": "up", "n": 1, "_once": token}).status_code == 200
    )
    assert said == {}, "a wrong value is told, and the token stays good"
    client.post(page_of(task, "move_it"), {"reason": "r", "where": "front", "n": "4", "_once": token})
    assert said == {"where": "front", "n": 4, "actor": "staff:ours-admin", "tenant": house.ours}


def test_a_task_page_shows_its_line_of_states_and_tracebacks_to_operators_alone(house: House) -> None:
    task = house.task()
    house.stage.connection.execute(
        "INSERT INTO attempt (task_id, tenant_id, release_no, started, ended, verdict, error_class, message, "
        "traceback) VALUES (%s, %s, 1, now() - interval '2 s', now(), 'fail', 'ToolTimeout', 'no answer <b>', "
        "'File secret.py')",
        (task, house.ours),
    )
    for name, shown in (("operator", True), ("root", True), ("viewer", False), ("ours-admin", False)):
        page = house.login(name).get(f"/admin/store/task/{task}/change/")
        assert page.status_code == 200
        assert "Line of states" in page.text and "ToolTimeout" in page.text and "no answer &lt;b&gt;" in page.text
        assert ("secret.py" in page.text) is shown, name
        attempt = house.stage.one("SELECT id FROM attempt")
        detail = house.login(name).get(f"/admin/store/attempt/{attempt}/change/")
        assert detail.status_code == 200 and ("secret.py" in detail.text) is shown, name


def steps_of(page: str) -> list[str]:
    """What the rows of a page's steps say, without times of day."""
    table = page.split("<h2>Steps</h2>")[1].split("<tbody>")[1].split("</tbody>", maxsplit=1)[0]
    rows = (re.sub(r"<[^>]*>", " ", row) for row in table.split("<tr>")[1:])
    return [" ".join(re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "", row).split()) for row in rows]


def test_a_task_page_names_its_task_and_folds_the_beginning_of_a_long_line_of_states(house: House) -> None:
    (task,) = house.stage.submit("noop.single", tenant=house.ours)
    house.stage.connection.execute(
        "UPDATE task_body SET title = 'Sum <b>', tags = '{red,team:a}' WHERE task_id = %s", (task,)
    )
    client = house.login("viewer")
    page = client.get(f"/admin/store/task/{task}/change/").text
    assert "Sum &lt;b&gt;</span> · noop.single" in page and "<dd>red, team:a</dd>" in page and " earlier" not in page
    for seq in range(2, 15):
        house.stage.connection.execute(
            "INSERT INTO event (task_id, tenant_id, seq, at, event, to_state, actor, data) "
            "VALUES (%s, %s, %s, clock_timestamp(), 'x', %s, 'worker llm+db', '{\"delay_s\": 0.1593920835952276}')",
            (task, house.ours, seq, "running" if seq % 2 else "failed_retryable"),
        )
    page = client.get(f"/admin/store/task/{task}/change/").text
    before, shown = page.split("<summary>4 earlier</summary>")[1].split("<h2>Attempts</h2>")[0].split("</details>")
    assert (before.count("h-nowrap"), shown.count("h-nowrap")) == (4, 10)
    assert "worker llm+<wbr>db" in page and "delay: 159 ms" in page


def test_a_task_page_shows_its_steps_and_its_trace_without_them(house: House) -> None:
    task = house.task()
    house.stage.connection.execute(
        "INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data) "
        "VALUES (%s, %s, 2, now(), 'step_started', 'running', 'running', 'worker db', '{}')",
        (task, house.ours),
    )
    with_steps(house.stage, task)
    page = house.login("ours-admin").get(f"/admin/store/task/{task}/change/").text
    assert steps_of(page) == [f"{n} step {n} finished begun 1 times took 0 ms" for n in (1, 2)] + [
        "3 step 3 not finished begun 1 times"
    ]
    assert "step_started" not in page
    house.stage.connection.execute("UPDATE step SET differed_at = now(), key = 'left <b>', begun = 4 WHERE ordinal = 1")
    page = house.login("operator").get(f"/admin/store/task/{task}/change/").text
    assert steps_of(page)[0] == (
        "1 step 1 left &lt;b&gt; finished, but the code that came to it was another begun 4 times took 0 ms"
    )
    house.stage.connection.execute("UPDATE task SET state = 'running', ready = false WHERE id = %s", (task,))
    assert "under way" in steps_of(house.login("viewer").get(f"/admin/store/task/{task}/change/").text)[2]
    without = house.login("operator").get(f"/admin/store/task/{house.task()}/change/").text
    assert "<h2>Steps</h2>" not in without


def test_a_task_page_says_why_it_waits_to_who_may_see_the_task(house: House) -> None:
    task = house.task()
    assert house.stage.epoch is not None
    house.stage.hold_lead()
    reasons.pass_over(house.stage.connection, settings.HARNESS_TOPOLOGY, reasons.Noted(), epoch=house.stage.epoch)
    for name in ("viewer", "ours-admin"):
        page = house.login(name).get(f"/admin/store/task/{task}/change/").content.decode()
        assert "Why it waits" in page and "No db worker is running. It starts when an operator starts one." in page
        assert "Who can free it" in page and "No db worker</td>" in page
    assert house.login("ours-admin").get(f"/admin/store/task/{house.task(house.theirs)}/change/").status_code == 404


def test_every_state_has_a_sentence_a_mark_and_a_colour(root: Any) -> None:
    from harness.web.admin.marks import mark

    css = (root / "harness/web/static/harness/admin.css").read_text()
    for state in State:
        assert "<circle" in mark(state) or "<path" in mark(state)
        assert f".h-s-{state}" in css and css.count(f"--h-{state}:") == 2, "light and dark"


def test_csrf_is_checked(house: House) -> None:
    task = house.task()
    strict = Client(HTTP_HOST="127.0.0.1", enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username="operator"), backend=BACKEND)
    token = token_of(strict.get(page_of(task)).text)
    assert strict.post(page_of(task), {"reason": "x", "_once": token}).status_code == 403
    assert house.stage.state(task) == "queued"

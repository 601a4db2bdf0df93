"""Dead letters in the admin: by reason, one by one, sent again once, and each tenant's admin among its own."""

import json
import re
from typing import Any

from tests.admin.conftest import House
from tests.admin.pages import token_of
from tests.dead_letters import bury, with_steps

PAGES = ("/admin/dead-letters/", "/admin/dead-letters/list/", "/admin/dead-letters/redrive/?kind=noop.single")


def dead(house: House, n: int = 1, message: str = "row {} is odd", tenant: int | None = None, **more: Any) -> list[int]:
    return bury(house.stage, house.stage.submit("noop.single", n=n, tenant=tenant or house.ours, **more), message)


def link(page: str, to: str) -> str:
    found = re.search(rf'href="(/admin/dead-letters/{to}/\?[^"]*reason=[^"]+)"', page)
    assert found, page
    return found[1].replace("&amp;", "&")


def test_reasons_lead_to_letters_and_letters_to_their_tasks(house: House) -> None:
    tasks = dead(house, 3)
    dead(house, 1, "no answer", tenant=house.theirs)
    client = house.login("operator")
    assert "/admin/dead-letters/" in client.get("/admin/").text, "it stands in the menu"
    groups = client.get("/admin/dead-letters/").text
    assert "row N is odd" in groups and "no answer" in groups and "4 tasks have failed for good" in groups
    listed = client.get(link(groups, "list")).text
    assert all(f"row {task} is odd" in listed and f"/admin/store/task/{task}/change/" in listed for task in tasks)
    assert "no answer" not in listed
    only = client.get(f"/admin/dead-letters/?tenant={house.theirs}").text
    assert "no answer" in only and "row N is odd" not in only


def test_all_of_a_reason_are_sent_again_with_a_reason_once(house: House) -> None:
    tasks, (other,) = dead(house, 3), dead(house, 1, "no answer")
    client = house.login("operator")
    at = link(client.get("/admin/dead-letters/").text, "redrive")
    form = client.get(at)
    assert "Send 3 tasks again?" in form.text and "the token" in form.text and "3 attempts" in form.text
    body = {"reason": "the source is mended", "_once": token_of(form.text)}
    assert "Say why" in client.post(at, {**body, "reason": " "}).text
    assert {house.stage.state(task) for task in tasks} == {"failed_terminal"}
    done = client.post(at, body).text
    assert "3 tasks sent again" in done
    assert {house.stage.state(task) for task in tasks} == {"queued"} and house.stage.state(other) == "failed_terminal"
    rows = house.stage.connection.execute("SELECT actor, data FROM event WHERE event = 'redrive'").fetchall()
    assert rows == [("staff:operator", {"reason": "the source is mended", "input": "kept"})] * 3
    bury(house.stage, tasks)
    assert "sent already" in client.post(at, body, follow=True).text
    assert {house.stage.state(task) for task in tasks} == {"failed_terminal"}
    assert "too old" in client.post(at, {"reason": "x", "_once": "x"}).text


def test_letters_tell_their_last_steps_and_the_form_what_becomes_of_them(house: House) -> None:
    (task,) = dead(house)
    with_steps(house.stage, task)
    client = house.login("operator")
    listed = client.get("/admin/dead-letters/list/").text
    assert "steps: step 1 → step 2 → step 3 (not finished)" in listed
    assert (
        "2 finished steps stay and are not done again" in client.get(f"/admin/dead-letters/redrive/?task={task}").text
    )
    form = client.get(f"/admin/store/task/{task}/do/redrive/").text
    assert "2 finished steps stay and are not done again" in form


def test_ticked_letters_go_alone_and_a_token_is_for_what_was_ticked(house: House) -> None:
    first, second, third = dead(house, 3)
    client = house.login("operator")
    at = f"/admin/dead-letters/redrive/?task={first}&task={second}"
    token = token_of(client.get(at).text)
    others = client.post(f"/admin/dead-letters/redrive/?task={third}", {"reason": "x", "_once": token})
    assert "too old" in others.text
    assert "2 tasks sent again" in client.post(at, {"reason": "x", "_once": token}).text
    assert house.stage.state(third) == "failed_terminal"
    nothing = client.get("/admin/dead-letters/redrive/", follow=True)
    assert "Tick the letters" in nothing.text


def test_a_tenants_admin_sees_and_sends_its_own_letters_alone(house: House) -> None:
    (ours,), (theirs,) = dead(house, 1, "ours broke"), dead(house, 1, "theirs broke", tenant=house.theirs)
    client = house.login("ours-admin")
    for page in (
        *PAGES,
        f"/admin/dead-letters/?tenant={house.theirs}",
        f"/admin/dead-letters/list/?tenant={house.theirs}",
    ):
        text = client.get(page).text
        assert "theirs broke" not in text and "theirs-tenant" not in text, page
    at = f"/admin/dead-letters/redrive/?task={ours}&task={theirs}&tenant={house.theirs}"
    assert "Send 1 task again?" in client.get(at).text
    client.post(at, {"reason": "mine", "_once": token_of(client.get(at).text)})
    assert house.stage.state(ours) == "queued" and house.stage.state(theirs) == "failed_terminal"
    every = "/admin/dead-letters/redrive/?kind=noop.single"
    bury(house.stage, [ours])
    client.post(every, {"reason": "mine", "_once": token_of(client.get(every).text)})
    assert house.stage.state(ours) == "queued" and house.stage.state(theirs) == "failed_terminal"


def test_who_may_look_and_who_may_send(house: House) -> None:
    (task,) = dead(house)
    at = f"/admin/dead-letters/redrive/?task={task}"
    viewer = house.login("viewer")
    page = viewer.get("/admin/dead-letters/").text
    assert "row N is odd" in page and "Redrive" not in page
    assert "Redrive" not in viewer.get("/admin/dead-letters/list/").text
    assert viewer.get(at).status_code == 403 and viewer.post(at, {"reason": "x"}).status_code == 403
    loose = house.login("loose")
    assert all(loose.get(page).status_code == 403 for page in PAGES)
    from django.test import Client

    assert Client(HTTP_HOST="127.0.0.1").get("/admin/dead-letters/").status_code == 302
    assert house.stage.state(task) == "failed_terminal"


def test_what_is_refused_is_told_with_its_reason(house: House) -> None:
    gone = bury(house.stage, house.stage.submit("no.such.kind", n=2, tenant=house.ours))
    client = house.login("operator")
    at = "/admin/dead-letters/redrive/?" + "&".join(f"task={task}" for task in (*gone, *dead(house)))
    form = client.get(at).text
    assert "Send 1 task again?" in form and "2: there is no kind" in form
    done = client.post(at, {"reason": "x", "_once": token_of(form)}).text
    assert "1 task sent again" in done and "there is no kind" in done


def test_any_address_is_answered(house: House) -> None:
    dead(house)
    client = house.login("operator")
    for query in (
        "tenant=x",
        "tenant=99999999999999",
        "before=x_y",
        "before=2030-01-01_5",
        "reason=%00",
        "kind=%00",
        "task=-1&task=9e9",
    ):
        for page in ("", "list/", "redrive/"):
            assert client.get(f"/admin/dead-letters/{page}?{query}", follow=True).status_code == 200, (page, query)


def test_pages_go_on_where_the_last_one_ended(house: House) -> None:
    tasks = dead(house, 60)
    client = house.login("operator")
    first = client.get("/admin/dead-letters/list/").text
    older = re.search(r'href="([^"]*before=[^"]+)"', first)
    assert older
    second = client.get(older[1].replace("&amp;", "&")).text
    shown = [task for task in tasks if f"/task/{task}/change/" in second]
    assert shown == tasks[:10]


def test_one_is_sent_again_with_another_input_that_was_looked_at_first(house: House) -> None:
    (task,) = dead(house, input='{"tag": "first"}')
    client = house.login("operator")
    page = client.get(f"/admin/store/task/{task}/change/").text
    assert "All that failed for this reason" in page and f"/admin/store/task/{task}/do/redrive/" in page
    at = f"/admin/store/task/{task}/do/redrive/"
    form = client.get(at).text
    assert "&quot;tag&quot;: &quot;first&quot;" in form and "Kept: the token stays" in form and "1 attempt," in form
    token = token_of(form)
    looked = client.post(at, {"reason": "", "input": '{"tag": "second"}', "_once": token, "_look": "1"}).text
    assert "effects are made under a new token" not in looked, "without a reason the form isn't whole"
    looked = client.post(at, {"reason": "x", "input": '{"tag": "second"}', "_once": token, "_look": "1"}).text
    assert "effects are made under a new token" in looked and "second" in looked
    wrong = client.post(at, {"reason": "x", "input": '{"tag": ""}', "_once": token}).text
    assert "input.tag" in wrong and house.stage.state(task) == "failed_terminal"
    assert "Enter a valid JSON" in client.post(at, {"reason": "x", "input": "{", "_once": token}).text
    done = client.post(at, {"reason": "x", "input": '{"tag": "second"}', "_once": token}, follow=True).text
    assert "Sent again" in done and house.stage.row(task)["token_epoch"] == 1
    bury(house.stage, [task])
    form = client.get(at).text
    client.post(at, {"reason": "as it is", "input": "", "_once": token_of(form)})
    assert (house.stage.state(task), house.stage.row(task)["token_epoch"]) == ("queued", 1)


def test_an_input_too_long_to_edit_leaves_the_field_empty_and_is_kept(house: House) -> None:
    (task,) = dead(house, input='{"tag": "first"}')
    long = json.dumps({"tag": "x" * 20_000})
    house.stage.connection.execute("UPDATE task_body SET input = %s WHERE task_id = %s", (long, task))
    at = f"/admin/store/task/{task}/do/redrive/"
    client = house.login("operator")
    page = client.get(at).text
    field = re.search(r'<textarea name="input"[^>]*>([^<]*)</textarea>', page)
    assert field and field[1].strip() == "" and "20,000 characters aren&#x27;t shown" in page
    client.post(at, {"reason": "again", "input": "", "_once": token_of(page)})
    assert house.stage.state(task) == "queued"
    assert house.stage.one("SELECT length(input->>'tag') FROM task_body WHERE task_id = %s", task) == 20_000

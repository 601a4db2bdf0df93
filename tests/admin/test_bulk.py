"""Verbs on many tasks: a count by state first, then once, with a reason, on the person's own tasks alone."""

import re
import uuid

from harness.store import transitions
from tests.admin.conftest import House
from tests.admin.pages import token_of
from tests.dead_letters import bury

AT = "/admin/store/task/bulk/"


def test_all_that_match_are_counted_by_state_and_acted_on_once(house: House) -> None:
    tasks = house.stage.submit("noop.single", n=230, tenant=house.ours)
    (other,) = house.stage.submit("noop.sleep", tenant=house.ours)
    (dead,) = bury(house.stage, house.stage.submit("noop.single", tenant=house.ours))
    client = house.login("operator")
    listed = client.get("/admin/store/task/?kind=noop.single").text
    assert 'action="/admin/store/task/bulk/"' in listed and 'name="kind" value="noop.single"' in listed
    at = f"{AT}?verb=pause&which=all&kind=noop.single"
    form = client.get(at).text
    assert "Pause 230 tasks?" in form and "kind noop.single" in form and "queued" in form
    assert house.stage.state(tasks[0]) == "queued"
    body = {"reason": "provider away", "_once": token_of(form)}
    done = client.post(at, body).text
    assert "230 tasks done" in done and "Paused." in done
    assert {house.stage.state(task) for task in tasks} == {"paused"}
    assert (house.stage.state(other), house.stage.state(dead)) == ("queued", "failed_terminal")
    assert house.stage.events(tasks[0]) == ["submit", "pause"]
    assert "sent already" in client.post(at, body, follow=True).text
    row = house.stage.connection.execute(
        "SELECT actor, data ->> 'reason' FROM event WHERE event = 'pause' LIMIT 1"
    ).fetchone()
    assert row == ("staff:operator", "provider away")


def test_ticked_tasks_are_acted_on_and_what_is_refused_is_counted_by_reason(house: House) -> None:
    one, two, over = (house.task() for _ in range(3))
    transitions.cancel(house.stage.connection, over, actor="test")
    client = house.login("operator")
    page = client.get("/admin/store/task/").text
    assert f'form="h-bulk" name="task" value="{one}"' in page
    at = f"{AT}?verb=pause&which=ticked&task={one}&task={two}&task={over}"
    form = client.get(at).text
    assert "Pause 3 tasks?" in form
    done = client.post(at, {"reason": "x", "_once": token_of(form)}).text
    assert "2 tasks done" in done and "has ended (cancelled)" in done
    assert [house.stage.state(task) for task in (one, two, over)] == ["paused", "paused", "cancelled"]
    again = f"{AT}?verb=redrive&which=ticked&task={one}&task={over}"
    done = client.post(again, {"reason": "x", "_once": token_of(client.get(again).text)}).text
    assert "1 task done" in done and house.stage.state(over) == "queued"
    urgent = f"{AT}?verb=priority&which=ticked&task={over}"
    done = client.post(urgent, {"reason": "x", "priority": "3", "_once": token_of(client.get(urgent).text)}).text
    assert "1 task done" in done and house.stage.row(over)["priority"] == 3


def test_a_run_is_named_by_the_search_and_its_ended_tasks_are_sent_again(house: House) -> None:
    public = uuid.uuid4()
    run = house.stage.one(
        "INSERT INTO run (public_id, tenant_id, size) VALUES (%s, %s, 2) RETURNING id", public, house.ours
    )
    tasks = bury(house.stage, house.stage.submit("noop.single", n=2, tenant=house.ours, run=run))
    client = house.login("operator")
    at = f"{AT}?verb=redrive&which=all&q={public}"
    form = client.get(at).text
    assert "Redrive 2 tasks?" in form and "failed_terminal" in form
    assert "2 tasks done" in client.post(at, {"reason": "x", "_once": token_of(form)}).text
    assert {house.stage.state(task) for task in tasks} == {"queued"}
    elsewhere = client.get(f"{AT}?verb=redrive&which=all&kind=noop.single")
    assert "Nothing matches" in elsewhere.text, "they are in line again"
    (late,) = bury(house.stage, house.stage.submit("noop.single", tenant=house.ours))
    form = client.get(f"{AT}?verb=redrive&which=all&kind=noop.single").text
    assert "Redrive 1 task?" in form
    client.post(f"{AT}?verb=redrive&which=all&kind=noop.single", {"reason": "x", "_once": token_of(form)})
    assert house.stage.state(late) == "queued"


def test_a_tenants_admin_acts_on_its_own_tasks_alone(house: House) -> None:
    ours, theirs = house.task(), house.task(house.theirs)
    client = house.login("ours-admin")
    for query in (f"kind=noop.single&tenant={house.theirs}", "state=queued", "", f"task={ours}&task={theirs}"):
        at = f"{AT}?verb=pause&{query}" if query else f"{AT}?verb=pause&priority=2"
        form = client.get(at)
        assert "Pause 1 task?" in form.text, query
        client.post(at, {"reason": "mine", "_once": token_of(form.text)})
        assert (house.stage.state(ours), house.stage.state(theirs)) == ("paused", "queued"), query
        back = f"{AT}?verb=resume&kind=noop.single"
        client.post(back, {"reason": "mine", "_once": token_of(client.get(back).text)})
        assert house.stage.state(ours) == "queued"
    at = f"{AT}?verb=pause&task={ours}"
    token = token_of(client.get(at).text)
    stranger = house.login("operator")
    assert "too old" in stranger.post(at, {"reason": "x", "_once": token}).text


def test_who_may_not_act_has_no_bar_and_no_page(house: House) -> None:
    task = house.task()
    viewer = house.login("viewer")
    page = viewer.get("/admin/store/task/").text
    assert "h-bulk" not in page and "h-tick" not in page
    assert viewer.get(f"{AT}?verb=cancel&task={task}").status_code == 403
    assert viewer.post(f"{AT}?verb=cancel&task={task}", {"reason": "x"}).status_code == 403
    assert house.login("loose").get(f"{AT}?verb=cancel&task={task}").status_code == 403
    assert house.stage.state(task) == "queued"


def test_what_cannot_be_meant_is_told_and_nothing_happens(house: House) -> None:
    task = house.task()
    client = house.login("operator")
    for query, told in (
        ("verb=pause&which=all", "filter"),
        ("verb=nonsense&state=queued", "Choose what to do"),
        ("verb=pause&which=ticked", "Tick the tasks first"),
        ("verb=pause&state=odd", "no such state"),
        ("verb=pause&priority=9", "0 to 3"),
        ("verb=pause&q=report", "tick the tasks"),
        ("verb=pause&tenant=999999", "no such tenant"),
    ):
        answer = client.get(f"{AT}?{query}", follow=True)
        assert answer.status_code == 200 and told in answer.text, query
    for kind in ("a%00b", "no.such"):
        assert "there is no" in client.get(f"{AT}?verb=pause&kind={kind}", follow=True).text
    nothing = client.get(f"{AT}?verb=pause&kind=llm.chat")
    assert "Nothing matches" in nothing.text and "There is nothing to do" in nothing.text
    form = client.get(f"{AT}?verb=cancel&state=queued").text
    assert (
        "This field is required"
        in client.post(f"{AT}?verb=cancel&state=queued", {"reason": "", "_once": token_of(form)}).text
    )
    assert re.search(
        "too old", client.post(f"{AT}?verb=cancel&kind=noop.single", {"reason": "x", "_once": token_of(form)}).text
    )
    assert house.stage.state(task) == "queued"

"""A parent that waits for its children is shown as one that waits: nobody has paused it."""

import re

from harness.policy.lifecycle import Event
from harness.store import children, transitions
from harness.store.transitions import Outcome
from tests.admin.conftest import House


def parked(house: House, n: int) -> int:
    """A task that waits for `n` children."""
    stage = house.stage
    task = house.task()
    session = stage.add_session()
    (message,) = stage.tick()
    (claimed,) = stage.claim(message, session)
    made = stage.submit("noop", n=n)
    stage.connection.execute("UPDATE task SET parent_id = %s, linked = true WHERE id = ANY(%s)", (task, made))
    children.link(stage.connection, task, claimed.release_no)
    ranges = ((made[0], n),)
    assert children.wait(stage.connection, task, claimed.release_no, need=n, total=n, ranges=ranges)
    park = Outcome(task=task, release_no=claimed.release_no, event=Event.PARK, slot_s=0.1, hold="children")
    settled = transitions.settle(
        stage.connection, [park], lease=message.lease, token=message.token, session=session, actor="test"
    )
    assert settled == {task: "paused"}
    return task


def test_pages_say_for_how_many_children_a_parent_waits_and_never_that_it_is_paused(house: House) -> None:
    client, task = house.login("operator"), parked(house, 12)
    page = client.get(f"/admin/store/task/{task}/change/").text
    assert re.search(r'<p role="status">Waiting for 12 children since ', page)
    assert "It is waiting for 12 children, and holds no slot meanwhile." in page
    shown = client.get("/admin/store/task/").text
    rows = [row for row in re.findall(r"<tr.*?</tr>", shown, re.S) if f"/task/{task}/change/" in row]
    assert len(rows) == 1 and "waiting_children" in rows[0] and "paused" not in rows[0]
    for text in re.findall(r"<span>([^<]*)</span>", page):
        assert text.strip() != "paused", "the line of states and the trace"


def test_a_parent_that_somebody_paused_too_is_paused(house: House) -> None:
    client, task = house.login("operator"), parked(house, 2)
    house.stage.connection.execute("UPDATE task SET holds = '{children,operator}' WHERE id = %s", (task,))
    page = client.get(f"/admin/store/task/{task}/change/").text
    assert '<p role="status">Paused since ' in page and "It is waiting for 2 children" in page

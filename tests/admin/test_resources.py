"""Resources in the admin: how each stands, and overrides by operators, with a reason, while everything runs."""

import datetime
import json

from django.contrib.admin.models import LogEntry

from harness.engine import operate
from harness.store import resources
from harness.store.resources import Change, ResourceNow
from tests.admin.conftest import House, now
from tests.admin.pages import token_of

PAGE = "/admin/resources/"
ADD = "/admin/store/override/add/"
LIST = "/admin/store/override/"
ON = {"resource": "tool:http", "field": "capacity", "value": "15", "reason": "the key is shared"}


def add(house: House, **more: str) -> str:
    client = house.login("operator")
    form = client.get(ADD)
    return client.post(ADD, ON | more | {"_once": token_of(form.text)}, follow=True).text


def audited(house: House) -> list[tuple[str, str, str]]:
    rows = house.stage.connection.execute(
        "SELECT actor, reason, data ->> 'after' FROM audit_entry WHERE verb = 'resource' ORDER BY id"
    )
    return [(actor, reason, after) for actor, reason, after in rows]


def test_an_override_is_set_seen_and_cleared_each_with_a_reason(house: House) -> None:
    client = house.login("operator")
    assert "Every resource is as resources.toml says." in client.get(LIST).text
    assert f"{ADD}?resource=tool%3Ahttp" in client.get(PAGE).text
    assert '<option value="tool:http" selected>' in client.get(f"{ADD}?resource=tool%3Ahttp").text
    told = add(house)
    assert "was added" in told and "the key is shared" in told and "it is cleared" in told
    page = client.get(PAGE).text
    assert "capacity 15" in page and "staff:operator: the key is shared" in page and "20 → 15" in page
    number = house.stage.one("SELECT id FROM override")
    clear = f"/admin/store/override/{number}/delete/"
    assert "Say why" in client.post(clear, {"post": "yes"}, follow=True).text
    form = client.get(clear).text
    assert "Clear capacity of tool:http?" in form
    body = {"reason": "it has its own again", "_once": token_of(form)}
    assert "capacity 15 -&gt; 20" in client.post(clear, body, follow=True).text
    assert client.get(clear).status_code == 404, "it is over"
    assert "over" in client.get(LIST).text
    assert audited(house) == [
        ("staff:operator", "the key is shared", json.dumps({"capacity": 15})),
        ("staff:operator", "it has its own again", json.dumps({"capacity": 20})),
    ]
    assert LogEntry.objects.filter(change_message="Cleared: it has its own again").count() == 1


def test_the_same_field_is_set_again_and_a_form_sent_twice_acts_once(house: House) -> None:
    add(house)
    assert "was added" in add(house, value="10")
    client = house.login("operator")
    body = ON | {"value": "5", "_once": token_of(client.get(ADD).text)}
    client.post(ADD, body)
    assert "sent already" in client.post(ADD, body, follow=True).text
    rows = house.stage.connection.execute("SELECT value, ended_at IS NULL FROM override ORDER BY id").fetchall()
    assert rows == [(15, False), (10, False), (5, True)]
    assert "<td" in client.get("/admin/store/limitchange/").text and "10 → 5" in client.get(PAGE).text


REFUSED = (
    *(({"value": wrong}, "capacity must be a whole number from 1") for wrong in ("-1", "nan", "inf", "1.5", "many")),
    *(({"field": "rpm", "value": wrong}, "rpm must be a number of requests a minute") for wrong in ("0", "-1", "nan")),
    ({"field": "limiter", "value": "vegas"}, "limiter must be one of fixed, csl"),
    ({"resource": "gpu"}, "Select a valid choice"),
    ({"field": "colour"}, "Select a valid choice"),
    ({"reason": " "}, "This field is required"),
    ({"until_0": "2020-01-01", "until_1": "00:00"}, "must be a moment to come"),
    ({"until_0": "2999-01-01", "until_1": "00:00"}, "until: must be within 366 days"),
)


def test_what_makes_no_sense_is_refused_at_its_field(house: House) -> None:
    client = house.login("operator")
    form = client.get(ADD)
    for more, says in REFUSED:
        form = client.post(ADD, ON | more | {"_once": token_of(form.text)})
        assert form.status_code == 200 and says in form.text, more
    assert house.stage.one("SELECT count(*) FROM override") == 0


def test_an_end_is_kept_and_what_is_over_says_so(house: House) -> None:
    soon = now() + datetime.timedelta(hours=2)
    add(house, until_0=f"{soon:%Y-%m-%d}", until_1=f"{soon:%H:%M:%S}")
    assert f"until {soon:%Y-%m-%d %H:%M:%S}" in house.login("viewer").get(PAGE).text
    house.stage.connection.execute("UPDATE override SET until = now() - interval '1 s'")
    assert "the key is shared (until" not in house.login("viewer").get(PAGE).text


def test_the_page_tells_what_is_out_of_the_ordinary(house: House) -> None:
    later = now().timestamp() + 60
    seen = ResourceNow(
        resource="tool:http",
        limit_now=20,
        breaker="half_open",
        breaker_until_s=later,
        blocked_until_s=later,
        in_flight=1234,
        waiting=7,
    )
    change = Change(resource="tool:http", at_s=None, old=31, new=20, reason="<b>drain</b>", mode="drain")
    resources.keep(house.stage.connection, [seen], [change])
    page = house.login("viewer").get(PAGE).text
    assert "breaker half open until" in page and "blocked until" in page and "1,234" in page
    assert "31 → 20" in page and "&lt;b&gt;drain" in page
    with house.stage.open("staff") as staff:
        operate.set_resource(staff, "tool:http", {"capacity": 0}, actor="jo", reason="it is down")
    assert "closed: nothing uses it" in house.login("viewer").get(PAGE).text


def test_an_override_of_a_resource_that_is_gone_is_told(house: House) -> None:
    house.stage.connection.execute(
        "INSERT INTO override (resource, field, value, author, reason) VALUES ('gone', 'rpm', '5', 'jo', 'x')"
    )
    assert "rpm 5 is set for gone, which isn't in resources.toml any more" in house.login("viewer").get(PAGE).text
    client = house.login("operator")
    clear = f"/admin/store/override/{house.stage.one('SELECT id FROM override')}/delete/"
    client.post(clear, {"reason": "cleaning", "_once": token_of(client.get(clear).text)})
    assert house.stage.one("SELECT count(*) FROM override WHERE ended_at IS NULL") == 0


def test_only_operators_set_and_only_who_sees_every_tenant_looks(house: House) -> None:
    viewer, own, loose = house.login("viewer"), house.login("ours-admin"), house.login("loose")
    assert viewer.get(PAGE).status_code == 200 and ">Override<" not in viewer.get(PAGE).text
    assert viewer.get(ADD).status_code == 403 and viewer.get("/admin/store/limitchange/").status_code == 200
    for client in (own, loose):
        for path in (PAGE, LIST, ADD, "/admin/store/limitchange/"):
            assert client.get(path).status_code == 403, path
    assert 'href="/admin/resources/"' in viewer.get("/admin/").text
    assert 'href="/admin/resources/"' not in own.get("/admin/").text

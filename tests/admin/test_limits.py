"""Limits in the admin: set by operators within bounds, with a reason and an author, while everything runs."""

import json

from django.contrib.admin.models import LogEntry

from tests.admin.conftest import House
from tests.admin.pages import token_of

LIMITS = {"weight": "2", "cap": "7", "backlog_quota": "10", "top_priority": "0", "degrade": "False"}
WHY = {"reason": "they pay for more"}


def audited(house: House) -> list[tuple[str, str, str, dict[str, object]]]:
    cursor = house.stage.connection.execute(
        "SELECT actor, subject, reason, data FROM audit_entry WHERE verb = 'limits' ORDER BY id"
    )
    return [(actor, subject, reason, data) for actor, subject, reason, data in cursor]


def test_an_operator_changes_limits_with_a_reason_and_both_stay(house: House) -> None:
    client = house.login("operator")
    path = f"/admin/store/tenant/{house.ours}/change/"
    unsaid = client.post(path, LIMITS | {"_once": token_of(client.get(path).text)})
    assert unsaid.status_code == 200 and "This field is required" in unsaid.text
    assert house.stage.one("SELECT cap FROM tenant WHERE id = %s", house.ours) == 1000
    client.post(path, LIMITS | WHY | {"_once": token_of(unsaid.text)})
    assert house.stage.one("SELECT cap FROM tenant WHERE id = %s", house.ours) == 7
    ((actor, subject, reason, data),) = audited(house)
    assert (actor, subject, reason) == ("staff:operator", "tenant ours-tenant", "they pay for more")
    assert data["before"] == {"weight": 1.0, "cap": 1000, "backlog_quota": 100_000, "top_priority": 1, "degrade": True}
    assert data["after"] == {"weight": 2.0, "cap": 7, "backlog_quota": 10, "top_priority": 0, "degrade": False}
    told = LogEntry.objects.get(user__username="operator").change_message
    assert told == "Set weight, cap, backlog_quota, top_priority, degrade: they pay for more"
    own = house.login("ours-admin")
    assert own.get(path).status_code == 200
    assert own.post(path, LIMITS | WHY | {"cap": "99"}).status_code in (302, 403)
    assert house.stage.one("SELECT cap FROM tenant WHERE id = %s", house.ours) == 7


REFUSED = (
    *(("weight", wrong, "weight: must be above 0") for wrong in ("0", "-1", "nan", "inf", "-inf", "much", "1e9")),
    *(("cap", wrong, "cap: must be a whole number from 0 (nothing)") for wrong in ("-1", "nan", "inf", "1.5", "9e9")),
    ("backlog_quota", "-7", "backlog_quota: must be a whole number from 0"),
    ("backlog_quota", "99999999999", "to 2,147,483,646"),
)


def test_a_value_that_makes_no_sense_is_refused_with_the_field_and_the_fix(house: House) -> None:
    client = house.login("operator")
    path = f"/admin/store/tenant/{house.ours}/change/"
    form = client.get(path)
    for field, value, says in REFUSED:
        form = client.post(path, LIMITS | WHY | {field: value, "_once": token_of(form.text)})
        assert form.status_code == 200 and says in form.text, (field, value)
    assert house.stage.one("SELECT cap FROM tenant WHERE id = %s", house.ours) == 1000
    assert audited(house) == []


def test_a_tenant_is_made_with_its_limits_or_not_at_all(house: House) -> None:
    client = house.login("operator")
    path = "/admin/store/tenant/add/"
    bad = client.post(path, LIMITS | WHY | {"name": "No Such", "_once": token_of(client.get(path).text)})
    assert "begin with a letter or digit" in bad.text
    client.post(path, LIMITS | WHY | {"name": "new-one", "_once": token_of(bad.text)})
    row = house.stage.connection.execute(
        "SELECT weight, cap, backlog_quota, top_priority FROM tenant WHERE name = 'new-one'"
    ).fetchone()
    assert row == (2.0, 7, 10, 0)
    for name in ("viewer", "ours-admin"):
        assert house.login(name).get(path).status_code == 403


def test_a_quota_of_nothing_is_set_changed_and_cleared_and_the_dispatcher_obeys(house: House) -> None:
    client = house.login("operator")
    add = "/admin/store/quota/add/"
    on = {"tenant": house.ours, "scope": "pool", "name": "tool_read"}
    told = client.post(add, on | WHY | {"name": "gpu", "cap": "1", "_once": token_of(client.get(add).text)})
    assert "choose from" in told.text
    told = client.post(add, on | WHY | {"cap": "-1", "_once": token_of(told.text)})
    assert "cap: must be a whole number from 0 (nothing)" in told.text
    client.post(add, on | WHY | {"cap": "0", "_once": token_of(told.text)})
    number = house.stage.one("SELECT id FROM quota WHERE cap = 0")
    assert number and client.get("/admin/store/quota/").status_code == 200
    house.stage.add_session()
    house.stage.submit("noop.sleep", tenant=house.ours, n=3)
    assert house.stage.tick() == []
    change = f"/admin/store/quota/{number}/change/"
    form = client.get(change)
    client.post(change, {"cap": "2", "reason": "a little", "_once": token_of(form.text)})
    assert len(house.stage.tick()) == 2
    clear = f"/admin/store/quota/{number}/delete/"
    assert "Say why" in client.post(clear, {"post": "yes"}, follow=True).text
    body = {"reason": "no need any more", "_once": token_of(client.get(clear).text)}
    assert "The quota is cleared." in client.post(clear, body, follow=True).text
    assert len(house.stage.tick()) == 1
    assert [(reason, json.dumps(data["after"])) for _, _, reason, data in audited(house)] == [
        ("they pay for more", '{"cap": 0}'), ("a little", '{"cap": 2}'), ("no need any more", '{"cap": null}')
    ]  # fmt: skip
    for name in ("viewer", "ours-admin"):
        assert house.login(name).get(add).status_code == 403

"""What people set in the admin: keys, pauses, quotas, tenants; logins and their throttle; the layers around it."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client

from harness.policy.errors import Conflict, Invalid, NotFound
from harness.store import keys, people
from harness.store.database import connect
from harness.store.models import TraceEvent
from harness.web.admin import paging
from harness.web.admin.layers import check_layers
from harness.web.admin.site import site
from harness.web.admin.work import TraceEventAdmin
from tests.admin.conftest import PASSWORD, House
from tests.admin.pages import token_of


def test_a_key_is_made_once_shown_once_works_and_is_revoked_with_a_reason(house: House) -> None:
    client = house.login("ours-admin")
    form = client.get("/admin/store/apikey/add/")
    body = {"tenant": house.ours, "label": "ci", "scopes": ["read"], "_once": token_of(form.text)}
    made = client.post("/admin/store/apikey/add/", body)
    key = re.search(r"hk_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", made.text)
    assert made.status_code == 200 and key and "no-store" in made["Cache-Control"]
    again = client.post("/admin/store/apikey/add/", body, follow=True)
    assert "sent already" in again.text and key[0] not in again.text
    assert house.stage.one("SELECT count(*) FROM api_key") == 1
    row = house.stage.one("SELECT id FROM api_key")
    for path in ("/admin/store/apikey/", f"/admin/store/apikey/{row}/change/", f"/admin/store/apikey/{row}/history/"):
        shown = client.get(path)
        assert shown.status_code == 200 and key[0] not in shown.text and keys.digest(key[0]) not in shown.text
    with connect(house.stage.url, "web", application_name="test") as web:
        assert keys.authenticate(web, key[0]).tenant.id == house.ours
        page = client.get(f"/admin/store/apikey/{row}/revoke/")
        revoke = {"reason": "leaked", "_once": token_of(page.text)}
        assert house.login("viewer").get(f"/admin/store/apikey/{row}/revoke/").status_code == 403
        client.post(f"/admin/store/apikey/{row}/revoke/", revoke)
        with pytest.raises(keys.Unauthenticated):
            keys.authenticate(web, key[0])
    assert LogEntry.objects.filter(change_message="Revoked: leaked", user__username="ours-admin").count() == 1


def test_a_pause_is_named_by_people_and_obeyed_by_the_dispatcher(house: House) -> None:
    client = house.login("operator")
    house.stage.add_session()
    house.task()

    def pause(scope: str, key: str) -> str:
        form = client.get("/admin/store/pause/add/")
        body = {"scope": scope, "key": key, "reason": "too hot", "_once": token_of(form.text)}
        return client.post("/admin/store/pause/add/", body, follow=True).text

    assert "Nothing is paused." in client.get("/admin/store/pause/").text
    assert "There is no such tenant" in pause("tenant", "nobody")
    assert "There is no such pool" in pause("pool", "gpu")
    assert "tick this to pause it all the same" in pause("priority", "p0")
    told = pause("tenant", "ours-tenant")
    assert "since (utc)" in told.lower() and "until (utc)" in told.lower() and "it is resumed" in told
    assert "was added" in told, told[told.find("errorlist") - 200 : told.find("errorlist") + 600]
    row = house.stage.connection.execute("SELECT scope, key, author, reason, source FROM pause").fetchall()
    assert row == [("tenant", str(house.ours), "staff:operator", "too hot", "operator")]
    assert "paused already" in pause("tenant", "ours-tenant")
    assert house.stage.tick() == []
    number = house.stage.one("SELECT id FROM pause")
    at = f"/admin/store/pause/{number}/delete/"
    assert "Say why" in client.post(at, {"post": "yes"}, follow=True).text
    assert house.stage.one("SELECT count(*) FROM pause WHERE resumed_at IS NULL") == 1, "no reason, no resume"
    form = client.get(at).text
    assert "Resume tenant ours-tenant?" in form
    body = {"reason": "the provider is back", "_once": token_of(form)}
    assert "Resumed." in client.post(at, body, follow=True).text
    assert house.stage.one("SELECT count(*) FROM pause WHERE resumed_at IS NULL") == 0
    noted = house.stage.connection.execute("SELECT actor, reason FROM audit_entry WHERE verb = 'resume'").fetchall()
    assert noted == [("staff:operator", "the provider is back")]
    assert client.get(at).status_code == 404, "it is over"
    assert len(house.stage.tick()) == 1
    for name in ("viewer", "ours-admin"):
        assert house.login(name).get("/admin/store/pause/add/").status_code == 403


def test_lists_page_by_key_and_say_when_they_have_not_looked_at_all(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = house.stage.submit("noop.single", tenant=house.ours, n=120)
    client = house.login("operator")
    first = client.get("/admin/store/task/").text
    assert f"/task/{tasks[-1]}/change/" in first and f"/task/{tasks[0]}/change/" not in first
    older = re.search(r'href="\?([^"]*before=\d+)"', first)
    assert older
    second = client.get(f"/admin/store/task/?{older[1].replace('&amp;', '&')}").text
    assert f"/task/{tasks[-51]}/change/" in second and f"/task/{tasks[-50]}/change/" not in second
    assert client.get("/admin/store/task/?before=nonsense").status_code == 200
    monkeypatch.setattr(paging, "FIRST_WINDOW", 10)
    monkeypatch.setattr(paging, "LOOK_S", 0.0)
    short = client.get("/admin/store/task/?state=paused").text
    assert "Look further back" in short and "0 found so far" in short
    monkeypatch.setattr(paging, "LOOK_S", 5.0)
    assert "None" in client.get("/admin/store/task/?state=paused").text
    public = house.stage.one("SELECT public_id FROM task WHERE id = %s", tasks[3])
    for term in (str(public), str(tasks[3])):
        found = client.get("/admin/store/task/", {"q": term}).text
        assert f"/task/{tasks[3]}/change/" in found and f"/task/{tasks[4]}/change/" not in found
    trace = client.get("/admin/store/traceevent/").text
    assert str(public) not in trace
    cursor = re.search(r'href="\?([^"]*before=\d+-\d+)"', trace)
    assert cursor and client.get(f"/admin/store/traceevent/?{cursor[1]}").status_code == 200


def test_lists_never_count_rows(house: House, django_assert_max_num_queries: object) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    house.task()
    client = house.login("operator")
    for model in ("task", "run", "attempt", "traceevent", "lease", "tenant", "apikey"):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(f"/admin/store/{model}/").status_code == 200
        assert not [query["sql"] for query in queries if "COUNT(" in query["sql"].upper()], model


def test_five_wrong_passwords_lock_a_login_for_a_while(house: House) -> None:
    client = Client(HTTP_HOST="127.0.0.1")
    wrong = {"username": "operator", "password": "guess"}
    for _ in range(4):
        assert client.post("/admin/login/", wrong).status_code == 200
    assert client.post("/admin/login/", wrong).status_code == 429
    right = {"username": "operator", "password": PASSWORD}
    locked = client.post("/admin/login/", right)
    assert locked.status_code == 429 and "Too many tries" in locked.text
    assert client.post("/admin/login/", right, REMOTE_ADDR="10.0.0.9").status_code == 302, "from elsewhere one may"


def test_pages_carry_a_strict_policy_and_nothing_inline(house: House) -> None:
    client = house.login("operator")
    task = house.task()
    for path in ("/admin/", "/admin/store/task/", f"/admin/store/task/{task}/change/", "/admin/store/pause/add/"):
        page = client.get(path)
        policy = page["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self' 'unsafe-eval'" in policy
        assert "'unsafe-inline'" not in policy.replace("style-src-attr 'unsafe-inline'", "")
        # JSON beside a page is data and doesn't run; Unfold for Python 3.12 and newer has some.
        assert not re.search(r'<script(?![^>]*\b(?:src=|type="application/json"))[^>]*>\s*\S', page.text), path
        assert "<style" not in page.text and not re.search(r"\son[a-z]+=", page.text), path
    login = Client(HTTP_HOST="127.0.0.1").get("/admin/login/")
    cookie = login.cookies["harness_csrf"]
    assert cookie["httponly"] and cookie["samesite"] == "Strict" and cookie["path"] == "/admin/"
    assert "Content-Security-Policy" not in Client(HTTP_HOST="127.0.0.1").get("/health/live")


def test_who_has_not_logged_in_is_sent_to_the_login_and_the_api_makes_no_session(house: House) -> None:
    client = Client(HTTP_HOST="127.0.0.1")
    for path in ("/admin/", "/admin/store/task/", "/admin/store/task/1/change/", "/admin/store/task/1/do/cancel/"):
        answer = client.get(path)
        assert answer.status_code == 302 and answer["Location"].startswith("/admin/login/"), path
    assert client.get("/admin")["Location"] == "/admin/"
    assert client.get("/admin/search/").status_code in (302, 404)
    answer = client.get("/api/v1/kinds")
    assert not answer.cookies and answer["Content-Type"] == "application/problem+json"


def test_checks_are_clean_and_find_a_missing_layer(settings: object) -> None:
    call_command("check", fail_level="WARNING")
    for name in ("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE"):
        setattr(settings, name, True)  # as HARNESS_HTTPS=1 does
    settings.SECRET_KEY = "k9" * 20 + "x1y2z3w4v5"  # type: ignore[attr-defined]
    call_command("check", deploy=True, fail_level="WARNING")
    settings.HARNESS_ADMIN_LAYERS = settings.HARNESS_ADMIN_LAYERS[1:]  # type: ignore[attr-defined]
    assert [found.id for found in check_layers()] == ["harness.E001"]


def test_people_are_added_by_command_and_told_what_is_wrong(house: House) -> None:
    with pytest.raises(Invalid, match="a tenant admin needs one"):
        people.add("x", PASSWORD, group="tenant admin")
    with pytest.raises(Invalid, match="password"):
        people.add("x", "password1234", group="viewer")
    with pytest.raises(NotFound, match="no tenant"):
        people.add("x", PASSWORD, group="tenant admin", tenant="nobody")
    with pytest.raises(Conflict, match="already"):
        people.add("viewer", PASSWORD, group="viewer")
    listed = {person.name: person for person in people.people()}
    assert listed["ours-admin"].tenant == "ours-tenant" and listed["root"].superuser


def test_the_long_name_of_a_worker_may_break_between_its_pools() -> None:
    shown = TraceEventAdmin(TraceEvent, site).by(TraceEvent(actor="worker llm+mcp+<b>"))
    assert shown == "worker llm+<wbr>mcp+<wbr>&lt;b&gt;"


def test_findings_of_the_auditor_are_shown_to_who_sees_every_tenant_and_changed_by_nobody(house: House) -> None:
    finding = house.stage.one(
        "INSERT INTO audit_finding (rule, level, subject, tenant_id, facts, found_at, seen_at, seen) "
        """VALUES ('stranded', 'fault', 'task 17', %s, '{"release_no": 3}', now(), now(), 1) RETURNING id""",
        house.ours,
    )
    client = house.login("viewer")
    listed = client.get("/admin/store/auditfinding/")
    assert listed.status_code == 200 and "stranded" in listed.text and "task 17" in listed.text
    page = client.get(f"/admin/store/auditfinding/{finding}/change/")
    assert page.status_code == 200 and "release_no" in page.text
    assert client.post(f"/admin/store/auditfinding/{finding}/change/", {"how": "mine"}).status_code == 403
    assert house.login("root").post(f"/admin/store/auditfinding/{finding}/delete/").status_code == 403
    assert house.login("ours-admin").get("/admin/store/auditfinding/").status_code == 403
    assert house.stage.one("SELECT how FROM audit_finding") == ""


def test_changes_of_the_level_are_shown_to_who_sees_every_tenant_and_changed_by_nobody(house: House) -> None:
    assert "The level has never changed." in house.login("viewer").get("/admin/store/levelchange/").text
    change = house.stage.one(
        "INSERT INTO level_change (at, before, after, signals, done) VALUES (now(), 0, 2, "
        """'{"p1_wait": {"value": 0.6, "score": 1}, "retry_storm": {"value": 0.12, "score": 2}}', 'P3 gives way') """
        "RETURNING id"
    )
    client = house.login("viewer")
    listed = client.get("/admin/store/levelchange/")
    assert listed.status_code == 200 and "normal → high" in listed.text
    assert "retry_storm 0.12, p1_wait 0.6" in listed.text and "P3 gives way" in listed.text
    assert client.get(f"/admin/store/levelchange/{change}/change/").status_code == 200
    assert client.post(f"/admin/store/levelchange/{change}/change/", {"done": "mine"}).status_code == 403
    assert house.login("root").post(f"/admin/store/levelchange/{change}/delete/").status_code == 403
    assert house.login("ours-admin").get("/admin/store/levelchange/").status_code == 403


def test_attempts_are_filtered_by_what_can_end_one_and_by_nothing_else(house: House) -> None:
    page = house.login("viewer").get("/admin/store/attempt/").text
    offered = set(re.findall(r"[?&;]verdict=(\w+)", page))
    assert {"succeed", "fail", "lose", "postpone", "bury", "abort", "halt"} <= offered
    assert not offered & {"submit", "ripen", "claim", "redrive", "approve", "requeue"}

"""A tenant's admin sees that tenant alone: in every list, page, search and choice, and below them in the database."""

from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection
from django.test import RequestFactory

from harness.store import staff
from harness.store.models import Person, Tenant
from harness.store.people import scope_of
from tests.admin.conftest import MAKERS, PASSWORD, House
from tests.admin.pages import token_of

WORD = {"ours": "word-of-ours", "theirs": "word-of-theirs"}


def registered() -> list[tuple[str, Any]]:
    from harness.web.admin.site import site

    return [(model._meta.model_name or "", admin) for model, admin in site._registry.items()]


def with_rows(house: House) -> dict[str, tuple[Any, Any]]:
    """Rows of both tenants in every model that has a maker: model -> (ours, theirs)."""
    return {
        name: (make(house.stage, house.ours, WORD["ours"]), make(house.stage, house.theirs, WORD["theirs"]))
        for name, make in MAKERS.items()
    }


def test_every_registered_model_is_held_to_the_tenant_or_shown_to_nobody_who_has_one(house: House) -> None:
    rows = with_rows(house)
    client = house.login("ours-admin")
    request = RequestFactory().get("/admin/")
    request.user = User.objects.get(username="ours-admin")
    for name, admin in registered():
        base = f"/admin/{admin.opts.app_label}/{name}/"
        if getattr(admin, "tenant_path", None) is None:
            assert not admin.has_view_permission(request), name
            assert client.get(base).status_code == 403, name
            continue
        assert name in rows, f"{name} is registered: give it a maker in tests/admin/conftest.py"
        ours, theirs = rows[name]
        seen = set(admin.get_queryset(request).values_list("pk", flat=True))
        assert ours in seen and theirs not in seen, name
        listed = client.get(base)
        assert listed.status_code == 200, name
        assert "theirs" not in listed.text, name
        for path in (f"{base}{theirs}/change/", f"{base}{theirs}/history/", f"{base}{theirs}/delete/"):
            answer = client.get(path)
            assert answer.status_code in (302, 403, 404) and "theirs" not in answer.text, path
        if admin.search_fields:
            for term in (WORD["theirs"], str(theirs), "theirs-tenant", ""):
                # What was typed stands in the box and in links again; a row would stand in the table.
                found = client.get(base, {"q": term}).text.partition('id="result_list"')[2]
                assert "theirs" not in found.partition("</table>")[0], (name, term)
                assert f"/{name}/{theirs}/change/" not in found, (name, term)
        for lookup in ("tenant=", "tenant_id="):
            assert "word-of-theirs" not in client.get(f"{base}?{lookup}{house.theirs}").text, (name, lookup)
        assert WORD["theirs"] not in client.get(base, {"before": str(2**40)}).text


def test_below_the_lists_the_database_holds_a_tenants_admin_too(house: House) -> None:
    rows = with_rows(house)
    staff.assume()
    try:
        staff.hold_to(house.ours)
        for name in rows:
            model = apps.get_model("store", name)
            found = set(model._default_manager.values_list("pk", flat=True))
            assert rows[name][0] in found and rows[name][1] not in found, name
        assert Tenant.objects.filter(id=house.theirs).update(cap=0) == 0
    finally:
        staff.resign()
    assert Tenant.objects.filter(id=house.theirs).exists()


def test_every_table_of_a_tenants_rows_has_the_policy_that_holds_staff(house: House) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' "
            "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND c.relrowsecurity "
            "AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'staff_held')"
        )
        assert [row[0] for row in cursor.fetchall()] == []


def test_staff_may_not_rewrite_history_nor_make_tasks(house: House) -> None:
    house.task()
    staff.assume()
    try:
        for statement in (
            "DELETE FROM event",
            "UPDATE event SET actor = 'x'",
            "DELETE FROM task",
            "DELETE FROM attempt",
            "INSERT INTO task (tenant_id, kind) VALUES (1, 'x')",
        ):
            with pytest.raises(Exception, match="permission denied"), connection.cursor() as cursor:
                cursor.execute(statement)
    finally:
        staff.resign()


def test_choices_and_autocomplete_offer_a_tenants_admin_its_own_tenant_alone(house: House) -> None:
    client = house.login("ours-admin")
    query = {"app_label": "store", "model_name": "apikey", "field_name": "tenant", "term": ""}
    offered = client.get("/admin/autocomplete/", query)
    assert offered.status_code == 200
    assert [choice["text"] for choice in offered.json()["results"]] == ["ours-tenant"]
    assert "theirs" not in client.get("/admin/store/apikey/add/").text
    forced = client.get("/admin/store/apikey/add/")
    body = {"tenant": house.theirs, "label": "x", "scopes": ["read"], "_once": token_of(forced.text)}
    assert "Select a valid choice" in client.post("/admin/store/apikey/add/", body).text
    assert house.stage.one("SELECT count(*) FROM api_key") == 0


def test_a_login_without_tenant_and_right_sees_nothing_and_a_tie_outlives_its_tenant(house: House) -> None:
    loose = User.objects.get(username="loose")
    assert scope_of(loose) == scope_of(User(username="nobody", is_active=False))
    loose.groups.set(User.objects.get(username="operator").groups.all())
    assert scope_of(User.objects.get(username="loose")).everything
    Person.objects.create(user=loose, tenant_id=house.ours)
    held = scope_of(User.objects.get(username="loose"))
    assert held.tenant == house.ours and not held.everything
    house.stage.connection.execute("DELETE FROM tenant WHERE id = %s", (house.ours,))
    assert scope_of(User.objects.get(username="loose")).tenant == house.ours
    client = house.login("loose")
    task = house.task(house.theirs)
    assert client.get(f"/admin/store/task/{task}/change/").status_code == 404
    assert client.get("/admin/store/task/").status_code == 200


def test_only_superusers_see_logins_and_a_held_one_does_not(house: House) -> None:
    for name, status in (("operator", 403), ("viewer", 403), ("ours-admin", 403), ("root", 200)):
        client = house.login(name)
        assert client.get("/admin/auth/user/").status_code == status, name
    root = User.objects.get(username="root")
    page = house.login("root").get(f"/admin/auth/user/{root.pk}/change/")
    assert page.status_code == 200 and PASSWORD not in page.text
    Person.objects.create(user=root, tenant_id=house.ours)
    assert house.login("root").get("/admin/auth/user/").status_code == 403

"""One tenant never sees or touches another's: at the API, and at the database whatever the API does."""

import uuid
from typing import Any

import psycopg
import pytest
from django.conf import settings

from harness.engine import operate
from harness.policy.errors import NotFound
from harness.store import keys, queries
from harness.store.database import connect
from tests.stage import Stage
from tests.web.conftest import Api, assert_problem

TABLES = (
    "tenant", "quota", "api_key", "idempotency", "run", "task", "task_body", "attempt", "lease", "lease_member",
    "flow", "event",
)  # fmt: skip


def test_another_tenants_ids_are_404_as_ids_that_never_were(api: Api, make_api: Any) -> None:
    other: Api = make_api("other")
    task, run = other.submit().json()["task_id"], other.run().json()["run_id"]
    for theirs, never in ((task, uuid.uuid4()),):
        answers = []
        for one in (theirs, never):
            for method, path in (("GET", ""), ("GET", "/trace"), ("POST", "/cancel")):
                answer = api.http.request(method, f"/api/v1/tasks/{one}{path}")
                problem = assert_problem(answer, 404, "not_found")
                answers.append(problem["detail"].replace(str(one), "ID"))
        assert answers[:3] == answers[3:]  # nothing tells the two apart
    assert_problem(api.http.get(f"/api/v1/runs/{run}"), 404, "not_found")
    assert api.http.get("/api/v1/tasks").json()["items"] == []
    assert api.http.get("/api/v1/tasks", params={"run": run}).json()["items"] == []
    assert other.http.get(f"/api/v1/tasks/{task}").json()["state"] == "queued"


def test_every_route_with_an_id_answers_another_tenants_as_one_that_never_was(api: Api, make_api: Any) -> None:
    other: Api = make_api("other")
    theirs = {"task_id": other.submit().json()["task_id"], "run_id": other.run().json()["run_id"]}
    never = str(uuid.uuid4())
    asked = 0
    for path, methods in api.http.get("/api/openapi.json").json()["paths"].items():
        for name, known in theirs.items():
            if f"{{{name}}}" not in path:
                continue
            for method in methods:
                seen = []
                for one in (known, never):
                    body = {"reason": "mine"} | ({"priority": 2} if path.endswith("/priority") else {})
                    body = {"for": "me"} if path.endswith("-link") else body
                    given: dict[str, Any] = {"json": body} if method == "post" else {}
                    answer = api.http.request(method, path.replace(f"{{{name}}}", one), **given)
                    seen.append(assert_problem(answer, 404, "not_found")["detail"].replace(one, "ID"))
                assert seen[0] == seen[1], path  # nothing tells the two apart
                asked += 1
    assert asked >= 17
    assert other.http.get(f"/api/v1/tasks/{theirs['task_id']}").json()["state"] == "queued"


def test_the_same_idempotency_key_of_two_tenants_makes_two_tasks(api: Api, make_api: Any) -> None:
    other: Api = make_api("other")
    one, two = api.submit(key="k"), other.submit(key="k")
    assert (one.status_code, two.status_code) == (202, 202)
    assert one.json()["task_id"] != two.json()["task_id"]


def test_role_web_sees_nothing_without_a_tenant_and_only_its_own_with_one(api: Api, make_api: Any) -> None:
    other: Api = make_api("other")
    for one in (api, other):
        one.submit(key="a")
        one.run(2)
    stage = Stage(api_url())
    ids = tenant_ids()
    stage.add_session()
    stage.tick()
    stage.close()
    with connect(api_url(), "web", application_name="test") as web:
        for table in TABLES:
            assert web.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
        with queries.as_tenant(web, ids["alpha"]):
            for table in TABLES:
                column = "id" if table == "tenant" else "tenant_id"
                cursor = web.execute(f"SELECT DISTINCT {column} FROM {table}")
                assert {row[0] for row in cursor} <= {ids["alpha"]}, table
            assert web.execute("SELECT count(*) FROM task").fetchone() == (3,)
            assert web.execute("SELECT count(*) FROM api_key").fetchone() == (0,)
        assert web.execute("SELECT count(*) FROM task").fetchone() == (0,)  # the setting ended with the transaction


def test_role_web_cannot_write_for_another_tenant(api: Api, make_api: Any) -> None:
    make_api("other")
    ids = tenant_ids()
    with connect(api_url(), "web", application_name="test") as web:
        for statement in (
            "INSERT INTO run (public_id, tenant_id, size) VALUES (gen_random_uuid(), %(other)s, 1)",
            "INSERT INTO flow (pool, priority, tenant_id, run_id, signature) VALUES ('db', 1, %(other)s, 0, '')",
            "INSERT INTO tenant (name) VALUES ('mine')",
            "UPDATE tenant SET backlog_quota = 1000000000",
            "UPDATE api_key SET revoked_at = NULL",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), queries.as_tenant(web, ids["alpha"]):
                web.execute(statement, {"other": ids["other"]})


def test_a_verb_under_one_tenant_leaves_the_connection_without_a_tenant(api: Api, make_api: Any) -> None:
    other: Api = make_api("other")
    task = uuid.UUID(other.submit().json()["task_id"])
    mine = uuid.UUID(api.submit().json()["task_id"])
    ids = tenant_ids()
    with connect(api_url(), "web", application_name="test") as web:
        with pytest.raises(NotFound):
            operate.cancel(web, task, tenant=ids["alpha"], actor="test")
        assert operate.cancel(web, mine, tenant=ids["alpha"], actor="test").outcome == "cancelled"
        assert web.execute("SELECT count(*) FROM task").fetchone() == (0,)


def api_url() -> str:
    return str(settings.DATABASE_URL)


def tenant_ids() -> dict[str, int]:
    return {tenant.name: tenant.id for tenant in keys.tenants()}

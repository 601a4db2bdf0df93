"""`manage.py tenant set` and `manage.py quota`: limits by operators, and what they say to values that make no sense."""

import getpass
import json

import psycopg
import pytest
from django.core.management import CommandError

from harness.store import keys
from harness.store.database import connect
from tests.ops.test_operators import run

WHY = ("--reason", "they pay for more")
NO_WEIGHTS = ("0", "-1", "nan", "inf", "-inf", "1e-9", "1e9", "much")
NO_COUNTS = ("-1", "nan", "inf", "1.5", "9999999999", "many", "")


def test_limits_change_while_running_and_the_audit_keeps_who_why_and_from_what(database_url: str) -> None:
    keys.create_tenant("acme")
    told = run("tenant", "set", "acme", "--weight", "2.5", "--cap", "0", "--top-priority", "P0", *WHY)
    assert "weight 1 -> 2.5, cap 1,000 -> 0 (nothing), top_priority P1 -> P0" in told and "within a second" in told
    assert "as it was" in run("tenant", "set", "acme", "--cap", "0", *WHY)
    assert "degrade yes -> no" in run("tenant", "set", "acme", "--degrade", "no", *WHY)
    (tenant,) = keys.tenants()
    assert not tenant.degrade
    assert (tenant.weight, tenant.cap, tenant.top_priority, tenant.backlog_quota) == (2.5, 0, 0, 100_000)
    assert "cap none -> 5" in run("quota", "set", "acme", "pool", "browser", "5", *WHY)
    assert "cap 5 -> 0 (nothing)" in run("quota", "set", "acme", "pool", "browser", "0", *WHY)
    run("quota", "set", "acme", "resource", "llm:default", "3", *WHY)
    assert json.loads(run("quota", "list", "acme", "--json")) == [
        {"tenant": "acme", "scope": "pool", "name": "browser", "cap": 0},
        {"tenant": "acme", "scope": "resource", "name": "llm:default", "cap": 3},
    ]
    assert "cap 0 (nothing) -> none" in run("quota", "clear", "acme", "pool", "browser", *WHY)
    assert "llm:default" in run("quota", "list") and "browser" not in run("quota", "list")
    with connect(database_url, "staff", application_name="test") as connection:
        noted = connection.execute("SELECT actor, subject, reason FROM audit_entry WHERE verb = 'limits' ORDER BY id")
        who = f"operator:{getpass.getuser()}"
        assert [row[0:3:2] for row in noted.fetchall()] == [(who, WHY[1])] * 6


REFUSED = (
    *((("tenant", "set", "acme", f"--weight={wrong}", *WHY), "weight: must be above 0") for wrong in NO_WEIGHTS),
    *((("tenant", "create", "b", f"--weight={wrong}"), "weight: must be above 0") for wrong in NO_WEIGHTS),
    *((("tenant", "set", "acme", f"--cap={wrong}", *WHY), "cap: must be a whole number") for wrong in NO_COUNTS),
    *((("tenant", "create", "b", f"--cap={wrong}"), "cap: must be a whole number from 0") for wrong in NO_COUNTS),
    *((("quota", "set", "acme", "pool", "llm", *WHY, "--", wrong), "cap: must be a whole") for wrong in NO_COUNTS),
    (("tenant", "set", "acme", "--backlog-quota=-1", *WHY), "backlog_quota: must be a whole number from 0"),
    (("tenant", "set", "acme", "--top-priority", "p4", *WHY), "top_priority: must be 0"),
    (("tenant", "set", "acme", "--degrade", "maybe", *WHY), "degrade: must be yes or no, not 'maybe'"),
    (("tenant", "set", "acme", *WHY), "nothing to set: give --weight"),
    (("tenant", "set", "acme", "--cap", "1", "--reason", " "), "reason: say why"),
    (("tenant", "set", "nobody", "--cap", "1", *WHY), "manage.py tenant list"),
    (("quota", "set", "nobody", "pool", "llm", "1", *WHY), "manage.py tenant list"),
    (("quota", "set", "acme", "pool", "gpu", "1", *WHY), "no pool 'gpu'; choose from browser, cpu"),
    (("quota", "set", "acme", "pool", "system", "1", *WHY), "no pool 'system'"),
    (
        ("quota", "set", "acme", "resource", "gpu", "1", *WHY),
        "no resource 'gpu'; choose from browser, db:main, llm:default",
    ),
    (("quota", "clear", "acme", "pool", "llm", *WHY), "no quota on pool 'llm'; `manage.py quota list acme`"),
    (("quota", "list", "nobody"), "manage.py tenant list"),
)


def test_a_limit_that_makes_no_sense_is_refused_with_the_field_and_the_fix(database_url: str) -> None:
    keys.create_tenant("acme")
    for words, says in REFUSED:
        with pytest.raises(CommandError) as raised:
            run(*words)
        assert says in str(raised.value), words
    assert [(one.name, one.weight, one.cap) for one in keys.tenants()] == [("acme", 1.0, 1000)]
    assert json.loads(run("quota", "list", "--json")) == []


def test_the_database_refuses_it_too(database_url: str) -> None:
    keys.create_tenant("acme")
    quota = "INSERT INTO quota (tenant_id, scope, name, cap) SELECT id, {} FROM tenant"
    statements = (
        *(f"UPDATE tenant SET weight = {wrong}" for wrong in ("0", "-1", "'NaN'", "'Infinity'", "'-Infinity'")),
        *("UPDATE tenant SET cap = -1", "UPDATE tenant SET top_priority = 4"),
        *(quota.format("'pool', 'llm', -1"), quota.format("'machine', 'llm', 1")),
    )
    with connect(database_url, "engine", application_name="test") as connection:
        for statement in statements:
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.execute(statement)

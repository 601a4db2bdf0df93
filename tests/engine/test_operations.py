"""What the operations page counts, against what was put there: what waits and where, retries, refusals."""

import json

import pytest

from harness.store import operations
from tests.stage import Stage


def test_what_waits_is_counted_by_pool_priority_and_tenant_whatever_holds_it(stage: Stage) -> None:
    other = stage.add_tenant("other")
    stage.submit("noop.single", 5)
    stage.submit("noop.single", 3, priority=0)
    stage.submit("llm.chat", 2, tenant=other, priority=3)
    stage.connection.execute(
        "INSERT INTO pause (scope, key, source, author, reason) VALUES ('pool', 'llm', 'operator', 'x', 'x')"
    )
    stage.connection.execute("UPDATE task SET created_at = created_at - interval '1 hour' WHERE priority = 0")
    stage.tick()
    found = {(one.pool, one.priority, one.tenant): one for one in operations.waiting(stage.connection)}
    assert {key: one.n for key, one in found.items()} == {
        ("db", 0, stage.tenant): 3,
        ("db", 2, stage.tenant): 5,
        ("llm", 3, other): 2,
    }
    assert found["db", 0, stage.tenant].age_s == pytest.approx(3600.0, abs=60.0)
    stage.add_session({"db": 8})
    stage.tick()
    assert [(one.pool, one.n) for one in operations.waiting(stage.connection)] == [("llm", 2)]
    now = operations.now(stage.connection)
    assert now.in_use == {"db": 8} and now.zombies == {"db": 0} and now.leads and now.leader == "test"


def test_retries_and_refusals_are_told(stage: Stage) -> None:
    assert (operations.now(stage.connection).retries, operations.refused(stage.connection, minutes=10)) == (0, [])
    stage.connection.execute(
        "INSERT INTO door_answer (at, tenant_id, pool, priority, signature, code, reason, tasks, once) "
        "SELECT now(), %s, 'llm', 3, '', code, 'pressure', n, 0 "
        "FROM (VALUES ('overload', 7), ('over_quota', 2), ('deferred', 5)) AS x(code, n)",
        (stage.tenant,),
    )
    (found,) = operations.refused(stage.connection, minutes=10)
    assert (found.name, found.refused, found.deferred) == ("acme", 9, 5)


def test_acts_of_people_are_told_newest_first_and_only_those_of_everyones_work(stage: Stage) -> None:
    for verb in ("pause", "tenant.delete", "resume"):
        stage.connection.execute(
            "INSERT INTO audit_entry (actor, verb, subject, reason, data) VALUES ('ana', %s, 'pool llm', 'why', %s)",
            (verb, json.dumps({"verb": verb})),
        )
    assert [(one.verb, one.data) for one in operations.acts(stage.connection, most=5)] == [
        ("resume", {"verb": "resume"}),
        ("pause", {"verb": "pause"}),
    ]

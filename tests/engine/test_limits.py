"""Limits while everything runs: a cap of nothing, one lowered below what is in flight, quotas."""

import dataclasses
import uuid
from typing import Any

import pytest
from django.test import override_settings

from harness.engine import operate, submit
from harness.engine.submit import Door, RunRequest, TaskRequest
from harness.kinds import registry
from harness.policy.admission import Forbidden, TenantFacts
from harness.policy.errors import Invalid
from harness.policy.resources import Resource
from harness.policy.settings import Topology
from harness.store.backlog import insert_run
from tests.stage import Stage

BY: dict[str, Any] = {"actor": "test", "reason": "to see"}


def topology(**capacities: int) -> Topology:
    """Return the test's topology with other resources, held by the task."""
    from django.conf import settings

    resources = {name: Resource(name=name, held="task", capacity=n) for name, n in capacities.items()}
    return dataclasses.replace(settings.HARNESS_TOPOLOGY, resources=resources)


def in_flight(stage: Stage) -> int:
    return int(stage.one("SELECT count(*) FROM lease"))


def end_one(stage: Stage) -> None:
    """As if one of what is released had been cancelled before it began: its slot is free."""
    task = stage.one("SELECT public_id FROM task JOIN lease_member m ON m.task_id = task.id ORDER BY task.id LIMIT 1")
    with stage.open("staff") as staff:
        operate.cancel(staff, task, tenant=None, actor="test")


def test_a_cap_of_nothing_lets_nothing_start_and_a_raised_one_does(stage: Stage) -> None:
    stage.add_session()
    stage.submit("noop.sleep", n=3)
    with stage.open("staff") as staff:
        operate.set_tenant(staff, "acme", cap=0, **BY)
        assert stage.tick() == []
        operate.set_tenant(staff, "acme", cap=2, **BY)
        assert len(stage.tick()) == 2


def test_a_cap_lowered_below_what_is_in_flight_stops_nothing_and_starts_nothing_until_enough_has_ended(
    stage: Stage,
) -> None:
    stage.add_session({"tool_read": 8})
    stage.submit("noop.sleep", n=8)
    assert len(stage.tick()) == 8
    stage.submit("noop.sleep", n=4)
    with stage.open("staff") as staff:
        operate.set_tenant(staff, "acme", cap=6, **BY)
    for left in (7, 6):
        end_one(stage)
        assert stage.tick() == [] and in_flight(stage) == left
    end_one(stage)
    assert len(stage.tick()) == 1 and in_flight(stage) == 6


@pytest.mark.parametrize("pool", ["tool_read", "db", "llm"])
def test_a_tenant_may_be_capped_on_any_pool_and_others_go_on(stage: Stage, pool: str) -> None:
    kind = next(one.name for one in registry.all_kinds() if one.pool == pool and not one.bundle)
    stage.add_session({pool: 8})
    other = stage.add_tenant("other")
    stage.submit(kind, n=5)
    stage.submit(kind, n=5, tenant=other)
    with stage.open("staff") as staff:
        operate.set_quota(staff, "acme", "pool", pool, 1, **BY)
    assert len(stage.tick()) == 6
    assert stage.one("SELECT count(*) FROM lease WHERE tenant_id = %s", stage.tenant) == 1


def test_a_tenant_may_be_capped_on_any_resource_by_what_its_tasks_hold_of_it(stage: Stage) -> None:
    with override_settings(HARNESS_TOPOLOGY=topology(browser=8, licence=8)):
        stage.add_session({"tool_read": 8})
        stage.submit("noop.sleep", n=5, signature="browser=2")
        stage.submit("noop.sleep", n=2, signature="licence=1")
        with stage.open("staff") as staff:
            operate.set_quota(staff, "acme", "resource", "browser", 5, **BY)
        assert len(stage.tick()) == 4, "two that hold two each, of five, and what needs none"
        with stage.open("staff") as staff:
            operate.set_quota(staff, "acme", "resource", "browser", 1, **BY)
        assert stage.tick() == []


def test_a_resources_own_cap_holds_each_tenant_that_has_no_quota_on_it(stage: Stage) -> None:
    configured = topology(browser=8)
    capped = dataclasses.replace(configured.resources["browser"], tenant_cap=2)
    with override_settings(HARNESS_TOPOLOGY=dataclasses.replace(configured, resources={"browser": capped})):
        stage.add_session({"tool_read": 20})
        others = [stage.add_tenant(name) for name in ("other", "third")]
        for tenant in (stage.tenant, *others):
            stage.submit("noop.sleep", n=4, signature="browser=1", tenant=tenant)
        with stage.open("staff") as staff:
            operate.set_quota(staff, "third", "resource", "browser", 3, **BY)
        stage.tick()
        stage.tick()
        held = stage.connection.execute("SELECT tenant_id, count(*) FROM lease GROUP BY 1").fetchall()
        assert dict(held) == {stage.tenant: 2, others[0]: 2, others[1]: 3}
        stage.submit("noop.sleep", n=1)
        assert len(stage.tick()) == 1, "what doesn't need it goes on"


def test_what_needs_a_resource_that_is_gone_waits_and_the_rest_of_its_run_goes_on(stage: Stage) -> None:
    run = insert_run(
        stage.connection, public_id=uuid.uuid4(), tenant=stage.tenant, name="", size=4, fanout_cap=None
    )  # fmt: skip
    with override_settings(HARNESS_TOPOLOGY=topology(browser=2)):
        stage.add_session({"tool_read": 8})
        stage.submit("noop.sleep", n=2, run=run, signature="browser=1")
    stage.submit("noop.sleep", n=2, run=run)
    with override_settings(HARNESS_TOPOLOGY=topology()):
        assert len(stage.tick()) == 2
        assert stage.one("SELECT count(*) FROM lease WHERE signature <> ''") == 0
    with override_settings(HARNESS_TOPOLOGY=topology(browser=2)):
        assert len(stage.tick()) == 2, "it is back"


def test_a_task_that_needs_more_of_a_resource_than_exists_is_refused_with_the_figure(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = registry.find("noop.sleep")
    assert kind is not None
    monkeypatch.setitem(registry._KINDS, kind.name, dataclasses.replace(kind, resources={"browser": 3, "gone": 1}))
    facts = TenantFacts(id=stage.tenant, name="acme", top_priority=0, backlog_quota=100)
    door = Door(body_max_bytes=10_000)
    request = TaskRequest(kind=kind.name, input={"tag": "x", "i": 0, "ts": 0.0, "sleep_s": 0.0})
    with override_settings(HARNESS_TOPOLOGY=topology(browser=2)), stage.open("web") as web:
        with pytest.raises(Invalid) as raised:
            submit.submit(door, web, facts, [request], actor="test")
        assert raised.value.field == "kind" and "needs 3 of 'browser', and there are 2 in all" in raised.value.message
        told = raised.value.facts["errors"]
        assert isinstance(told, list) and "'gone', which resources.toml doesn't have" in told[1]["message"]
        with pytest.raises(Invalid) as raised:
            submit.submit_run(door, web, facts, RunRequest(nodes=[request] * 2), actor="test")
        assert raised.value.field == "nodes[0].kind"
    with override_settings(HARNESS_TOPOLOGY=topology(browser=3, gone=1)), stage.open("web") as web:
        submit.submit(door, web, facts, [request], actor="test")
    assert stage.one("SELECT count(*) FROM task") == 1


def test_p0_is_by_permission_at_every_door_and_a_permission_given_holds_at_once(stage: Stage) -> None:
    (task,) = stage.submit("noop.sleep")
    public = stage.one("SELECT public_id FROM task WHERE id = %s", task)
    door = Door(body_max_bytes=10_000)
    urgent = TaskRequest(kind="noop", input={"tag": "x"}, priority=0)

    def facts() -> TenantFacts:
        top = stage.one("SELECT top_priority FROM tenant WHERE id = %s", stage.tenant)
        return TenantFacts(id=stage.tenant, name="acme", top_priority=top, backlog_quota=100)

    with stage.open("web") as web, stage.open("staff") as staff:
        mine: dict[str, Any] = {"tenant": stage.tenant, "actor": "key"}
        for ask in (
            lambda: submit.submit(door, web, facts(), [urgent], actor="key"),
            lambda: submit.submit_run(door, web, facts(), RunRequest(nodes=[urgent]), actor="key"),
            lambda: operate.priority(web, public, priority=0, **mine),
            lambda: operate.bulk(web, "priority", operate.Filter(tenant=stage.tenant), priority=0, **mine),
        ):
            with pytest.raises(Forbidden):
                ask()
        operate.set_tenant(staff, "acme", top_priority=0, **BY)
        submit.submit(door, web, facts(), [urgent], actor="key")
        assert operate.priority(web, public, priority=0, **mine).outcome == "reprioritised"

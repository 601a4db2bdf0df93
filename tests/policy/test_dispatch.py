"""The plan of a tick: invariants as properties, for pools of 1 to 50 slots."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings

from harness.policy.dispatch import BUNDLE_MAX, BUNDLE_S, LOST_STARTS_QUARANTINE, Facts, FlowFacts, Head, Plan, plan
from tests.policy.facts import BUNDLING, KINDS, facts


def members(decided: Plan, **of: Any) -> int:
    return sum(
        len(pick.tasks)
        for pick in decided.picks
        if all(getattr(pick.flow, name) == value for name, value in of.items())
    )


@given(facts())
@settings(max_examples=400, deadline=None)
def test_no_cap_is_exceeded_by_a_plan(given_facts: Facts) -> None:
    decided = plan(given_facts)
    assert len(decided.picks) <= max(0, given_facts.free)
    assert sum(pick.quarantine for pick in decided.picks) <= given_facts.quarantine_free
    for flow in given_facts.flows:
        mine = members(decided, tenant=flow.tenant)
        if mine:
            assert given_facts.tenant_in_flight.get(flow.tenant, 0) + mine <= flow.tenant_cap
        if flow.run and flow.run_cap is not None and members(decided, run=flow.run):
            assert given_facts.run_in_flight.get(flow.run, 0) + members(decided, run=flow.run) <= flow.run_cap
    for resource, room in given_facts.resource_room.items():
        used = sum(dict(pick.flow.needs).get(resource, 0) for pick in decided.picks)
        assert used <= room
    for (tenant, scope, name), room in given_facts.quota_room.items():
        mine_picks = [pick for pick in decided.picks if pick.flow.tenant == tenant]
        used = (
            sum(len(pick.tasks) for pick in mine_picks)
            if scope == "pool"
            else sum(dict(pick.flow.needs).get(name, 0) for pick in mine_picks)
        )
        assert used <= room


@given(facts())
@settings(max_examples=200, deadline=None)
def test_a_plan_is_deterministic_and_does_not_depend_on_the_order_of_the_flows(given_facts: Facts) -> None:
    decided = plan(given_facts)
    assert plan(given_facts) == decided
    assert plan(replace(given_facts, flows=tuple(reversed(given_facts.flows)))).picks == decided.picks


@given(facts())
@settings(max_examples=200, deadline=None)
def test_each_flow_is_served_oldest_first_without_gaps(given_facts: Facts) -> None:
    decided = plan(given_facts)
    for flow in given_facts.flows:
        taken = [task for pick in decided.picks if pick.flow.id == flow.id for task in pick.tasks]
        # All but those that wait for a slot of quarantine, which keep nobody waiting.
        quarantined = {head.task for head in flow.heads if head.lost_starts >= LOST_STARTS_QUARANTINE} - set(taken)
        assert taken == [head.task for head in flow.heads if head.task not in quarantined][: len(taken)]


@given(facts())
@settings(max_examples=200, deadline=None)
def test_while_slots_remain_every_waiting_flow_has_a_reason(given_facts: Facts) -> None:
    decided = plan(given_facts)
    for flow in given_facts.flows:
        if members(decided, id=flow.id) < len(flow.heads):
            assert flow.id in decided.held
            if len(decided.picks) < given_facts.free:
                assert decided.held[flow.id] != "slots"


@given(facts())
@settings(max_examples=200, deadline=None)
def test_bundles_are_short_one_kind_and_never_p0_or_single(given_facts: Facts) -> None:
    for pick in plan(given_facts).picks:
        if len(pick.tasks) == 1:
            continue
        heads = {head.task: head for head in pick.flow.heads}
        assert pick.flow.priority != 0
        assert not pick.quarantine
        assert pick.kind in BUNDLING
        assert {heads[task].kind for task in pick.tasks} == {pick.kind}
        assert not any(heads[task].single or heads[task].lost_starts for task in pick.tasks)
        assert len(pick.tasks) * KINDS[pick.kind] <= BUNDLE_S + 1e-9
        assert len(pick.tasks) <= BUNDLE_MAX


@given(facts())
@settings(max_examples=200, deadline=None)
def test_no_lower_priority_is_picked_before_an_eligible_higher_one(given_facts: Facts) -> None:
    decided = plan(given_facts)
    picked = [pick.flow.priority for pick in decided.picks]
    for position, priority in enumerate(picked):
        for later in decided.picks[position + 1 :]:
            if later.flow.priority < priority:
                # Only possible when the more urgent flow was blocked at that time; room never grows within a plan.
                raise AssertionError((priority, later.flow.priority))


def flow(flow_id: int, tenant: int, n: int, **more: Any) -> FlowFacts:
    values: dict[str, Any] = {
        "id": flow_id,
        "priority": 2,
        "tenant": tenant,
        "run": 0,
        "signature": "",
        "rank": float(flow_id),
        "tenant_cap": 1000,
        "run_cap": None,
        "heads": tuple(Head(task=flow_id * 1_000_000 + i, kind="long") for i in range(n)),
    }
    return FlowFacts(**(values | more))


def one_pool(flows: tuple[FlowFacts, ...], free: int, **more: Any) -> Facts:
    values: dict[str, Any] = {
        "pool": "db",
        "free": free,
        "quarantine_free": 1,
        "flows": flows,
        "tenant_in_flight": {},
        "run_in_flight": {},
        "resource_room": {},
        "quota_room": {},
        "estimates": KINDS,
        "bundling": BUNDLING,
    }
    return Facts(**(values | more))


def test_the_victims_picks_are_the_same_whatever_the_elephants_backlog() -> None:
    def victims(backlog: int) -> list[tuple[int, ...]]:
        decided = plan(one_pool((flow(1, 1, backlog), flow(2, 2, 3), flow(3, 3, 1)), free=6))
        return [pick.tasks for pick in decided.picks if pick.flow.tenant != 1]

    assert victims(10) == victims(10_000)
    assert len(victims(10)) == 3  # two slots each, and tenant 3 has but one task


def test_a_blocked_flow_does_not_hold_up_the_others() -> None:
    blocked = tuple(flow(i, i, 1, needs=(("llm", 1),), signature="llm=1") for i in range(1, 51))
    decided = plan(one_pool((*blocked, flow(99, 99, 1)), free=1, resource_room={"llm": 0}))
    assert [pick.flow.id for pick in decided.picks] == [99]
    assert set(decided.held.values()) == {"resource:llm"}


def test_a_backlog_of_short_work_is_bundled_and_a_few_tasks_are_spread_over_the_slots() -> None:
    many = flow(1, 1, 0, heads=tuple(Head(task=i, kind="short") for i in range(500)))
    assert [len(pick.tasks) for pick in plan(one_pool((many,), free=4)).picks] == [50] * 4
    few = flow(1, 1, 0, heads=tuple(Head(task=i, kind="short") for i in range(4)))
    assert [len(pick.tasks) for pick in plan(one_pool((few,), free=4)).picks] == [1] * 4


def test_a_task_that_lost_two_workers_goes_through_quarantine() -> None:
    killer = flow(1, 1, 0, heads=(Head(task=7, kind="long", lost_starts=2, single=True), Head(task=8, kind="long")))
    (first,) = plan(one_pool((killer,), free=1)).picks
    assert first.quarantine
    waits = plan(one_pool((killer,), free=2, quarantine_free=0))
    assert [pick.tasks for pick in waits.picks] == [(8,)], "it keeps nobody of its flow waiting"
    assert waits.held == {1: "quarantine"}

"""Caps beside others: soft cap, fan-out of long tasks, headroom, and what a scarce resource costs."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.lanes import AGED
from harness.policy.quota import fan_out_cap, headroom, soft_cap
from harness.policy.room import InFlight, measure
from tests.policy.facts import NOW_S, POOL, Given, flow, heads

SLOTS = st.integers(1, 200)


@given(SLOTS)
def test_beside_others_every_pool_leaves_something_and_never_stops_anybody_altogether(slots: int) -> None:
    assert 1 <= soft_cap(slots) <= slots
    assert soft_cap(slots) == slots or slots >= 10
    assert 1 <= fan_out_cap(slots) <= max(1, slots - 1)


@given(SLOTS, st.floats(0, 1e4), st.booleans())
def test_headroom_is_one_slot_of_a_large_slow_pool_where_p0_is_expected(
    slots: int, mean_s: float, expected: bool
) -> None:
    assert headroom(slots, mean_s, p0_expected=expected) == int(slots >= 10 and expected and mean_s > 2.5 * slots)


def test_a_tenant_alone_may_have_the_whole_pool_and_beside_another_all_but_a_tenth() -> None:
    alone = Given(slots=20, tasks={flow(1, 1): heads(1, 99)})
    assert len(alone.plan().picks) == 20
    line = alone.line()
    line.at_s = NOW_S
    line.add(flow(2, 2), NOW_S)
    line.forget([2])  # the other has been here a moment ago
    assert len(alone.plan(line, now_s=NOW_S + 500).picks) == 18
    assert len(alone.plan(line, now_s=NOW_S + 700).picks) == 20
    urgent = Given(slots=20, tasks={flow(1, 1, priority=0): heads(1, 99), flow(2, 2): heads(2, 0)})
    assert len(urgent.plan().picks) == 20, "P0 has no soft cap"


def test_a_run_of_long_tasks_beside_others_leaves_them_a_slot() -> None:
    facts = Given(slots=2, tasks={flow(1, 1, run=11): heads(1, 9), flow(2, 2): ()})
    line = facts.line()
    line.accounts[AGED].mean_s = 0.1  # `long` is 5 s: 50 times as much
    plan = facts.plan(line)
    assert len(plan.picks) == 1
    assert plan.held == {1: "fan_out"}
    alone = Given(slots=2, tasks={flow(1, 1, run=11): heads(1, 9)})
    line = alone.line()
    line.accounts[AGED].mean_s = 0.1
    assert len(alone.plan(line).picks) == 2


def test_a_task_costs_as_many_slots_as_its_scarcest_resource_could_serve_with() -> None:
    tasks = {flow(1, 1, signature="browser=1,llm=2"): heads(1, 1), flow(2, 2): heads(2, 1)}
    plan = Given(slots=20, tasks=tasks, capacities={"browser": 8, "llm": 4}).plan()
    assert {pick.flow.id: (pick.cost, pick.est_s) for pick in plan.picks} == {1: (10.0, 5.0), 2: (1.0, 5.0)}


def test_a_quota_holds_one_tenant_on_one_resource_and_its_other_work_goes_on() -> None:
    tasks = {
        flow(1, 1, signature="llm=1"): heads(1, 9),
        flow(2, 1): heads(2, 1),
        flow(3, 3, signature="llm=1"): heads(3, 1),
    }
    flight = (InFlight(POOL, None, 1, 0, "llm=1", 2, 2, 2),)
    facts = Given(slots=9, tasks=tasks, capacities={"llm": 9}, quotas=((1, "resource", "llm", 3),), flight=flight)
    plan = facts.plan()
    assert sorted(pick.flow.id for pick in plan.picks) == [1, 2, 3]
    assert plan.held == {1: "quota:llm"}


def test_p0_alone_takes_what_a_resource_has_for_it_beyond_the_others() -> None:
    tasks = {
        flow(1, 1, signature="llm=1"): heads(1, 9),
        flow(2, 2, priority=0, signature="llm=1"): heads(2, 9),
    }
    given_ = Given(slots=20, tasks=tasks, capacities={"llm": 2})
    room = given_.room()
    room.urgent = {"llm": 3}
    picked = [pick.flow.priority for pick in given_.plan(room=room).picks]
    assert len(picked) == 5 and picked.count(2) <= 2 and picked[-1] == 0
    room = given_.room()
    assert len(given_.plan(room=room).picks) == 2


def test_a_resources_cap_for_each_tenant_counts_what_it_holds_and_a_quota_goes_before_it() -> None:
    tasks = {flow(i, i, signature="llm=1"): heads(i, 9) for i in (1, 2, 3)}
    flight = (InFlight(POOL, None, 1, 0, "llm=1", 2, 2, 2, 2, 2.0),)
    facts = Given(slots=40, tasks=tasks, capacities={"llm": 30}, quotas=((3, "resource", "llm", 5),), flight=flight)
    room = measure(
        {POOL: 40, "quarantine": 1},
        pauses=(),
        capacities=facts.capacities,
        quotas=facts.quotas,
        flight=flight,
        tenant_caps={"llm": 3},
    )
    plan = facts.plan(room=room)
    assert Counter(pick.flow.tenant for pick in plan.picks) == {1: 1, 2: 3, 3: 5}
    assert {plan.held[number] for number in (1, 2, 3)} == {"quota:llm"}

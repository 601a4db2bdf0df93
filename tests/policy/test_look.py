"""A plan asks for what is nearly next, in few looks, and asks for nothing that can't run."""

import time

from harness.policy.flow import FlowFacts
from harness.policy.heads import FLOWS_A_LOOK
from harness.policy.room import InFlight, count, measure
from tests.policy.facts import POOL, Given, flow, heads


def test_one_free_slot_costs_one_look_at_one_flow() -> None:
    facts = Given(slots=1, tasks={flow(i, i): heads(i, 3) for i in range(1, 60)})
    assert [pick.flow.id for pick in facts.plan().picks] == [1]
    assert [(asked.flows, asked.heads) for asked in facts.looks] == [((1,), (1,))]


def test_many_free_slots_cost_one_look_at_about_as_many_flows() -> None:
    facts = Given(slots=100, tasks={flow(i, i): heads(i, 3) for i in range(1, 1000)})
    assert len(facts.plan().picks) == 100
    assert len(facts.looks) == 1
    assert len(facts.looks[0].flows) == FLOWS_A_LOOK


def test_a_backlog_in_one_flow_is_fetched_at_once() -> None:
    facts = Given(slots=50, tasks={flow(1, 1): heads(1, 500)})
    assert len(facts.plan().picks) == 50
    assert len(facts.looks) == 1


def test_a_look_passes_over_those_that_hold_their_share_for_those_that_will_be_picked() -> None:
    flight = tuple(InFlight(POOL, None, i, 0, "", 1, 1, 2, cost=1.0) for i in range(1, 31))
    facts = Given(slots=40, tasks={flow(i, i): heads(i, 1) for i in range(1, 41)}, flight=flight)
    assert [pick.flow.id for pick in facts.plan().picks] == list(range(31, 41))
    assert len(facts.looks) == 1, "it named the next ten, not the thirty before them"


def test_thousands_of_empty_flows_before_the_one_with_a_task_cost_few_looks_and_are_told() -> None:
    facts = Given(slots=1, tasks={flow(i, i): () for i in range(1, 2001)} | {flow(9999, 9999): heads(9999, 1)})
    plan = facts.plan()
    assert [pick.flow.id for pick in plan.picks] == [9999]
    assert plan.empty == tuple(range(1, 2001))
    assert len(facts.looks) < 20


def test_five_thousand_blocked_flows_before_a_runnable_one_cost_one_look() -> None:
    def blocked(number: int) -> FlowFacts:
        return flow(number, number, signature="" if number % 2 else "browser=1", priority=1 + number % 3)

    tasks = {blocked(i): heads(i, 1) for i in range(1, 5001)} | {flow(9999, 9999, priority=3): heads(9999, 1)}
    facts = Given(slots=10, tasks=tasks, caps=dict.fromkeys(range(1, 5001, 2), 0), capacities={"browser": 0})
    assert [pick.flow.id for pick in facts.plan().picks] == [9999]
    assert [asked.flows for asked in facts.looks] == [(9999,)]


def test_what_is_paused_at_its_cap_or_beyond_a_quota_is_not_asked_for() -> None:
    tasks = {
        flow(1, 1): heads(1, 1),
        flow(2, 2): heads(2, 1),
        flow(3, 3, run=7): heads(3, 1),
        flow(4, 4, run=8): heads(4, 1),
        flow(5, 5, priority=1): heads(5, 1),
        flow(6, 6, signature="llm=2"): heads(6, 1),
        flow(7, 7): heads(7, 1),
    }
    facts = Given(
        slots=10,
        tasks=tasks,
        caps={1: 0},
        run_caps={7: 0},
        capacities={"llm": 9},
        quotas=((2, "pool", "db", 0), (6, "resource", "llm", 1)),
        pauses=(("run", "8", "operator", ""), ("priority", "p1", "operator", "")),
    )
    assert [pick.flow.id for pick in facts.plan().picks] == [7]
    assert {number for asked in facts.looks for number in asked.flows} >= {7}
    assert {number for asked in facts.looks for number in asked.flows}.isdisjoint({5})


def cpu_s(flows: int) -> float:
    """What a hundred picks cost; the least of some tries."""
    facts = Given(
        slots=100, tasks={flow(i, i % 500, run=i, priority=1 + i % 3): heads(i, 2) for i in range(1, flows + 1)}
    )
    line, tries = facts.line(), []
    for _ in range(5):
        room, began_s = facts.room(), time.process_time()
        assert len(facts.plan(line, room).picks) == 100
        tries.append(time.process_time() - began_s)
    return min(tries)


def test_a_hundred_picks_over_ten_thousand_flows_cost_little_more_than_over_a_few_hundred() -> None:
    assert cpu_s(10_000) <= 3 * cpu_s(500)


def test_taking_a_use_off_again_leaves_the_room_as_it_was() -> None:
    def fresh() -> object:
        return measure({"db": 9}, pauses=(), capacities={"llm": 3}, quotas=[(1, "pool", "db", 4)], flight=())

    room = measure({"db": 9}, pauses=(), capacities={"llm": 3}, quotas=[(1, "pool", "db", 4)], flight=())
    count(room, InFlight("db", "quarantine", 1, 7, "llm=2", 1, 3, 2, 2, 6.0, 1.5))
    assert (room.free["db"], room.resources["llm"], room.quotas[1, "pool", "db"]) == (8, 1, 1)
    assert (room.tenants, room.runs, room.flight["db"].lanes[2]) == ({1: 3}, {7: 3}, 1)
    count(room, InFlight("db", "quarantine", 1, 7, "llm=2", -1, -3, 2, 2, -6.0, -1.5))
    assert room == fresh()

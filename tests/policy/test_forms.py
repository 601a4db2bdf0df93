"""Under pressure work is released in cheaper forms: whose, how cheap, and never at the cost of a limit."""

from hypothesis import given
from hypothesis import strategies as st

from harness.policy import forms
from harness.policy.flow import FlowFacts, Head
from harness.policy.forms import WHOLE, Form, depth
from harness.policy.owners import Owners
from harness.policy.plan import Plan
from harness.policy.pressure import Level
from harness.policy.room import InFlight
from tests.policy.facts import NOW_S, POOL, Given, flow, given_facts, heads, held, uses

BRIEF, SMALL = Form("brief"), Form("small", "llm:small=1")
LARGE = "llm:large=1"


def facts(level: Level, tasks: dict[FlowFacts, tuple[Head, ...]], **more: object) -> Given:
    fields: dict[str, object] = {
        "slots": 10,
        "forms": {"long": (BRIEF, SMALL)},
        "capacities": {"llm:large": 10, "llm:small": 10},
        "level": level,
    }
    return Given(tasks=tasks, **(fields | more))  # type: ignore[arg-type]  # a test says what it changes


def released(plan: Plan) -> dict[int, str]:
    """Return the form of each flow's picks, which have one."""
    found: dict[int, set[str]] = {}
    for pick in plan.picks:
        found.setdefault(pick.flow.id, set()).add(pick.form.name)
    assert all(len(names) == 1 for names in found.values())
    return {number: names.pop() for number, names in found.items()}


def alone(p: int) -> dict[FlowFacts, tuple[Head, ...]]:
    """A class that waits alone: what others would take first decides nothing."""
    return {flow(p + 1, p + 1, priority=p, signature=LARGE): heads(p + 1, 1)}


def test_the_level_says_which_classes_are_degraded_and_by_how_much() -> None:
    found = {level: [released(facts(level, alone(p)).plan())[p + 1] for p in range(4)] for level in Level}
    assert found == {
        Level.NORMAL: ["", "", "", ""],
        Level.ELEVATED: ["", "", "", ""],
        Level.HIGH: ["", "", "brief", "brief"],
        Level.CRITICAL: ["", "brief", "small", "small"],
    }


def test_what_a_form_needs_is_what_is_held_and_where_it_stands_stays() -> None:
    one = flow(3, 1, signature=LARGE)
    given_room = facts(Level.CRITICAL, {one: heads(3, 4)})
    room = given_room.room()
    plan = given_room.plan(room=room)
    assert {(pick.signature, pick.flow.signature) for pick in plan.picks} == {("llm:small=1", LARGE)}
    assert (room.resources["llm:small"], room.resources["llm:large"]) == (6, 10)
    assert room.ends == [(NOW_S + 5.0, "llm:small=1")] * 4


def test_a_full_form_gives_way_to_the_milder_one_and_to_the_whole() -> None:
    one = flow(3, 1, signature=LARGE)
    plan = facts(Level.CRITICAL, {one: heads(3, 9)}, capacities={"llm:large": 4, "llm:small": 2}).plan()
    assert [pick.form.name for pick in plan.picks] == ["small"] * 2 + ["brief"] * 4
    assert plan.held == {3: "resource:llm:large"}


def test_a_resource_that_is_shut_holds_nobody_who_may_go_in_a_form_without_it() -> None:
    tasks = {flow(i, i, signature=LARGE): heads(i, 1) for i in range(1, 9)}
    shut = {"llm:large": 0, "llm:small": 8}
    assert facts(Level.HIGH, tasks, capacities=shut).plan().picks == ()
    assert set(released(facts(Level.CRITICAL, tasks, capacities=shut).plan()).values()) == {"small"}
    small_shut = facts(Level.CRITICAL, tasks, capacities={"llm:large": 8, "llm:small": 0})
    assert set(released(small_shut.plan()).values()) == {"brief"}


def test_a_tenant_or_a_task_that_forbids_it_is_released_whole() -> None:
    tasks = {flow(1, 1, signature=LARGE): heads(1, 2), flow(2, 2, signature=LARGE): heads(2, 2)}
    assert released(facts(Level.HIGH, tasks, whole=frozenset({2})).plan()) == {1: "brief", 2: ""}
    mixed: dict[FlowFacts, tuple[Head, ...]] = {
        flow(1, 1, signature=LARGE): (Head(1, "long", degrade=False), Head(2, "long"))
    }
    assert [(pick.tasks, pick.form.name) for pick in facts(Level.HIGH, mixed).plan().picks] == [
        ((1,), ""),
        ((2,), "brief"),
    ]


def test_a_tenants_quota_on_what_the_form_needs_holds_for_it() -> None:
    one = flow(3, 1, signature=LARGE)
    plan = facts(Level.CRITICAL, {one: heads(3, 9)}, quotas=((1, "resource", "llm:small", 1),)).plan()
    assert [pick.form.name for pick in plan.picks][:2] == ["small", "brief"]


def test_a_bundle_is_of_one_form() -> None:
    few = (Head(1, "short"), Head(2, "short", degrade=False), Head(3, "short", degrade=False))
    found = facts(Level.HIGH, {flow(1, 1): few}, slots=1, forms={"short": (Form("rough"),)}).plan()
    assert [(pick.tasks, pick.form.name) for pick in found.picks] == [((1,), "rough")]


def test_many_flows_held_by_what_they_forbid_to_avoid_cost_few_looks() -> None:
    tasks = {flow(i, i, signature=LARGE): heads(i, 1) for i in range(1, 2001)} | {flow(9999, 9999): heads(9999, 1)}
    shut = facts(Level.CRITICAL, tasks, capacities={"llm:large": 0, "llm:small": 8}, whole=frozenset(range(1, 2001)))
    assert [pick.flow.id for pick in shut.plan().picks] == [9999]
    assert [asked.flows for asked in shut.looks if set(asked.flows) - {9999}] == []


def test_a_kind_without_forms_is_released_whole_at_every_level() -> None:
    for level in Level:
        plan = facts(level, alone(2), forms={"other": (BRIEF,)}).plan()
        assert {pick.form for pick in plan.picks} <= {WHOLE}


@given(given_facts())
def test_no_form_takes_more_than_there_is_and_none_goes_deeper_than_its_level(facts: Given) -> None:
    plan = facts.plan()
    for resource, capacity in facts.capacities.items():
        before = held(facts.flight, resource)
        assert held(uses(facts, plan), resource) <= max(capacity, before)
    whole = {head.task for found in facts.tasks.values() for head in found if not head.degrade}
    for pick in plan.picks:
        allowed = facts.forms.get(pick.kind, ())[: depth(facts.level, pick.flow.priority)]
        assert pick.form == WHOLE or pick.form in allowed
        if pick.flow.tenant in facts.whole or whole & set(pick.tasks):
            assert pick.form == WHOLE


@given(st.sampled_from(list(Level)), st.integers(0, 3))
def test_a_higher_level_and_a_less_urgent_class_are_never_degraded_less(level: Level, priority: int) -> None:
    if level < Level.CRITICAL:
        assert depth(level, priority) <= depth(Level(level + 1), priority)
    if priority < 3:
        assert depth(level, priority) <= depth(level, priority + 1)
    assert depth(level, 0) == 0


def test_at_a_level_that_degrades_nobody_nothing_is_asked_of_forms() -> None:
    of_kinds = {"long": (BRIEF,)}
    assert forms.at(Level.ELEVATED, of_kinds, {}, Owners()) is None
    assert forms.at(Level.HIGH, {}, {}, Owners()) is None
    assert forms.at(Level.HIGH, of_kinds, {}, Owners()) is not None


def test_what_is_in_flight_in_a_form_counts_by_what_the_form_needs() -> None:
    held_now = InFlight(POOL, None, 1, 0, "llm:small=1", 2, 2, 2)
    plan = facts(
        Level.CRITICAL, {flow(3, 1, signature=LARGE): heads(3, 9)}, flight=(held_now,), capacities={"llm:small": 3}
    ).plan()
    assert [pick.form.name for pick in plan.picks] == ["small"]

"""A large demand reserves after a while, others fill in only what it doesn't miss; when all is free it goes first."""

import pytest

from harness.policy.accounts import Charge
from harness.policy.flow import FlowFacts, Head
from harness.policy.gathered import idled_s, kept_s, patience_s
from harness.policy.lanes import AGED, NO_LANE
from harness.policy.line import Line
from harness.policy.plan import Plan
from harness.policy.room import InFlight
from tests.policy.facts import NOW_S, POOL, Given, flow, heads

SMALL, LARGE = flow(1, 1, signature="licence=1"), flow(2, 2, signature="licence=4")


def smalls(n: int, end_s: float = NOW_S + 50.0) -> tuple[InFlight, ...]:
    return (InFlight(POOL, None, 1, 0, "licence=1", n, n, 2, NO_LANE, 2.5 * n, 0.0, (end_s,) * n),)


def scene(n: int, *, waited_s: float = 1000.0, **more: object) -> tuple[Given, Line]:
    """Four licences, `n` of them held by small tasks, a large demand that has waited."""
    tasks = {SMALL: heads(1, 50), LARGE: (Head(2_000_000, "long", ready_s=NOW_S - waited_s),)}
    facts = Given(slots=10, tasks=tasks, capacities={"licence": 4}, flight=smalls(n) if n else (), **more)  # type: ignore[arg-type]
    line = facts.line()
    line.forget([LARGE.id])
    line.add(LARGE, NOW_S - waited_s)
    line.accounts[AGED].mean_s = 1.0
    line.at_s = NOW_S
    return facts, line


def flows(plan: Plan) -> list[FlowFacts]:
    return [pick.flow for pick in plan.picks]


def test_a_large_demand_that_has_waited_keeps_others_from_what_it_needs() -> None:
    facts, line = scene(3, estimates={"long": 60.0})
    plan = facts.plan(line)
    assert flows(plan) == []
    assert plan.held[SMALL.id] == "reserved:licence"
    assert plan.reserved["licence"].flow == LARGE


def test_one_that_has_not_waited_long_enough_or_had_its_turn_just_now_reserves_nothing() -> None:
    facts, line = scene(3, waited_s=10.0)
    assert flows(facts.plan(line)) == [SMALL]
    facts, line = scene(3)
    line.starts.note((2, 2, "licence=4"), NOW_S - 10.0, gathered=True)
    assert flows(facts.plan(line)) == [SMALL]


def test_who_should_have_ended_before_the_rest_is_free_may_fill_in() -> None:
    facts, line = scene(3, estimates={"long": 40.0})
    assert flows(facts.plan(line)) == [SMALL]
    facts, line = scene(3, estimates={"long": 60.0})
    assert flows(facts.plan(line)) == []


def test_a_shadow_does_not_move_on_with_those_that_fill_in() -> None:
    facts, line = scene(3, estimates={"long": 40.0})
    first = facts.plan(line)
    line.apply(first)
    facts.flight = smalls(4, end_s=NOW_S + 500.0)
    assert facts.plan(line).reserved["licence"].shadow_s == first.reserved["licence"].shadow_s


def test_when_all_is_free_it_goes_first() -> None:
    facts, line = scene(3)
    line.apply(facts.plan(line))
    facts.flight = ()
    plan = facts.plan(line)
    assert flows(plan)[0] == LARGE
    assert plan.reserved == {}


@pytest.mark.parametrize("urgent", [True, False])
def test_while_more_urgent_work_waits_a_lane_must_pay_for_a_reservation(urgent: bool) -> None:
    facts, line = scene(3)
    if urgent:
        facts.tasks |= {flow(3, 3, priority=1): heads(3, 1)}
        line.add(flow(3, 3, priority=1), NOW_S)
    line.accounts[2].credit_s = -50.0
    assert bool(facts.plan(line).reserved) is not urgent
    line.accounts[2].credit_s = 0.0
    plan = facts.plan(line)
    assert plan.reserved["licence"].lane == (2 if urgent else NO_LANE)


def test_what_needs_more_than_there_is_never_reserves() -> None:
    facts, line = scene(3)
    facts.capacities = {"licence": 3}
    assert facts.plan(line).reserved == {}


@pytest.mark.parametrize(("waited_s", "reserves"), [(25.0, False), (35.0, True)])
def test_while_one_that_is_overdue_holds_what_it_needs_nothing_is_gathered_yet(waited_s: float, reserves: bool) -> None:
    facts, line = scene(3, waited_s=waited_s, estimates={"long": 60.0})
    facts.flight = (*smalls(2), *smalls(1, end_s=NOW_S - 1.0))
    plan = facts.plan(line)
    assert bool(plan.reserved) is reserves, "A_r is 20 s, and half of it more"
    assert flows(plan) == ([] if reserves else [SMALL])
    facts.capacities = {"licence": 5}
    assert facts.plan(line).reserved, "four of five are enough without it"


def test_what_was_reserved_stays_when_somebody_is_overdue_after_that() -> None:
    facts, line = scene(3, waited_s=25.0, estimates={"long": 60.0})
    line.apply(facts.plan(line))
    facts.flight = smalls(3, end_s=NOW_S - 1.0)
    assert facts.plan(line).reserved["licence"].flow == LARGE


Q = 15.0 * 10  # three quarters of A_r of one that needs all four licences, ten slots


@pytest.mark.parametrize("ahead", [0.0, Q - 1.0, Q + 1.0])
def test_what_was_gathered_goes_on_while_its_tenant_is_not_too_far_ahead(ahead: float) -> None:
    facts, line = scene(0)
    line.forget([LARGE.id])
    line.charge(Charge(priority=2, tenant=2, run=0, lane=NO_LANE, owed_s=ahead))
    line.add(LARGE, NOW_S)
    assert flows(facts.plan(line))[0] == (LARGE if ahead < Q else SMALL)


def test_who_has_had_more_than_the_others_keeps_nothing_although_it_goes_on() -> None:
    facts, line = scene(3, waited_s=5.0)
    line.forget([LARGE.id])
    line.charge(Charge(priority=2, tenant=2, run=0, lane=NO_LANE, owed_s=Q - 1.0))
    line.add(LARGE, NOW_S - 5.0)
    assert flows(facts.plan(line)) == [SMALL]


def test_while_one_that_needs_as_much_runs_nothing_is_gathered_for_the_next() -> None:
    facts, line = scene(0)
    facts.capacities = {"licence": 6}
    facts.flight = (InFlight(POOL, None, 2, 0, "licence=4", 1, 1, 2, NO_LANE, 6.0, 0.0, (NOW_S + 50.0,)),)
    plan = facts.plan(line)
    assert plan.reserved == {}
    assert flows(plan) == [SMALL, SMALL]


PAIR = flow(3, 3, signature="browser=2,licence=1")


@pytest.mark.parametrize("ahead", [0.0, 1000.0])
def test_nothing_is_gathered_beside_others_that_go_on_with_it(ahead: float) -> None:
    """A licence=4 task has just ended; the pair has had less, and lacks a browser; A_r isn't over."""
    facts, line = scene(0, estimates={"long": 60.0})
    facts.capacities = {"licence": 4, "browser": 2}
    facts.flight = (InFlight(POOL, None, 4, 0, "browser=1", 1, 1, 2, NO_LANE, 5.0, 0.0, (NOW_S + 50.0,)),)
    facts.tasks = {LARGE: facts.tasks[LARGE], PAIR: (Head(3_000_000, "long", ready_s=NOW_S - 18.0),)}
    line.forget([LARGE.id, SMALL.id])
    line.add(PAIR, NOW_S - 18.0)
    line.charge(Charge(priority=2, tenant=2, run=0, lane=NO_LANE, owed_s=1.0 + ahead))
    line.add(LARGE, NOW_S)
    plan = facts.plan(line)
    assert flows(plan) == ([] if ahead else [LARGE])
    assert bool(plan.reserved) is bool(ahead)


def test_who_sends_one_task_at_a_time_has_all_gathered_seldom() -> None:
    facts, line = scene(3)
    line.apply(facts.plan(line))
    facts.flight = ()
    plan = facts.plan(line)
    assert flows(plan)[0] == LARGE
    line.apply(plan)
    line.forget([LARGE.id])
    line.add(LARGE, NOW_S + 1.0)
    assert line.starts.last == {}
    facts.tasks[LARGE] = (Head(2_000_001, "long", ready_s=NOW_S - 19.0),)
    facts.flight = smalls(3)
    assert facts.plan(line, now_s=NOW_S + 15.0).reserved == {}


def test_who_needs_much_may_go_on_longer_with_what_it_gathered() -> None:
    capacities = {"browser": 8, "licence": 4}
    idle = [idled_s(f"browser={n}", capacities, 1.0) for n in range(1, 9)]
    assert idle == sorted(idle)
    assert idle[0] == 0.0
    kept = [kept_s(f"browser={n}", capacities, 1.0) for n in range(1, 10)]
    assert kept[0] == kept[8] == 0.0
    assert all(kept[n - 1] <= patience_s(f"browser={n}", capacities, 1.0) * 0.75 for n in range(1, 9))  # type: ignore[operator]
    assert patience_s("browser=2,licence=2", capacities, 1.0) == 10.0

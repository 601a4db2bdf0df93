"""What pressure does in a plan: who gives way to whom, and to what that waits; floors stay."""

from dataclasses import replace
from functools import partial

import pytest

from harness.policy.flow import FlowFacts, Head
from harness.policy.lanes import AGED, NO_LANE, P2, P3
from harness.policy.pressure import Level
from harness.policy.room import InFlight
from tests.policy.facts import NOW_S, POOL, Given, flow, heads
from tests.policy.fair_play import Play

NEEDY = flow(1, 1, priority=1, signature="llm=1")
MIDDLE, BATCH = flow(2, 2, priority=2), flow(3, 3, priority=3)
BUSY = InFlight(POOL, None, 9, 0, "llm=1", 2, 2, 1)
PRESSED = [Level.HIGH, Level.CRITICAL]


def given(level: Level, *flows: FlowFacts, slots: int = 10) -> Given:
    """P1 work that waits for a resource in full use, and others' work that would fit."""
    tasks = {NEEDY: heads(1, 9)} | {one: heads(one.id, 20) for one in flows}
    return Given(slots=slots, tasks=tasks, capacities={"llm": 2}, flight=(BUSY,), level=level)


def picked(facts: Given, **credits_s: float) -> list[tuple[int, int]]:
    """Return (priority, lane) of what a plan picks; lanes are in debt unless a credit is given."""
    line = facts.line()
    line.at_s = NOW_S
    for lane, name in ((P2, "p2"), (P3, "p3"), (AGED, "aged")):
        line.accounts[lane].credit_s = credits_s.get(name, -100.0)
        line.accounts[lane].mean_s = line.accounts[lane].est_s = 1.0
    return [(pick.flow.priority, pick.lane) for pick in facts.plan(line).picks]


def test_beyond_its_floor_p3_holds_half_at_elevated_and_nothing_from_high_on_while_p1_waits() -> None:
    numbers = {level: len(picked(given(level, BATCH))) for level in Level}
    assert numbers == {Level.NORMAL: 8, Level.ELEVATED: 5, Level.HIGH: 0, Level.CRITICAL: 0}


@pytest.mark.parametrize("level", Level)
def test_a_floor_is_served_at_every_level(level: Level) -> None:
    assert (3, P3) in picked(given(level, BATCH), p3=5.0)
    assert (2, P2) in picked(given(level, MIDDLE), p2=5.0)


def test_p2_gives_way_to_p1_at_critical_alone() -> None:
    numbers = {level: len(picked(given(level, MIDDLE))) for level in Level}
    assert numbers == {Level.NORMAL: 8, Level.ELEVATED: 8, Level.HIGH: 8, Level.CRITICAL: 0}


@pytest.mark.parametrize("level", PRESSED)
def test_age_gives_p3_no_slot_beyond_its_floor(level: Level) -> None:
    old = tuple(Head(head.task, head.kind, ready_s=0.0) for head in heads(3, 9))
    facts = given(level)
    facts.tasks[BATCH] = old
    assert picked(facts, aged=5.0) == []
    facts.level = Level.ELEVATED
    assert (3, AGED) in picked(facts, aged=5.0) or (3, NO_LANE) in picked(facts, aged=5.0)


@pytest.mark.parametrize("level", PRESSED)
def test_what_waits_for_its_own_tenant_or_for_nothing_there_is_keeps_no_slot_free(level: Level) -> None:
    whole = [(3, NO_LANE)] * 8
    facts = given(level, BATCH)
    assert picked(replace(facts, caps={1: 0})) == whole
    assert picked(replace(facts, quotas=((1, "resource", "llm", 0),))) == whole
    assert picked(replace(facts, quotas=((1, "pool", POOL, 0),))) == whole
    assert picked(replace(facts, pauses=(("priority", "p1", "operator", "x"),))) == whole
    assert picked(replace(facts, pauses=(("tenant", "1", "operator", "x"),))) == whole
    assert picked(replace(facts, capacities={"llm": 0})) == whole, "its breaker is open, or nobody has any"
    of_run = flow(1, 1, priority=1, run=11)
    capped = replace(facts, tasks={of_run: heads(1, 9), BATCH: heads(3, 20)}, run_caps={11: 0})
    assert picked(capped) == whole


@pytest.mark.parametrize("level", Level)
def test_the_cap_of_a_run_is_halved_from_high_on_and_never_0(level: Level) -> None:
    for cap, halved in ((8, 4), (5, 2), (1, 1)):
        facts = Given(slots=10, tasks={flow(1, 1, run=11): heads(1, 20)}, run_caps={11: cap}, level=level)
        assert len(facts.plan().picks) == (halved if level >= Level.HIGH else cap)
    assert Given(slots=4, tasks={flow(1, 1, run=11): heads(1, 9)}, run_caps={11: 0}, level=level).plan().picks == ()


@pytest.mark.parametrize("slots", [1, 4, 10])
def test_with_a_backlog_in_every_class_the_level_changes_nobodys_share_of_the_slots(slots: int) -> None:
    shares = []
    for level in Level:
        play = Play(slots)
        play.world.press(level)
        for number in (1, 2, 3):
            play.at(0.0, partial(play.submit, play.tenant(number), "plain", number, n=250 * slots))
        play.go(200.0)
        total = sum(until - since for since, until, _ in play.held)
        shares.append({p: sum(b - a for a, b, task in play.held if task.priority == p) / total for p in (1, 2, 3)})
    assert all(0.03 <= share[3] <= 0.07 and 0.13 <= share[2] <= 0.22 for share in shares), shares

"""The decision at the door."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy.admission import (
    MOST_S,
    TARGET_S,
    Accept,
    Decision,
    Defer,
    Reject,
    TenantFacts,
    Wanted,
    decide,
    default_priority,
)
from harness.policy.pressure import Level

tenants = st.builds(
    TenantFacts,
    id=st.just(1),
    name=st.just("a"),
    top_priority=st.integers(0, 3),
    backlog_quota=st.integers(0, 1000),
)
ANYBODY = TenantFacts(id=1, name="a", top_priority=0, backlog_quota=1000)
waits_s = st.floats(0.25, 200_000)
wanted = st.builds(
    Wanted,
    priority=st.integers(0, 3),
    wait_s=st.none() | waits_s,
    service_s=st.floats(0, 600),
    deadline_s=st.none() | st.floats(0.1, 10_000),
    start_by_s=st.none() | st.floats(0.1, 700_000),
).map(lambda one: replace(one, last_s=one.wait_s))


def _asked(one: Wanted, level: Level, *, luck: float = 0.5) -> Decision:
    return decide(ANYBODY, most_urgent=one.priority, count=1, backlog=0, wanted=[one], level=level, luck=luck)


def _openness(decision: Decision) -> int:
    return 2 if isinstance(decision, Accept) else 1 if isinstance(decision, Defer) else 0


@given(tenants, st.integers(0, 3), st.integers(1, 1500), st.integers(0, 1500))
def test_what_is_accepted_fits_and_what_is_refused_does_not(
    tenant: TenantFacts, priority: int, count: int, backlog: int
) -> None:
    decision = decide(tenant, most_urgent=priority, count=count, backlog=backlog)
    fits = priority >= tenant.top_priority and backlog + count <= tenant.backlog_quota
    assert isinstance(decision, Accept) is fits


@given(tenants, st.integers(1, 1500), st.integers(0, 1500))
def test_waiting_is_advised_only_when_it_can_help(tenant: TenantFacts, count: int, backlog: int) -> None:
    decision = decide(tenant, most_urgent=3, count=count, backlog=backlog)
    if isinstance(decision, Reject):
        assert (decision.retry_after_s is not None) is (count <= tenant.backlog_quota)


@given(tenants)
def test_the_default_priority_is_always_allowed(tenant: TenantFacts) -> None:
    assert decide(tenant, most_urgent=default_priority(tenant), count=0, backlog=0) == Accept()


@given(wanted)
def test_a_higher_level_never_opens_the_door_wider(one: Wanted) -> None:
    found = [_openness(_asked(one, level)) for level in Level]
    assert found == sorted(found, reverse=True)


@given(wanted, st.sampled_from(Level))
def test_of_two_alike_the_more_urgent_one_is_refused_no_sooner(one: Wanted, level: Level) -> None:
    # Each waits no longer than the less urgent one does, as a line has it.
    found = [_openness(_asked(replace(one, priority=priority), level)) > 0 for priority in range(4)]
    assert found == sorted(found, reverse=True)


@given(wanted, st.sampled_from(Level))
def test_what_cannot_make_its_deadline_is_never_taken(one: Wanted, level: Level) -> None:
    if isinstance(_asked(one, level), Reject) or one.deadline_s is None:
        return
    assert one.service_s <= one.deadline_s
    assert one.wait_s is None or one.wait_s <= 1.0 or one.wait_s + one.service_s <= 0.5 * one.deadline_s


@given(wanted, st.sampled_from(Level), st.floats(0, 1))
def test_who_is_refused_for_load_is_told_when_to_come_again(one: Wanted, level: Level, luck: float) -> None:
    decision = _asked(one, level, luck=luck)
    if isinstance(decision, Reject) and decision.why in ("pressure", "deadline", "start_by"):
        assert decision.retry_after_s is not None and 4.5 <= decision.retry_after_s <= 660
        assert decision.level is level
    elif isinstance(decision, Reject):
        assert decision.why == "never" and decision.retry_after_s is None


@pytest.mark.parametrize(("wait_s", "again_s"), [(5.0, 5.0), (60.0, 55.0), (1200.0, 120.0), (3812.0, 212.0)])
def test_who_is_refused_at_critical_is_not_asked_to_hammer_until_it_is_over(wait_s: float, again_s: float) -> None:
    decision = _asked(Wanted(priority=3, wait_s=wait_s, last_s=wait_s), Level.CRITICAL)
    assert isinstance(decision, Reject)
    assert decision.retry_after_s == again_s


@given(wanted, st.sampled_from(Level))
def test_what_is_deferred_is_let_in_before_it_expires(one: Wanted, level: Level) -> None:
    decision = _asked(one, level)
    if isinstance(decision, Defer):
        assert 0 <= decision.after_s[0] <= (one.wait_s or 0)
        assert one.start_by_s is None or decision.after_s[0] <= one.start_by_s


@given(wanted.map(lambda one: replace(one, wait_s=None, last_s=None)), st.sampled_from(Level))
def test_a_wait_that_nobody_can_say_refuses_nothing(one: Wanted, level: Level) -> None:
    decision = _asked(one, level)
    assert isinstance(decision, Accept) or (isinstance(decision, Reject) and decision.why == "never")


@pytest.mark.parametrize("priority", range(4))
def test_everything_is_taken_at_normal_however_long_it_waits(priority: int) -> None:
    assert _asked(Wanted(priority=priority, wait_s=1e5, last_s=1e5), Level.NORMAL) == Accept()


@pytest.mark.parametrize(
    ("level", "priority", "wait_s", "answer"),
    [
        (Level.ELEVATED, 1, 1e5, Accept),
        (Level.ELEVATED, 2, TARGET_S[2], Accept),
        (Level.ELEVATED, 2, TARGET_S[2] + 1, Defer),
        (Level.ELEVATED, 3, TARGET_S[3] + 1, Defer),
        (Level.HIGH, 1, TARGET_S[1] + 1, Defer),
        (Level.HIGH, 3, TARGET_S[3], Accept),
        (Level.HIGH, 3, MOST_S[3], Defer),
        (Level.HIGH, 3, MOST_S[3] + 1, Reject),
        (Level.CRITICAL, 0, 1e5, Accept),
        (Level.CRITICAL, 1, MOST_S[1], Defer),
        (Level.CRITICAL, 1, MOST_S[1] + 1, Reject),
        (Level.CRITICAL, 2, 4.9, Accept),
        (Level.CRITICAL, 2, 5.0, Reject),
        (Level.CRITICAL, 3, 5.0, Reject),
    ],
)
def test_each_level_leaves_open_what_its_table_says(
    level: Level, priority: int, wait_s: float, answer: type[Decision]
) -> None:
    assert isinstance(_asked(Wanted(priority=priority, wait_s=wait_s, last_s=wait_s), level), answer)


def test_a_run_is_refused_for_one_of_its_nodes_and_deferred_node_by_node() -> None:
    urgent = Wanted(priority=1, wait_s=1.0, last_s=1.0)
    batch = Wanted(priority=3, wait_s=7200.0, last_s=7200.0)
    decision = decide(ANYBODY, most_urgent=1, count=2, backlog=0, wanted=[urgent, batch], level=Level.ELEVATED)
    assert isinstance(decision, Defer) and decision.after_s == {1: 7200.0}
    refused = decide(ANYBODY, most_urgent=1, count=2, backlog=0, wanted=[urgent, batch], level=Level.CRITICAL)
    assert isinstance(refused, Reject) and refused.at == 1


def test_the_last_of_many_must_make_the_deadline_too() -> None:
    many = Wanted(priority=2, count=1000, wait_s=0.25, last_s=100.0, service_s=5.0, deadline_s=60.0)
    decision = _asked(many, Level.NORMAL)
    assert isinstance(decision, Reject) and decision.why == "deadline"


def test_what_is_planned_for_later_does_not_wait_in_the_line_of_now() -> None:
    later = Wanted(priority=3, wait_s=600.0, last_s=600.0, starts_s=3600.0)
    assert _asked(later, Level.CRITICAL) == Accept()


def test_an_idle_system_takes_what_it_can_do_in_time() -> None:
    one = Wanted(priority=2, wait_s=0.25, last_s=0.25, service_s=40.0, deadline_s=60.0)
    assert _asked(one, Level.NORMAL) == Accept()

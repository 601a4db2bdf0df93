"""The limiter on its scenarios, in short: some columns with one seed; `script/bench limiter` plays them all."""

from itertools import pairwise
from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.policy.limits import csl
from harness.policy.limits.state import Terms
from harness.sim import limiter_scenarios as scenarios
from harness.sim.calls import ORACLE, Caller, Play
from harness.sim.limiter_figures import missed, played, probing_floor_per_s
from harness.sim.provider import Law, steps


@pytest.mark.parametrize("column", ["S=5", "S=20 heavy", "latency x2", "Retry-After 2 s"])
def test_nearly_all_of_a_moving_quota_is_used_and_hardly_a_call_in_a_hundred_refused(column: str) -> None:
    play = scenarios.columns()[column]
    assert missed(play, [played(play, 3)], use=0.95, refused=0.01) == []


def test_a_quota_that_nobody_can_follow_costs_no_more_than_it_gives() -> None:
    play = scenarios.columns()["noise"]
    assert missed(play, [played(play, 1)], use=0.90, refused=0.015) == []


def test_a_quota_that_moves_each_three_minutes_is_followed() -> None:
    play = scenarios.columns(scenarios.SHORT_PHASE_S)["S=5"]
    assert missed(play, [played(play, 1)], use=0.90, refused=0.015) == []


def test_the_others_use_less_or_are_refused_more() -> None:
    play = scenarios.columns(scenarios.SHORT_PHASE_S)["S=5"]
    ours = played(play, 1)
    for strategy in ("aimd", "gradient", "fixed"):
        theirs = played(scenarios.of(play, strategy), 1)
        assert theirs["rate_429"] > 4 * ours["rate_429"], strategy
    assert played(scenarios.of(play, ORACLE), 1)["utilisation"] > ours["utilisation"]


def test_the_same_seed_gives_the_same_figures_and_another_gives_others() -> None:
    play = scenarios.columns(60.0)["noise"]
    assert played(play, 1) == played(play, 1)
    assert played(play, 1) != played(play, 2)


def test_who_refuses_everything_is_asked_at_the_probing_floor_within_half_a_minute() -> None:
    found = played(scenarios.sustained(), 1)
    assert 0 < found["calls_per_s_under_429"] <= 1.2 * probing_floor_per_s()
    assert found["t95_up_s"] <= 60


def test_a_load_that_does_not_reach_the_limit_never_raises_it_above_itself() -> None:
    caller = Caller(scenarios.unused(), 1)
    tally = caller.run()
    assert tally.refused == 0
    assert tally.limit_most <= 1.2 * tally.in_flight_most + 1


def test_p0_waits_for_no_place_and_the_limit_still_learns() -> None:
    found = played(scenarios.with_p0(), 1)
    assert found["p0_wait_p95_s"] <= 0.25
    assert found["utilisation"] >= 0.95
    assert found["rate_429"] < 0.01


def test_who_only_slows_down_is_given_what_it_does_as_much_with() -> None:
    with_guard, without = Caller(scenarios.slowing(), 1).run(), Caller(scenarios.slowing(guard=False), 1).run()
    assert without.taken[-1] > 390
    assert 45 <= with_guard.taken[-1] <= 90
    assert sum(with_guard.ends[900:]) >= 0.97 * sum(without.ends[900:])


def test_an_outage_meets_an_open_breaker_few_retries_and_a_quick_return() -> None:
    found = played(scenarios.outage(), 1)
    assert found["sent_while_open"] == 0
    assert found["sends_in_outage"] <= 200, "of 60 s x 25/s, and failures come back fast"
    assert found["retry_ratio"] <= 0.1
    assert found["recovery_s"] <= 60 + 48


LAWS = st.builds(
    lambda quotas, mean_s, sigma, refuse_after_s, retry_after_s, noise: Law(
        phases=tuple((60.0, float(quota)) for quota in quotas),
        mean_s=mean_s,
        sigma=sigma,
        refuse_after_s=refuse_after_s,
        retry_after_s=retry_after_s,
        noise_ratio=noise,
    ),
    st.lists(st.integers(0, 60), min_size=1, max_size=3),
    st.floats(0.5, 20.0),
    st.floats(0.01, 1.5),
    st.floats(0.05, 0.4),
    st.sampled_from([0.0, 2.0, 40.0]),
    st.sampled_from([0.0, 0.1]),
)


@settings(max_examples=25, deadline=None)  # a play may be half a second of a busy machine
@given(LAWS, st.integers(1, 4), st.integers(0, 1000))
def test_whatever_the_provider_does_the_invariants_hold(law: Law, floor: int, seed: int) -> None:
    play = Play(name="any", law=law, terms=Terms(floor=floor, ceiling=80), p0_per_s=0.2, guard=True)
    caller = Caller(play, seed)
    tally = caller.run()
    assert tally.in_flight_most <= tally.limit_most <= 80
    assert all(floor <= limit <= 80 for _, limit, _ in tally.limits)
    assert tally.canaries_most <= 1
    assert caller.provider.most <= max(caller.provider.quotas)


@settings(max_examples=25, deadline=None)  # a play may be half a second of a busy machine
@given(LAWS, st.integers(0, 1000))
def test_refusals_are_paid_for_or_tell_that_the_quota_fell(law: Law, seed: int) -> None:
    """429s <= eps x successes + what was saved + unpaid probes + each fall's drain + each growth's overshoot."""
    caller = Caller(Play(name="any", law=law, terms=Terms(floor=1, ceiling=80)), seed)
    tally = caller.run()
    falls = list(pairwise([0.0, *caller.provider.quotas]))
    drains = sum(2 + abs(log(max(after, 1) / max(before, 1)) / log(csl.DRAIN_RATIO)) for before, after in falls)
    a_step = csl.FIRST_RATIO * 80 + 0.5 * 80 / law.mean_s + 3  # at once, and in the time that a refusal takes
    alone = sum(seconds for seconds, quota in law.phases if quota < 2) / csl.CANARY_MOST_S
    paid = csl.EPSILON * tally.ok + csl.TOKENS_MOST + law.seconds / csl.PROBE_MOST_S
    assert tally.refused <= paid + 2 * drains + len(falls) * a_step + 3 * alone
    assert len(steps(law)) == len(law.phases) - 1

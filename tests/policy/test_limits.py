"""What every limiter keeps, whatever comes in whatever order; and what the ceiling-seeking one does at each signal."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy.limits import STRATEGIES, csl
from harness.policy.limits.state import (
    BLOCK_S,
    DRAIN,
    HOLD,
    RAMP,
    REASONS,
    State,
    Terms,
    asked,
    begin,
    clamp,
    now_limit,
    restart,
)

START_S = 1000.0
WHOLE = Terms(floor=1, ceiling=100)


@dataclass(frozen=True)
class Call:
    n_send: int
    sent_s: float
    drain_s: float  # the drain whose canary it is; 0: none's


@dataclass
class Callers:
    """Callers as the permits know them: what is in flight, and one step after the other."""

    name: str
    terms: Terms
    state: State
    now_s: float = START_S
    in_flight: list[Call] = field(default_factory=list)
    ended: list[Call] = field(default_factory=list)
    limit_most: float = 0.0

    def ask(self, priority: int) -> bool:
        step = STRATEGIES[self.name]
        clamp(self.state, self.terms)
        asked(self.state, self.now_s, priority)
        self._look(step.tick(self.state, self.terms, self.now_s, len(self.in_flight), 1))
        if len(self.in_flight) >= step.seen(self.state, self.terms, self.now_s, priority):
            return False
        call = Call(len(self.in_flight), self.now_s, self.state.cut_s if self.state.mode == DRAIN else 0.0)
        self._look(step.sent(self.state, self.terms, self.now_s, call.n_send))
        self.in_flight.append(call)
        return True

    def end(self, index: int, how: str, *, retry_after_s: float = 0.0) -> None:
        call = self.in_flight.pop(index % len(self.in_flight))
        self.ended.append(call)
        self.report(call, how, retry_after_s=retry_after_s)

    def report(self, call: Call, how: str, *, retry_after_s: float = 0.0) -> None:
        step, state, latency_s = STRATEGIES[self.name], self.state, self.now_s - call.sent_s
        before = state.limit
        if how == "ok":
            reason = step.succeeded(state, self.terms, self.now_s, call.n_send, call.sent_s, latency_s)
        elif how in {"refused", "overload"}:
            reason = step.dropped(
                state, self.terms, self.now_s, call.n_send, call.sent_s, latency_s, len(self.in_flight),
                retry_after_s, how == "overload",
            )  # fmt: skip
            assert self.name == "gradient" or state.limit <= before, "a refusal never raises the limit"
        else:
            reason = step.ended(state, self.terms, self.now_s, timed_out=how == "timeout")
        assert bool(reason) == (state.limit != before), "each change has its reason, and no reason comes without one"
        self._look(reason)

    def _look(self, reason: str) -> None:
        assert not reason or reason in REASONS
        assert self.terms.floor <= self.state.limit <= self.terms.ceiling
        self.limit_most = max(self.limit_most, self.state.limit)
        canaries = [call for call in self.in_flight if call.drain_s == self.state.cut_s > 0]
        assert len(canaries) <= 1


TERMS = st.builds(
    lambda floor, more, kept: Terms(floor=floor, ceiling=floor + more, reserve=kept),
    st.integers(1, 5),
    st.integers(0, 60),
    st.integers(0, 2),
)
MOVES = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 3)),
    st.tuples(st.just("ask"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["ok", "refused", "overload", "timeout", "ignore"]), st.integers(0, 99)),
    st.tuples(st.just("again"), st.integers(0, 99)),
    st.tuples(st.just("pass"), st.sampled_from([0, 1, 20, 60, 500, 3000])),
)


@given(st.sampled_from(sorted(STRATEGIES)), TERMS, st.lists(MOVES, max_size=120), st.floats(0, 100))
def test_a_limit_stays_in_its_bounds_and_calls_below_the_highest_it_was(
    name: str, terms: Terms, moves: list[tuple[str, int]], proven: float
) -> None:
    callers = Callers(name, terms, begin(terms, START_S, proven=proven // 1))
    STRATEGIES[name].tick(callers.state, terms, START_S, 0, 0)
    callers.limit_most = callers.state.limit
    for what, number in moves:
        if what == "ask":
            callers.ask(number)
        elif what == "pass":
            callers.now_s += number / 100
        elif what == "again" and callers.ended:
            callers.report(callers.ended[number % len(callers.ended)], "refused")  # late, and not for the first time
        elif callers.in_flight and what != "again":
            callers.end(number, what)
        assert len(callers.in_flight) <= callers.limit_most + 1e-9


@given(st.sampled_from(["csl", "aimd", "fixed"]), st.lists(MOVES, max_size=60))
def test_ticking_twice_at_one_moment_changes_nothing_the_second_time(name: str, moves: list[tuple[str, int]]) -> None:
    callers = Callers(name, WHOLE, begin(WHOLE, START_S))
    for what, number in moves:
        if what == "ask":
            callers.ask(number)
        elif what == "pass":
            callers.now_s += number / 100
        elif callers.in_flight and what != "again":
            callers.end(number, what)
        STRATEGIES[name].tick(callers.state, WHOLE, callers.now_s, len(callers.in_flight), 1)
        before = replace(callers.state)
        assert STRATEGIES[name].tick(callers.state, WHOLE, callers.now_s, len(callers.in_flight), 1) == ""
        assert callers.state == before


@given(st.lists(st.tuples(st.floats(0.01, 200), st.integers(0, 2)), max_size=60))
def test_a_limit_that_is_not_used_never_grows(passed: list[tuple[float, int]]) -> None:
    callers = Callers("csl", WHOLE, begin(WHOLE, START_S, start=10))
    for seconds, calls in passed:
        callers.now_s += seconds
        for _ in range(calls):
            callers.ask(2)
        while callers.in_flight:
            callers.end(0, "ok")
        assert csl.tick(callers.state, WHOLE, callers.now_s, 0, 0) == ""
    assert callers.state.limit == 10


def test_a_resource_begins_at_four_or_at_half_of_what_was_once_proven() -> None:
    assert begin(WHOLE, START_S).limit == 4
    assert begin(WHOLE, START_S, start=20).limit == 20
    assert begin(WHOLE, START_S, proven=50).limit == 25
    assert begin(Terms(floor=1, ceiling=10), START_S, proven=50).limit == 10


def _filled(limit: int, mode: int = HOLD) -> Callers:
    """Callers that use a proven limit to the full."""
    callers = Callers("csl", WHOLE, begin(WHOLE, START_S, start=limit))
    callers.state.proven, callers.state.first = float(limit), 0
    while callers.ask(1):
        pass
    callers.state.mode = mode
    callers.now_s += 0.2
    return callers


def test_in_ramp_the_limit_grows_when_its_last_place_was_taken_and_nothing_came_back() -> None:
    callers = Callers("csl", WHOLE, begin(WHOLE, START_S, start=10))
    while callers.ask(1):
        pass
    assert len(callers.in_flight) == 10
    callers.now_s += 0.4
    assert csl.tick(callers.state, WHOLE, callers.now_s, 10, 1) == ""
    callers.now_s += 0.11
    assert csl.tick(callers.state, WHOLE, callers.now_s, 10, 1) == "grow"
    assert (callers.state.proven, callers.state.limit) == (10, 12)


def test_a_refusal_above_the_proven_ceiling_finds_the_edge_and_pauses_nothing() -> None:
    callers = _filled(10)
    callers.state.tokens = 1.0
    callers.now_s += 10
    assert callers.ask(1), "the probe: one more, and nothing else"
    assert not callers.ask(1)
    callers.now_s += 0.2
    callers.end(-1, "refused", retry_after_s=20.0)
    assert (callers.state.mode, callers.state.limit) == (HOLD, 10)
    assert csl.seen(callers.state, WHOLE, callers.now_s, 1) == 10


def test_of_calls_that_are_sent_at_once_any_may_be_the_refused_one_and_the_edge_is_what_was_accepted() -> None:
    callers = _filled(44, RAMP)
    callers.now_s += 0.4
    while callers.ask(1):
        pass
    assert len(callers.in_flight) == 48, "a step of the ramp: four calls at once, of which the downstream takes two"
    callers.now_s += 0.1
    callers.end(44, "refused")  # the first of the four came last
    assert (callers.state.mode, callers.state.limit) == (HOLD, 47)
    callers.end(45, "refused")
    assert (callers.state.mode, callers.state.limit) == (HOLD, 46)
    assert csl.seen(callers.state, WHOLE, callers.now_s, 1) == 46


def test_a_canary_goes_beside_a_call_that_does_not_end() -> None:
    callers = _filled(2)
    callers.now_s += 1
    callers.end(0, "overload")
    assert callers.state.mode == DRAIN and len(callers.in_flight) == 1
    asks = []
    while callers.now_s < START_S + 60:
        callers.now_s += 0.1
        if callers.ask(1):
            asks.append(callers.now_s)
            callers.now_s += 0.2
            callers.end(-1, "refused")
    assert len(asks) >= 3, "somebody looks whether the downstream is back"
    assert all(later - earlier >= csl.BESIDE_S for earlier, later in pairwise(asks))
    while not callers.ask(1):
        callers.now_s += 0.1
    callers.now_s += 3.0
    callers.ask(1)
    assert callers.state.mode == RAMP


def test_a_refusal_below_it_drains_until_one_canary_gets_through() -> None:
    callers = _filled(50)
    callers.end(0, "ok")
    assert callers.ask(1)
    callers.now_s += 0.2
    callers.end(-1, "refused")
    assert callers.state.mode == DRAIN
    assert callers.state.limit == 44, "who plans by the limit sees at once that there is less"
    sent = 0
    while len(callers.in_flight) > 30:
        sent += callers.ask(1)
        callers.end(0, "ok")
    assert sent == 1, "one canary at a time"
    callers.now_s += 0.2
    callers.end(-1, "refused")
    assert callers.state.n0 < 45
    while not callers.ask(1):
        callers.end(0, "ok")
    canary = callers.in_flight[-1]
    callers.now_s += 0.6
    callers.ask(1)
    assert callers.state.mode == RAMP
    assert callers.state.proven == canary.n_send + 1


def test_retry_after_is_waited_for_in_a_drain_and_a_long_one_blocks_the_resource() -> None:
    for seconds, blocked in ((2.0, False), (BLOCK_S + 10, True), (1e9, True)):
        callers = _filled(10)
        callers.end(0, "ok")
        assert callers.ask(1)
        callers.end(-1, "refused", retry_after_s=seconds)
        while callers.in_flight:
            callers.end(0, "ok")
        callers.now_s += min(seconds, 900) - 0.01
        assert not callers.ask(0)
        assert (callers.state.blocked_s > callers.now_s) is blocked
        callers.now_s += 0.02
        assert callers.ask(3), "900 s at most"


def test_who_is_refused_alone_asks_ever_more_seldom() -> None:
    callers = _filled(1)
    callers.end(0, "overload")
    asks = []
    while callers.now_s < START_S + 120:
        callers.now_s += 0.05
        if callers.ask(1):
            asks.append(callers.now_s)
            callers.now_s += 0.2
            callers.end(0, "refused")
    gaps = [later - earlier for earlier, later in pairwise(asks)]
    assert asks[0] < START_S + 1
    assert all(gap >= csl.CANARY_MOST_S for gap in gaps[5:])
    assert len([at_s for at_s in asks if at_s > START_S + 30]) <= 90 / csl.CANARY_MOST_S


def test_overload_is_no_answer_to_a_probe() -> None:
    callers = _filled(10, RAMP)
    callers.state.proven = 0.0
    callers.end(-1, "overload")
    assert callers.state.mode == DRAIN


def test_a_place_is_kept_for_p0_only_while_the_limit_holds_and_p0_was_seen() -> None:
    terms = replace(WHOLE, reserve=1)
    callers = _filled(10)
    now_s, state = callers.now_s, callers.state
    assert csl.seen(state, terms, now_s, 1) == 10, "nobody of P0 asked"
    asked(state, now_s, 0)
    assert [csl.seen(state, terms, now_s, priority) for priority in range(4)] == [10, 9, 9, 9]
    state.mode = RAMP
    assert csl.seen(state, terms, now_s, 1) == 10, "else a kept place would hide whether the limit is used (R1)"
    state.mode = HOLD
    assert csl.seen(state, terms, now_s + 601, 1) == 10
    for limit in (9.0, 5.0, 1.0):
        state.limit = limit
        assert csl.seen(state, terms, now_s, 1) == limit, "of few places none stands idle: P0 is first in line there"


def _minutes_of_calls(callers: Callers, seconds: int, one_in: int) -> None:
    for index in range(10 * seconds):
        callers.now_s += 0.1
        callers.ask(1)
        callers.end(0, "timeout" if index % one_in == 0 else "ok")


def test_many_time_outs_lower_the_limit_once_in_half_a_minute_and_it_is_not_probed_for_as_long() -> None:
    callers = _filled(50)
    _minutes_of_calls(callers, 29, 10)
    assert callers.state.limit >= 50
    proven = callers.state.proven
    _minutes_of_calls(callers, 2, 10)
    assert callers.state.limit == 0.8 * proven // 1
    _minutes_of_calls(callers, 27, 100)
    assert callers.state.limit == 0.8 * proven // 1
    _minutes_of_calls(callers, 10, 100)
    assert callers.state.limit > 0.8 * proven


def test_calls_that_hang_whatever_the_load_cost_half_of_the_limit_at_most() -> None:
    callers = _filled(50)
    _minutes_of_calls(callers, 31, 10)
    steady = callers.state.steady
    limits = []
    for _ in range(20):
        _minutes_of_calls(callers, 30, 10)
        limits.append(callers.state.limit)
    assert steady // 2 <= min(limits) < 0.8 * steady


def test_a_few_time_outs_are_no_reason_for_a_lower_limit() -> None:
    callers = _filled(50)
    _minutes_of_calls(callers, 120, 25)
    assert callers.state.limit >= 50


def test_a_key_that_others_use_too_is_used_to_95_in_a_hundred() -> None:
    callers = _filled(40)
    state = callers.state
    for _ in range(csl.NOISY_DRAINS + 1):
        callers.now_s += 10
        state.mode, state.limit, state.proven, state.cut_s = HOLD, 40.0, 40.0, 0.0
        call = Call(20, callers.now_s, 0.0)
        callers.report(call, "refused")
    state.mode, state.limit = HOLD, 40.0
    assert csl.seen(state, WHOLE, callers.now_s, 1) == 38
    state.mode = RAMP
    assert csl.seen(state, WHOLE, callers.now_s, 1) == 40
    state.mode = HOLD
    assert csl.seen(state, WHOLE, callers.now_s + 2 * csl.NOISY_S, 1) == 40


def test_where_refusals_take_long_a_call_counts_as_accepted_later() -> None:
    callers = _filled(10)
    assert csl.accept_s(callers.state) == csl.ACCEPT_S
    callers.end(0, "ok")
    assert callers.ask(1)
    callers.now_s += 2.0
    callers.end(-1, "refused")
    assert csl.accept_s(callers.state) == 3.0


def test_a_restart_begins_at_half_and_stops_at_the_first_refusal() -> None:
    callers = _filled(40)
    while callers.in_flight:
        callers.end(0, "ok")
    assert restart(callers.state, WHOLE, callers.now_s) == "restart"
    assert callers.state.limit == 20
    for _ in range(20):
        while callers.ask(1):
            pass
        callers.now_s += 0.25
    callers.end(-1, "refused")
    assert callers.state.mode == HOLD
    assert now_limit(callers.state) == len(callers.in_flight) > 20


def test_an_outage_that_drained_the_limit_to_one_does_not_keep_it_there() -> None:
    callers = Callers("csl", WHOLE, begin(WHOLE, START_S, start=40))
    callers.state.limit, callers.state.proven, callers.state.first = 1.0, 1.0, 0
    callers.state.mode, callers.state.tokens = DRAIN, -2.0
    restart(callers.state, WHOLE, callers.now_s)
    for _ in range(80):
        while callers.ask(1):
            pass
        callers.now_s += 0.25
    assert now_limit(callers.state) >= 20


def test_an_operator_moves_the_bounds_and_the_limit_follows() -> None:
    callers = _filled(40)
    callers.terms = Terms(floor=1, ceiling=12)
    assert clamp(callers.state, callers.terms) == "bounds"
    assert now_limit(callers.state) == 12
    callers.terms = Terms(floor=20, ceiling=30)
    assert clamp(callers.state, callers.terms) == "bounds"
    assert (callers.state.limit, clamp(callers.state, callers.terms)) == (20, "")
    callers.state.trim = 15.0
    assert now_limit(callers.state) == 15


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_long_retry_after_blocks_the_resource_under_every_strategy_that_reads_refusals(name: str) -> None:
    callers = Callers(name, WHOLE, begin(WHOLE, START_S, start=10))
    STRATEGIES[name].tick(callers.state, WHOLE, START_S, 0, 0)
    assert callers.ask(1)
    callers.state.proven = 10.0
    callers.end(0, "refused", retry_after_s=60.0)
    callers.now_s += 59
    assert callers.ask(1) is (name == "gradient")

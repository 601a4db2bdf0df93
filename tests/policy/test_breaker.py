"""A breaker goes through its graph only, sends nothing while it is open, and can't be wedged by who died."""

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.breaker import (
    CLOSED,
    GRAPH,
    HALF_OPEN,
    LEASE_S,
    OPEN,
    OPEN_MOST_S,
    PROBES,
    STREAK_BUSY,
    Breaker,
    open_s,
    reported,
    sent,
    tick,
    wait_s,
)

START_S = 1000.0


def _call(breaker: Breaker, now_s: float, *, failed: bool, jitter: float = 0.5, counts: bool = True) -> str:
    assert wait_s(breaker, now_s) == 0
    sent(breaker, now_s)
    return reported(breaker, now_s + 0.01, now_s, counts=counts, failed=failed, slow=False, jitter=jitter)


def _opened(now_s: float = START_S) -> Breaker:
    breaker = Breaker()
    for index in range(5):
        _call(breaker, now_s + index, failed=True)
    assert breaker.mode == OPEN
    return breaker


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.just(0)),
        st.tuples(st.just("ask"), st.just(0)),
        st.tuples(st.sampled_from(["ok", "failed", "refused", "lost"]), st.integers(0, 50)),
        st.tuples(st.just("pass"), st.integers(0, 12)),
    ),
    max_size=150,
)


@given(MOVES, st.floats(0, 0.999))
def test_it_goes_through_its_graph_and_sends_nothing_while_open(moves: list[tuple[str, int]], jitter: float) -> None:
    breaker, now_s, out = Breaker(), START_S, list[float]()
    probes: list[float] = []
    mode = breaker.mode
    for what, number in moves:
        if what == "pass":
            now_s += 0.25 * 2.0**number
        elif what == "ask":
            tick(breaker, now_s)
            assert breaker.mode == mode or (mode, breaker.mode) in GRAPH
            mode = breaker.mode
            if wait_s(breaker, now_s) == 0:
                assert mode != OPEN
                now_s += 0.002
                sent(breaker, now_s)
                out.append(now_s)
                if mode == HALF_OPEN:
                    probes = [at_s for at_s in probes if now_s - at_s < LEASE_S] + [now_s]
                    assert len(probes) <= PROBES
        elif out:
            sent_s = out.pop(number % len(out))
            if what != "lost":
                now_s += 0.002
                reported(breaker, now_s, sent_s, counts=what != "refused", failed=what == "failed", slow=False,
                         jitter=jitter)  # fmt: skip
                probes = [at_s for at_s in probes if at_s != sent_s]
                assert breaker.mode == mode or (mode, breaker.mode) in GRAPH
                if breaker.mode != mode:
                    probes = []
                mode = breaker.mode


@given(st.integers(0, 30), st.floats(0, 0.999))
def test_open_time_grows_and_stays_within_a_fifth_of_its_mean(k: int, jitter: float) -> None:
    mean_s = min(OPEN_MOST_S, 5.0 * 2**k)
    assert 0.8 * mean_s <= open_s(k, jitter) <= 1.2 * mean_s


def test_refusals_never_open_it() -> None:
    breaker = Breaker()
    for index in range(500):
        assert _call(breaker, START_S + index / 10, failed=True, counts=False) == ""
    assert breaker.mode == CLOSED


def test_half_of_twenty_calls_in_half_a_minute_open_it_and_fewer_do_not() -> None:
    breaker = Breaker()
    for index in range(100):
        assert _call(breaker, START_S + index / 10, failed=index % 5 < 2) == "", "two of five"
    slowly = Breaker()
    for index in range(19):
        assert _call(slowly, START_S + index / 10, failed=index % 2 == 0) == ""
    assert _call(slowly, START_S + 2, failed=True) == "opened"


def test_what_is_older_than_the_window_does_not_count() -> None:
    breaker = Breaker()
    for index in range(19):
        _call(breaker, START_S + index / 10, failed=index % 2 == 0)
    assert _call(breaker, START_S + 35, failed=True) == ""


def test_under_traffic_a_row_of_failures_opens_it_before_they_are_half_of_the_window() -> None:
    breaker = Breaker()
    for index in range(400):
        _call(breaker, START_S + index / 20, failed=False)
    changes = [_call(breaker, START_S + 20 + index / 20, failed=True) for index in range(STREAK_BUSY)]
    assert changes == [""] * (STREAK_BUSY - 1) + ["opened"]


def test_many_slow_calls_open_it() -> None:
    breaker = Breaker()
    for index in range(20):
        sent(breaker, START_S + index)
        change = reported(
            breaker, START_S + index, START_S + index, counts=True, failed=False, slow=index > 2, jitter=0
        )
    assert change == "opened"


def test_three_probes_in_a_row_close_it_and_one_failure_opens_it_for_longer() -> None:
    breaker = _opened()
    assert breaker.until_s - breaker.since_s == 5.0
    now_s = breaker.until_s
    assert wait_s(breaker, now_s - 0.1) > 0
    assert tick(breaker, now_s) == "probing"
    assert _call(breaker, now_s, failed=False) == ""
    assert _call(breaker, now_s + 1, failed=True) == "reopened"
    assert breaker.until_s - breaker.since_s == 10.0
    now_s = breaker.until_s
    tick(breaker, now_s)
    assert [_call(breaker, now_s + index, failed=False) for index in range(3)] == ["", "", "closed"]
    assert breaker.mode == CLOSED
    for index in range(4):
        assert _call(breaker, now_s + 3 + index, failed=True) == ""
    _call(breaker, now_s + 8, failed=True)
    assert breaker.until_s - breaker.since_s == 10.0, "k is kept"
    tick(breaker, breaker.until_s)
    now_s = breaker.until_s
    for index in range(3):
        _call(breaker, now_s + index, failed=False)
    for index in range(5):
        _call(breaker, now_s + 400 + index, failed=True)
    assert breaker.until_s - breaker.since_s == 5.0, "and forgotten after five minutes closed"


def test_probes_that_never_answer_are_replaced_when_their_leases_end() -> None:
    breaker = _opened()
    now_s = breaker.until_s
    tick(breaker, now_s)
    for index in range(PROBES):
        assert wait_s(breaker, now_s + index) == 0
        sent(breaker, now_s + index)
    assert wait_s(breaker, now_s + 3) == LEASE_S - 3
    tick(breaker, now_s + LEASE_S)
    assert wait_s(breaker, now_s + LEASE_S) == 0


def test_what_was_sent_before_it_opened_says_nothing_any_more() -> None:
    breaker = _opened()
    assert reported(breaker, breaker.since_s + 1, START_S - 9, counts=True, failed=True, slow=False, jitter=0) == ""
    tick(breaker, breaker.until_s)
    now_s = breaker.until_s + 1
    assert reported(breaker, now_s, START_S - 9, counts=True, failed=True, slow=False, jitter=0) == ""
    assert breaker.mode == HALF_OPEN
    for index in range(3):
        _call(breaker, now_s + index, failed=False)
    for _ in range(50):
        assert reported(breaker, now_s + 4, START_S - 9, counts=True, failed=True, slow=False, jitter=0) == ""

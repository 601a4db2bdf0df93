"""The bucket against its own law, over any history of asks and changes."""

from hypothesis import given
from hypothesis import strategies as st

from harness.ops.emulator.bucket import UNIT, Bucket

SECOND_NS = 1_000_000_000
asks = st.lists(st.tuples(st.integers(0, 20 * SECOND_NS), st.integers(0, 40)), min_size=1, max_size=60)


@given(rate=st.integers(1, 5000), burst_s=st.floats(0.01, 120), asks=asks)
def test_no_window_lets_in_more_than_the_burst_and_what_came_back_in_it(
    rate: int, burst_s: float, asks: list[tuple[int, int]]
) -> None:
    now, taken = 7, list[tuple[int, int]]()
    bucket = Bucket(per_minute=rate, burst_s=burst_s, now_ns=now)
    capacity = max(rate * round(burst_s * 1e9), UNIT)
    for pause_ns, amount in asks:
        now += pause_ns
        if bucket.wait_ns(amount, now) == 0:
            bucket.take(amount, now)
            taken.append((now, amount * UNIT))
    for first, (began, _) in enumerate(taken):
        inside = 0
        for at, units in taken[first:]:
            inside += units
            assert inside <= capacity + rate * (at - began)


@given(rate=st.integers(1, 5000), burst_s=st.floats(0.01, 120), asks=asks)
def test_the_wait_that_is_said_is_enough_and_a_nanosecond_less_is_not(
    rate: int, burst_s: float, asks: list[tuple[int, int]]
) -> None:
    now = 0
    bucket = Bucket(per_minute=rate, burst_s=burst_s, now_ns=now)
    for pause_ns, amount in asks:
        now += pause_ns
        wait_ns = bucket.wait_ns(amount, now)
        if wait_ns is None:
            assert amount > bucket.size
            continue
        if wait_ns:
            assert bucket.wait_ns(amount, now + wait_ns - 1) == 1
            now += wait_ns
        assert bucket.wait_ns(amount, now) == 0
        bucket.take(amount, now)


def test_a_full_bucket_lets_in_its_size_at_once_and_then_one_at_a_time() -> None:
    bucket = Bucket(per_minute=600, burst_s=1, now_ns=0)
    assert (bucket.size, bucket.left(0), bucket.full_in_ns(0)) == (10, 10, 0)
    for _ in range(10):
        assert bucket.wait_ns(1, 0) == 0
        bucket.take(1, 0)
    assert (bucket.left(0), bucket.wait_ns(1, 0), bucket.full_in_ns(0)) == (0, SECOND_NS // 10, SECOND_NS)
    assert bucket.left(SECOND_NS // 10 - 1) == 0
    assert bucket.left(SECOND_NS // 10) == 1


def test_a_new_rate_counts_from_its_own_moment_and_what_was_spent_stays_spent() -> None:
    bucket = Bucket(per_minute=60, burst_s=60, now_ns=0)
    bucket.take(60, 0)
    bucket.change(per_minute=6, burst_s=60, now_ns=30 * SECOND_NS)
    assert bucket.left(30 * SECOND_NS) == 0
    assert bucket.wait_ns(1, 30 * SECOND_NS) == 250 * SECOND_NS
    bucket.change(per_minute=600, burst_s=60, now_ns=30 * SECOND_NS)
    assert bucket.left(30 * SECOND_NS) == 570


def test_a_slow_rate_still_lets_one_in_and_rate_0_none_for_ever() -> None:
    assert Bucket(per_minute=1, burst_s=5, now_ns=0).wait_ns(1, 0) == 0
    assert Bucket(per_minute=0, burst_s=60, now_ns=0).wait_ns(1, 0) is None
    assert Bucket(per_minute=0, burst_s=60, now_ns=0).full_in_ns(0) == 86_400 * SECOND_NS


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    bucket = Bucket(per_minute=60, burst_s=1, now_ns=SECOND_NS)
    bucket.take(1, SECOND_NS)
    assert bucket.wait_ns(1, 0) == SECOND_NS

"""What pressure pauses: P3 at critical, where somebody more urgent waits, and a quarter of an hour at most."""

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.pressure import Level
from harness.policy.pressure.pauses import MOST_S, STANDS_S, decide_pauses

POOLS = ("llm", "db", "cpu")
WAITING = st.sets(st.tuples(st.sampled_from(POOLS), st.integers(0, 3)))
STANDING = st.dictionaries(
    st.sampled_from([f"{pool}.p3" for pool in POOLS]),
    st.tuples(st.floats(-10, 1000), st.floats(0, 2 * MOST_S)),
)
SINCE = st.floats(-1e4, 1e4)


@given(level=st.sampled_from(list(Level)), since_s=SINCE, waiting=WAITING, standing=STANDING)
def test_only_p3_is_paused_only_at_critical_and_only_where_somebody_more_urgent_waits(
    level: Level, since_s: float, waiting: set[tuple[str, int]], standing: dict[str, tuple[float, float]]
) -> None:
    found = decide_pauses(level, since_s, waiting=waiting, standing=standing)
    for key in found.put:
        pool, _, priority = key.rpartition(".")
        assert level is Level.CRITICAL and priority == "p3"
        assert any(of == pool and p < 3 for of, p in waiting)
        assert 0 < found.left_s <= MOST_S
    assert not set(found.put) & set(found.end)
    assert set(found.end) <= set(standing)
    if level < Level.CRITICAL or since_s >= MOST_S:
        assert set(found.end) == set(standing) and not found.put


@given(since_s=st.floats(0, MOST_S - 1), waiting=WAITING)
def test_what_stands_is_left_alone_while_it_is_wanted_and_for_a_minute(
    since_s: float, waiting: set[tuple[str, int]]
) -> None:
    young = {f"{pool}.p3": (STANDS_S - 1, 100.0) for pool in POOLS}
    assert decide_pauses(Level.CRITICAL, since_s, waiting=waiting, standing=young).end == ()
    old = {f"{pool}.p3": (STANDS_S, 100.0) for pool in POOLS}
    wanted = {f"{pool}.p3" for pool, p in waiting if p < 3}
    found = decide_pauses(Level.CRITICAL, since_s, waiting=waiting, standing=old)
    assert set(found.end) == set(old) - wanted and not found.put


def test_where_p3_is_the_only_load_it_is_not_paused_at_any_level() -> None:
    for level in Level:
        assert decide_pauses(level, 0.0, waiting={(pool, 3) for pool in POOLS}, standing={}).put == ()


def test_a_pause_that_a_clock_put_too_far_away_is_put_again_or_ended() -> None:
    standing = {"llm.p3": (1.0, MOST_S + 3600), "db.p3": (1.0, MOST_S + 3600)}
    found = decide_pauses(Level.CRITICAL, 10.0, waiting={("llm", 1)}, standing=standing)
    assert (found.put, found.end, found.left_s) == (("llm.p3",), ("db.p3",), MOST_S - 10)

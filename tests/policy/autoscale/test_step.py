"""From look to look: steps of bounded size, no worker added while refused, and no swinging under a load that swings."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.policy.autoscale import EVERY_S, Crew, Memory, Size, Work, size, step
from harness.policy.autoscale.step import DOWN_EVERY_S, UP_EVERY_S, WINDOW_S

sizes = st.builds(
    Size,
    workers=st.integers(0, 64),
    binds=st.just("work"),
    reason=st.just(""),
    holds=st.booleans(),
    cap=st.one_of(st.none(), st.integers(1, 64)),
)
histories = st.lists(st.tuples(sizes, st.integers(1, 60), st.integers(0, 200), st.floats(-5, 60)), max_size=20)


def enough(workers: int, **more: object) -> Size:
    return Size(workers=workers, binds="work", reason="", **more)  # type: ignore[arg-type]  # fields by name


def follow(memory: Memory, found: Size, for_s: float, *, workers: int = 1, in_use: int = 0) -> tuple[Memory, list[int]]:
    """Step for a while, with workers that follow the advice at once."""
    seen = []
    for _ in range(round(for_s / EVERY_S)):
        crew = Crew(pool="llm", each=8, workers=workers, in_use=in_use)
        memory, advice = step(memory, crew, found, EVERY_S)
        workers = advice.desired
        seen.append(workers)
    return memory, seen


def turns(seen: list[int], within_s: float = WINDOW_S) -> int:
    """Return the most changes of direction in any stretch of that length."""
    moves = [(at, after > before) for at, (before, after) in enumerate(pairwise(seen)) if after != before]
    found = [at for (_, before), (at, now) in pairwise(moves) if before is not now]
    span = within_s / EVERY_S
    return max((sum(at <= other < at + span for other in found) for at in found), default=0)


# -- over all histories


@settings(max_examples=60, deadline=None)
@given(histories)
def test_no_step_is_too_large_none_adds_while_held_and_none_goes_below_what_runs(
    history: list[tuple[Size, int, int, float]],
) -> None:
    memory, workers, last_up_s = Memory(), 3, -1e9
    for found, times, in_use, passed_s in history:
        for _ in range(times):
            before = memory.desired
            crew = Crew(pool="llm", each=8, workers=workers, in_use=in_use)
            memory, advice = step(memory, crew, found, passed_s)
            after = memory.desired
            assert after is not None
            if before is not None and after > before:
                assert not found.holds and after <= max(2 * before, before + 4) and after <= found.workers
                assert memory.now_s - last_up_s >= UP_EVERY_S
                last_up_s = memory.now_s
            if before is not None and after < before:
                assert after * 8 >= in_use or after * 8 + 7 >= in_use
            if found.holds:
                assert advice.desired <= max(workers, found.workers)
            workers = advice.desired


@settings(max_examples=30, deadline=None)
@given(st.integers(30, 299), st.integers(1, 40), st.integers(1, 40), st.integers(0, 300))
def test_a_load_that_comes_and_goes_turns_it_at_most_once_in_ten_minutes(
    half_s: int, high: int, low: int, begin_s: int
) -> None:
    memory, seen, workers = Memory(), [], 1
    for at in range(720):
        on = ((at * EVERY_S + begin_s) // half_s) % 2 == 0
        memory, more = follow(memory, enough(high if on else low), EVERY_S, workers=workers)
        workers = more[-1]
        seen += more
    assert turns(seen) <= 1


@pytest.mark.parametrize("half_s", [150, 300, 600])
def test_square_waves_of_real_work_turn_it_at_most_once_in_ten_minutes(half_s: int) -> None:
    """Backlog and rate as they come about: so many slots serve what waits, tasks of 5 s."""
    memory, workers, waiting, seen = Memory(), 1, 0.0, []
    for at in range(1440):
        rate = 12.0 if (at * EVERY_S // half_s) % 2 == 0 else 1.0
        served = min(waiting + rate * EVERY_S, workers * 8 / 5.0 * EVERY_S)
        waiting += rate * EVERY_S - served
        in_use = round(min(workers * 8, served / EVERY_S * 5.0))
        crew = Crew(pool="llm", each=8, workers=workers, in_use=in_use)
        work = [Work(waiting=round(waiting), leases=in_use, a_second=rate, mean_s=5.0)]
        memory, advice = step(memory, crew, size(crew, work, {}), EVERY_S)
        workers = advice.desired
        seen.append(workers)
    assert turns(seen) <= 1
    assert max(seen) >= 8 and waiting < 1200


# -- each rule


def test_it_rises_to_the_double_or_by_four_each_quarter_of_a_minute() -> None:
    _, seen = follow(Memory(), enough(30), 60.0)
    assert sorted(set(seen)) == [5, 10, 20, 30]
    assert [seen.index(n) for n in (5, 10, 20, 30)] == [0, 3, 6, 9]


def test_it_falls_by_a_tenth_a_minute_when_nothing_more_was_needed_for_ten_minutes() -> None:
    memory, seen = follow(Memory(), enough(20), 60.0, workers=20)
    memory, seen = follow(memory, enough(2), WINDOW_S - 2 * DOWN_EVERY_S, workers=20)
    assert set(seen) == {20}
    memory, seen = follow(memory, enough(2), 3 * DOWN_EVERY_S + 120, workers=20)
    assert sorted(set(seen), reverse=True)[:3] == [20, 18, 17]
    _, seen = follow(memory, enough(2), 3600.0, workers=seen[-1], in_use=75)
    assert seen[-1] == 10, "75 tasks run: they keep 10 processes of 8"


def test_workers_beyond_a_limit_that_has_been_found_go_at_once_and_come_back_only_for_much_more() -> None:
    memory, seen = follow(Memory(), enough(8), 45.0)
    assert seen[-1] == 8
    memory, seen = follow(memory, enough(5, cap=5), 60.0, workers=8)
    assert seen[-1] == 5 and seen[6] == 5
    memory, seen = follow(memory, enough(6), 300.0, workers=5)
    assert set(seen) == {5}
    memory, seen = follow(memory, enough(9), 30.0, workers=5)
    assert seen[-1] == 9, "half as many again is not noise"


def test_while_it_is_held_the_advice_is_what_runs_even_if_more_had_been_wished() -> None:
    memory, _ = follow(Memory(), enough(4), 5.0)
    crew = Crew(pool="llm", each=8, workers=1)
    memory, advice = step(memory, crew, enough(1, holds=True), EVERY_S)
    assert (advice.desired, advice.holds) == (1, True)
    _, advice = step(memory, crew, enough(4), EVERY_S)
    assert advice.desired == 4


def test_a_clock_that_steps_or_a_beat_that_was_away_changes_nothing() -> None:
    memory, _ = follow(Memory(), enough(20), 60.0, workers=20)
    for passed_s in (3600.0, -3600.0, 180.0):
        memory, advice = step(memory, Crew(pool="llm", each=8, workers=20), enough(1), passed_s)
        assert advice.desired == 20

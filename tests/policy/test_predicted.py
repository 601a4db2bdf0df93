"""How long new work will wait."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy import predicted
from harness.policy.predicted import WAIT_MOST_S, Crowd, Own, Place
from harness.policy.pressure.measure import TICK_S

numbers = st.integers(0, 10_000)
weights = st.sampled_from([0.25, 1.0, 1.5, 4.0])
crowds = st.lists(st.builds(Crowd, numbers.map(float), weights), max_size=5).map(tuple)
places = st.builds(
    Place,
    slots=st.integers(1, 64).map(float),
    in_use=st.integers(0, 64).map(float),
    mean_s=st.floats(0.01, 600),
    rates=st.tuples(*[st.floats(0, 100)] * 4),
    crowds=st.tuples(crowds, crowds, crowds, crowds),
)
owns = st.builds(Own, ahead=numbers.map(float), weight=weights, fresh=numbers.map(float))
classes = st.integers(0, 3)


def _wait_s(place: Place, priority: int, own: Own) -> float:
    found = predicted.wait_s(place, priority, own)
    assert found is not None
    return found


@given(places, classes, owns)
def test_a_wait_is_at_least_a_tick_and_never_more_than_can_be_said(place: Place, priority: int, own: Own) -> None:
    assert TICK_S <= _wait_s(place, priority, own) <= WAIT_MOST_S


@given(places, classes, owns, numbers, weights)
def test_a_wait_does_not_fall_when_more_waits(place: Place, priority: int, own: Own, more: int, weight: float) -> None:
    for at in range(priority + 1):
        grown = list(place.crowds)
        grown[at] = (*grown[at], Crowd(float(more), weight))
        after = Place(
            slots=place.slots, in_use=place.in_use, mean_s=place.mean_s, rates=place.rates, crowds=tuple(grown)
        )
        assert _wait_s(after, priority, own) >= _wait_s(place, priority, own) - 1e-9
    later = Own(ahead=own.ahead + more, weight=own.weight, fresh=own.fresh)
    assert _wait_s(place, priority, later) >= _wait_s(place, priority, own) - 1e-9


@given(places, classes, owns)
def test_a_tenant_waits_behind_no_more_than_all_of_its_class(place: Place, priority: int, own: Own) -> None:
    assert predicted.before(place, priority, own) <= max(place.waiting(priority) + own.fresh, own.ahead) + 1e-6


def test_a_tenant_with_little_does_not_wait_for_an_elephant() -> None:
    place = Place(slots=50, in_use=50, mean_s=5.0, crowds=((), (), (Crowd(100_000.0, 1.0),), ()))
    assert _wait_s(place, 2, Own()) < 1.0
    assert _wait_s(place, 2, Own(ahead=100_000)) > 9_000


def test_a_tenant_of_more_weight_waits_less_for_as_much() -> None:
    place = Place(slots=10, in_use=10, mean_s=1.0, crowds=((), (), (Crowd(500.0, 1.0), Crowd(500.0, 4.0)), ()))
    assert _wait_s(place, 2, Own(ahead=500, weight=4.0)) == pytest.approx(0.35 + 62.525)
    assert _wait_s(place, 2, Own(ahead=500, weight=1.0)) == pytest.approx(0.35 + 100.0)


def test_alone_it_is_the_class_before_it_over_its_pace() -> None:
    place = Place(
        slots=50,
        in_use=50,
        mean_s=5.0,
        rates=(2.0, 3.0, 9.0, 9.0),
        crowds=((), (), (Crowd(100, 1.0),), (Crowd(9, 1.0),)),
    )
    pace = 10.0 - 5.0 - 0.05 * 10.0  # R6: what comes more urgent, and the floor of what is less urgent and waits
    urgent = Place(slots=50, in_use=50, mean_s=5.0, rates=place.rates, crowds=((), (Crowd(9, 1.0),), *place.crowds[2:]))
    assert predicted.pace(place, 2) == pytest.approx(pace)
    assert _wait_s(place, 2, Own(ahead=100)) == pytest.approx(0.25 + 101 / pace)
    assert _wait_s(urgent, 2, Own(ahead=100)) == pytest.approx(0.25 + 110 / pace)


def test_behind_endless_urgent_work_a_task_waits_for_the_floor_of_its_class() -> None:
    place = Place(slots=50, in_use=50, mean_s=5.0, rates=(0, 0, 12.0, 0), crowds=((), (), (Crowd(5000, 1.0),), ()))
    assert _wait_s(place, 3, Own()) == pytest.approx(0.25 + 1 / 0.5)


def test_a_class_keeps_its_floor_under_endless_more_urgent_work() -> None:
    place = Place(slots=50, in_use=50, mean_s=5.0, rates=(100.0, 100.0, 0.0, 0.0))
    assert [predicted.pace(place, priority) for priority in range(1, 4)] == pytest.approx([2.7, 1.5, 0.5])


def test_a_cap_of_its_own_makes_a_tenant_wait_where_slots_are_free() -> None:
    place = Place(slots=50, in_use=2, mean_s=10.0)
    assert _wait_s(place, 2, Own(in_flight=2, cap=2)) == pytest.approx(5.25)
    assert _wait_s(place, 2, Own(in_flight=0, cap=0)) == WAIT_MOST_S


def test_nobody_can_say_how_long_a_wait_is_where_no_worker_runs() -> None:
    assert predicted.wait_s(Place(slots=0, in_use=0, mean_s=1.0), 2, Own()) is None


@given(places, classes, st.floats(1, 10_000), crowds)
def test_who_stays_under_the_level_waits_no_longer_than_asked(
    place: Place, priority: int, within_s: float, wanting: Sequence[Crowd]
) -> None:
    level = predicted.level_of(place, priority, within_s, wanting)
    let_in = tuple([Crowd(min(one.tasks, level * one.weight), one.weight) for one in wanting])
    tasks = sum(one.tasks for one in let_in)
    urgent, rest = sum(place.waiting(q) for q in range(priority)), predicted.rest(place, priority)
    by_floor_s = (tasks + 1) / predicted.floor(place, priority)
    shared_s = TICK_S + (min(by_floor_s, (urgent + tasks + 1) / rest) if rest > 0 else by_floor_s)
    assert tasks <= max(0.0, place.slots - place.in_use) + 1e-6 or shared_s <= within_s * (1 + 1e-6) + 1e-6


@given(st.lists(st.tuples(numbers, weights), max_size=6))
def test_crowds_lose_no_task(backlogs: list[tuple[float, float]]) -> None:
    found = predicted.crowds_of(backlogs)
    assert math.isclose(sum(one.tasks for one in found), sum(tasks for tasks, _ in backlogs))

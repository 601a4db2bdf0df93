"""Of the processes of a pool, the oldest that suffice get its work; the others take over when those are gone."""

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.capacity import Carries, Need, bounds
from harness.policy.homes import LOOK_S, SEEN_FOR_S, SURE_AFTER, Seat, Standing, ceiling, homes, sit
from harness.policy.settings import Pool, Topology

X = Pool(name="x", workers="threads", slots=20, connections=1, prefetch_multiplier=1, events=False)
TOPOLOGY = Topology(database_connections=80, pools={"x": X}, resources={})


def of(*resources: dict[str, int], **held: Carries) -> int | None:
    needs = [Need(kind=f"k{at}", pool="x", resources=one) for at, one in enumerate(resources)]
    return ceiling(bounds(TOPOLOGY, needs, held)["x"])


def task(limit: int) -> Carries:
    return Carries(held="task", limit=limit)


def test_only_what_tasks_hold_makes_an_exact_ceiling() -> None:
    assert of({"db": 1}, db=task(20)) == 20
    assert of({"db": 1}, {"other": 2}, db=task(20), other=task(9)) == 24
    assert of({"db": 1}, {}, db=task(20)) is None
    assert of({"db": 1}, {"llm": 1}, db=task(20), llm=Carries(held="call", limit=5)) is None
    assert of(db=task(20)) is None
    assert of({"db": 1}, db=task(0)) == 0


def test_a_process_steps_back_at_once_and_takes_over_when_it_is_sure() -> None:
    old, young = Standing("old", 20), Standing("young", 20)
    seat = sit(Seat(), "young", 20, [old, young])
    assert not seat.home
    for look in range(1, SURE_AFTER + 1):
        seat = sit(seat, "young", 20, [young, Standing("younger", 20)])
        assert seat.home == (look >= SURE_AFTER)
    assert sit(seat, "young", 20, [old, young]) == Seat()


def test_who_takes_over_is_later_than_what_the_other_was_told_holds() -> None:
    assert (SURE_AFTER - 1) * LOOK_S >= SEEN_FOR_S


def test_a_process_that_is_alone_begins_at_once() -> None:
    assert sit(Seat(), "a", 20, [Standing("a", 20)]).home


def test_who_is_not_among_those_that_stand_gets_no_work() -> None:
    assert not sit(Seat(home=True, looks=9), "draining", 20, [Standing("a", 20)]).home


@given(st.integers(0, 100), st.lists(st.integers(1, 30), max_size=12))
def test_the_homes_cover_the_ceiling_whenever_all_do_and_none_is_too_many(most: int, slots: list[int]) -> None:
    standing = [Standing(f"{at:02}", n) for at, n in enumerate(slots)]
    found = homes(most, standing)
    chosen = [one for one in standing if one.session in found]
    assert chosen == standing[: len(chosen)]
    assert bool(found) == bool(slots)
    whole = sum(one.slots for one in chosen)
    assert whole >= min(most, sum(slots))
    assert len(chosen) <= 1 or whole - chosen[-1].slots < most

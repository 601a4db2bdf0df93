"""A scope that comes back gets its slots by a share that doubles; the plan never gives it more."""

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.ramp import WHOLE_AFTER_S, most_in_flight, share
from tests.policy.facts import Given, given_facts

SECONDS = st.floats(min_value=-3600, max_value=3600, allow_nan=False)


@given(SECONDS, SECONDS)
def test_the_share_never_falls_and_is_whole_in_the_end(one_s: float, other_s: float) -> None:
    early, late = sorted((one_s, other_s))
    assert 0 < share(early) <= share(late) <= 1
    assert share(max(late, WHOLE_AFTER_S)) == 1


@given(st.integers(0, 1000), SECONDS)
def test_a_pool_with_a_slot_gives_one_and_never_more_than_it_has(slots: int, resumed_s: float) -> None:
    most = most_in_flight(slots, resumed_s)
    assert min(1, slots) <= most <= slots
    assert most <= max(1, share(resumed_s) * slots + 1)


SCOPES = st.one_of(
    st.tuples(st.just("priority"), st.integers(0, 3)),
    st.tuples(st.just("tenant"), st.integers(1, 4)),
    st.tuples(st.just("run"), st.sampled_from([11, 12])),
)


@given(given_facts(), st.dictionaries(SCOPES, st.integers(-2, 4)))
def test_the_plan_gives_a_scope_no_more_slots_than_its_ramp(facts: Given, rooms: dict[tuple[str, int], int]) -> None:
    facts.ramps = rooms
    plan = facts.plan()
    for (scope, number), room in rooms.items():
        assert sum(getattr(pick.flow, scope) == number for pick in plan.picks) <= max(0, room)

"""A scope that comes back gets its slots by a share that doubles; the plan never gives it more."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.dispatch import Facts, plan
from harness.policy.ramp import WHOLE_AFTER_S, most_in_flight, share
from tests.policy.facts import facts as some_facts

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


SCOPES = st.tuples(st.sampled_from(["priority", "tenant", "run"]), st.integers(0, 5))


@given(some_facts(), st.dictionaries(SCOPES, st.integers(-2, 4)))
def test_the_plan_gives_a_scope_no_more_slots_than_its_ramp(facts: Facts, rooms: dict[tuple[str, int], int]) -> None:
    decided = plan(replace(facts, ramp_room=rooms))
    for (scope, number), room in rooms.items():
        assert sum(getattr(pick.flow, scope) == number for pick in decided.picks) <= max(0, room)

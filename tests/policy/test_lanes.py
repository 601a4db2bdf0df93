"""Credits stay between their floor and their cap, and nothing is saved without a backlog."""

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.lanes import (
    AGED,
    LANES,
    NO_LANE,
    P0,
    P2,
    P3,
    SHARES,
    Account,
    grown,
    in_turn,
    least,
    mean,
    most,
    start,
)

SLOTS = st.sampled_from([1, 2, 4, 10, 50])
SECONDS = st.floats(0, 1e5)


@st.composite
def accounts(draw: st.DrawFn) -> list[Account]:
    mean_s = draw(st.floats(0.01, 100))
    return [
        Account(draw(st.floats(-1e5, 1e5)), draw(st.floats(0, 100)), mean_s, mean_s * mean_s * draw(st.floats(1, 5)))
        for _ in range(LANES)
    ]


@given(accounts(), SECONDS, SLOTS, st.lists(SECONDS, min_size=LANES, max_size=LANES), st.booleans())
def test_an_effective_credit_never_exceeds_its_cap(
    found: list[Account], passed_s: float, slots: int, overruns_s: list[float], waited: bool
) -> None:
    credits_s = grown(found, passed_s, slots, waited=[waited] * LANES, overruns_s=overruns_s)
    for lane in (P0, P2, P3, AGED):
        assert credits_s[lane] - overruns_s[lane] <= most(lane, slots, found) + 1e-6
        if lane != P0 and not waited:
            assert credits_s[lane] - overruns_s[lane] <= 1e-6, "without a backlog debts are repaid and nothing is saved"


@given(accounts(), SLOTS, st.lists(st.floats(0.01, 60), max_size=20))
def test_in_pieces_a_credit_grows_as_in_one(found: list[Account], slots: int, pieces: list[float]) -> None:
    whole = grown(found, sum(pieces), slots, waited=[True] * LANES, overruns_s=[0.0] * LANES)
    for seconds in pieces:
        for lane, credit_s in enumerate(grown(found, seconds, slots, waited=[True] * LANES, overruns_s=[0.0] * LANES)):
            found[lane].credit_s = credit_s if lane != NO_LANE else found[lane].credit_s
    if pieces:
        assert all(
            abs(found[lane].credit_s - whole[lane]) < 1e-6 * (1 + abs(whole[lane])) for lane in (P0, P2, P3, AGED)
        )


@given(accounts(), SLOTS)
def test_a_debt_ends_somewhere_and_a_lane_begins_in_debt(found: list[Account], slots: int) -> None:
    for lane in (P2, P3, AGED):
        assert least(lane, slots, found) < 0 < most(lane, slots, found)
        assert start(lane, slots) == -SHARES[lane] * slots


@given(st.lists(st.floats(-10, 10), min_size=LANES, max_size=LANES))
def test_lanes_in_debt_have_no_turn_and_the_most_overdue_has_the_first(credits_s: list[float]) -> None:
    due = in_turn(credits_s)
    assert set(due) == {lane for lane in (P2, P3, AGED) if credits_s[lane] >= 0}
    overdue = [credits_s[lane] / SHARES[lane] for lane in due]
    assert overdue == sorted(overdue, reverse=True)


@given(st.floats(0.1, 100), st.floats(0.1, 100), st.integers(1, 50))
def test_many_of_a_kind_move_a_mean_as_one_after_the_other(known_s: float, found_s: float, n: int) -> None:
    one = known_s
    for _ in range(n):
        one = mean(one, found_s, 0.1)
    assert abs(one - mean(known_s, found_s, 0.1, n)) < 1e-6

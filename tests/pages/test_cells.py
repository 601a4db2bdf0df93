"""The grid of children: squares and figures say the same, for one and for 10,000."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.lifecycle import State
from harness.store.runs import LETTERS, PARKED
from harness.web.pages import cells


@given(st.text("".join(LETTERS), max_size=3000))
def test_a_grid_has_a_square_for_every_task_and_never_more_than_400(states: str) -> None:
    grid = cells.grid(states)
    assert len(grid.squares) <= cells.SQUARES
    assert (len(grid.squares) - 1) * grid.each < len(states) or not states
    assert len(grid.squares) * grid.each >= len(states)
    assert sum(cells.counts(states).values()) == len(states)


@given(st.text("".join(LETTERS), min_size=1, max_size=3000))
def test_no_failure_hides_in_a_square(states: str) -> None:
    grid = cells.grid(states)
    for at, square in enumerate(grid.squares):
        inside = Counter(states[at * grid.each : (at + 1) * grid.each])
        assert square.startswith("bad") == (inside["f"] > 0)
        assert (square == "bad") == (2 * inside["f"] >= inside.total() and inside["f"] > 0)
        assert (square == "ok") == (set(inside) == {"s"}), "all that is done is green, and nothing else"


def test_letters_name_every_state_once_and_who_waits_for_children_apart() -> None:
    assert sorted(state for letter, state in LETTERS.items() if letter != PARKED) == sorted(State)
    assert cells.counts(f"{PARKED}p") == {State.PAUSED: 2}

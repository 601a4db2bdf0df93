"""The picture of a graph: what its lanes lead to is what the graph says."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from harness.web.pages.graph import LANES_MOST, NODES_MOST, Picture, lay


def read(picture: Picture) -> dict[int, set[int]]:
    """What each node waits for, by nothing but the picture: lanes followed from above."""
    lanes: dict[int, set[int]] = {}
    found = {}
    for row in picture.rows:
        assert row.column not in row.passing, "a lane passes through a mark"
        found[row.node] = set().union(*(lanes[at] for at in row.entering))
        lanes = {at: lanes[at] for at in row.passing}
        for at in row.leaving:
            lanes.setdefault(at, set()).add(row.node)
    assert not lanes, "a line leads to nothing"
    return found


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """Graphs without circles, their nodes in any order."""
    n = draw(st.integers(1, 14))
    names = draw(st.permutations(range(n)))
    found: list[list[int]] = [[] for _ in range(n)]
    for at in range(1, n):
        for on in draw(st.sets(st.integers(0, at - 1), max_size=4)):
            found[names[at]].append(names[on])
    return found


@given(graphs())
def test_following_the_lanes_leads_from_each_node_to_exactly_those_that_wait_for_it(waits_for: list[list[int]]) -> None:
    picture = lay(waits_for)
    if picture is not None:
        assert read(picture) == {at: set(some) for at, some in enumerate(waits_for)}
        assert picture.columns <= LANES_MOST


@given(graphs())
def test_every_node_has_one_row_below_all_that_it_waits_for(waits_for: list[list[int]]) -> None:
    picture = lay(waits_for)
    if picture is not None:
        places = {row.node: at for at, row in enumerate(picture.rows)}
        assert len(places) == len(picture.rows) == len(waits_for)
        assert all(places[on] < places[at] for at, some in enumerate(waits_for) for on in some)


def test_a_fan_out_of_58_and_what_joins_it_are_three_columns_wide() -> None:
    picture = lay([[], *([0] for _ in range(58)), list(range(1, 59))])
    assert picture is not None and picture.columns == 3
    assert {row.column for row in picture.rows[1:-1]} == {1}, "siblings stand below each other"
    assert (picture.rows[0].column, picture.rows[-1].column) == (0, 0)


def test_a_chain_is_one_straight_line() -> None:
    picture = lay([[], *([at] for at in range(NODES_MOST - 1))])
    assert picture is not None and picture.columns == 1


def test_chains_between_a_fan_out_and_a_join_stay_together_and_below_each_other() -> None:
    chains = 12  # 0 -> (1 -> 2), (3 -> 4), .. -> the last
    waits_for = [
        [],
        *([0] if at % 2 else [at - 1] for at in range(1, 2 * chains + 1)),
        list(range(2, 2 * chains + 1, 2)),
    ]
    picture = lay(waits_for)
    assert picture is not None
    assert [row.node for row in picture.rows] == list(range(2 * chains + 2)), "in the order in which they were given"
    assert picture.columns <= 3


def test_complete_layers_are_one_lane_each_way() -> None:
    layers = [range(at, at + 5) for at in range(0, 20, 5)]
    waits_for: list[list[int]] = [[] for _ in range(20)]
    for above, below in pairwise(layers):
        for at in below:
            waits_for[at] = list(above)
    picture = lay(waits_for)
    assert picture is not None and picture.columns <= 4


def test_what_is_too_large_or_crosses_itself_too_much_is_not_drawn() -> None:
    assert lay([[] for _ in range(NODES_MOST + 1)]) is None
    crossing = [[], *([] for _ in range(15)), *([at, (at + 7) % 16] for at in range(16))]
    assert lay(crossing) is None
    assert lay([]) == Picture(rows=(), columns=0)

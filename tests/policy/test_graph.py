"""What nodes depend on: whatever the graph, it is refused exactly when some nodes wait for each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy import graph
from harness.policy.errors import Invalid

GRAPHS = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=4), min_size=n, max_size=n)
)


def can_all_run(ons: list[list[int]]) -> bool:
    """Run what can run, until nothing more can."""
    done: set[int] = set()
    while more := {at for at, some in enumerate(ons) if at not in done and done.issuperset(some)}:
        done |= more
    return len(done) == len(ons)


@given(GRAPHS)
def test_a_graph_is_refused_exactly_when_not_every_node_could_run(ons: list[list[int]]) -> None:
    try:
        found = graph.resolve([""] * len(ons), ons)
    except Invalid:
        assert not can_all_run(ons)
    else:
        assert can_all_run(ons)
        assert found == [tuple(sorted(set(some))) for some in ons]


@pytest.mark.parametrize(
    ("names", "depends_on", "message"),
    [
        (
            ["a", "b", "c"],
            [["c"], ["a"], ["b"]],
            "nodes[0].depends_on: these nodes wait for each other: a -> c -> b -> a",
        ),
        (["", "b", ""], [[], [2], ["b"]], "these nodes wait for each other: b -> nodes[2] -> b; leave one"),
        (["a"], [["a"]], "nodes[0].depends_on[0]: a node can't depend on itself"),
        (["a", "b"], [[], ["a", "x"]], "nodes[1].depends_on[1]: no node of this run is named 'x'"),
        (["a", "b"], [[], [2]], "nodes[1].depends_on[0]: there is no nodes[2]"),
        (["a", "a"], [[], []], "nodes[1].name: 'a' is nodes[0] already"),
        (["a\n"], [[]], "nodes[0].name: must be printable text of at most 100 characters"),
        ([""] * 400, [[], *[list(range(at)) for at in range(1, 400)]], "a run has at most 50,000 dependencies"),
    ],
)
def test_what_is_wrong_with_a_graph_is_told_with_its_field(
    names: list[str], depends_on: list[list[str | int]], message: str
) -> None:
    with pytest.raises(Invalid) as refused:
        graph.resolve(names, depends_on)
    assert message in refused.value.message
    assert refused.value.field and refused.value.message.startswith(refused.value.field)


def test_ten_thousand_nodes_in_a_row_are_no_circle() -> None:
    n = 10_000
    assert graph.resolve([""] * n, [[], *[[at] for at in range(n - 1)]])[-1] == (n - 2,)

"""The picture of a run whose tasks wait for each other: a row a task, a mark in a column, lines in lanes. Pure.

It reads like a log of branches, so that it holds a chain of 60 tasks and a fan-out of 50 at a width of 390 px. A lane
carries the lines of all tasks that are waited for by exactly the same ones, so 50 tasks before one are one line, and
complete layers don't become a web. Invariants: a row comes after all that it waits for; a lane never passes through a
mark; following lanes downwards from a mark leads to exactly the tasks that wait for it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

NODES_MOST = 60  # drawn; more are a grid by state
LANES_MOST = 10  # at 16 px each; a graph that needs more crosses itself too much to be read


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One task's row. `node`: which; `column`: its mark's; lanes that pass by, that come in, and that it goes on in.

    A lane may come in and pass by: it goes on to others.
    """

    node: int
    column: int
    passing: tuple[int, ...]
    entering: tuple[int, ...]
    leaving: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """The rows from above, and how many columns they have."""

    rows: tuple[Row, ...]
    columns: int


@dataclass(slots=True)
class _Lane:
    """Lines that go on to `left`; `wide`: there were several when it began."""

    left: frozenset[int]
    wide: bool


def lay(waits_for: Sequence[Sequence[int]]) -> Picture | None:
    """Return the picture of a graph without circles; None: it would be too large, or cross itself too much.

    `waits_for`: of each node, the places of those that it waits for.

    >>> [(row.node, row.column, row.entering, row.leaving) for row in lay([[], [0], [0], [1, 2]]).rows]
    [(0, 0, (), (0,)), (1, 1, (0,), (2,)), (2, 1, (0,), (2,)), (3, 0, (2,), ())]
    """
    if len(waits_for) > NODES_MOST:
        return None
    waited_by: list[list[int]] = [[] for _ in waits_for]
    for at, some in enumerate(waits_for):
        for on in some:
            waited_by[on].append(at)
    targets = [frozenset(some) for some in waited_by]
    alike = Counter(targets)
    lanes: dict[int, _Lane] = {}
    rows = []
    for node in _order(waits_for, waited_by):
        entering = tuple(sorted(at for at, lane in lanes.items() if node in lane.left))
        ended = {at: lanes[at] for at in entering if lanes[at].left == {node}}
        for at in entering:
            lanes[at].left -= {node}
            if at in ended:
                del lanes[at]
        passing = tuple(sorted(lanes))
        only = next(iter(ended.items())) if len(waits_for[node]) == 1 and ended else None
        if only is not None and not only[1].wide:
            column = only[0]  # a link of a chain stays below the one before
        else:
            # Not where the last of many would leave the column of its siblings.
            column = _free({*lanes, *(at for at, lane in ended.items() if lane.wide)})
        leaving: tuple[int, ...] = ()
        if targets[node]:
            lane = next((at for at, one in sorted(lanes.items()) if one.left == targets[node]), None)
            if lane is None:
                shared = alike[targets[node]] > 1  # the column stays free for those that go the same way
                lane = _free(lanes, after=column if shared else column - 1)
                lanes[lane] = _Lane(targets[node], wide=len(targets[node]) > 1)
            leaving = (lane,)
        rows.append(Row(node=node, column=column, passing=passing, entering=entering, leaving=leaving))
        if max((column, *lanes)) >= LANES_MOST:
            return None
    widest = max((max((row.column, *row.passing, *row.entering, *row.leaving)) for row in rows), default=-1)
    return Picture(rows=tuple(rows), columns=widest + 1)


def _order(waits_for: Sequence[Sequence[int]], waited_by: Sequence[Sequence[int]]) -> list[int]:
    """The nodes, each behind all that it waits for, and near to the last of them; else as they were submitted."""
    left = [len(set(some)) for some in waits_for]
    ready = [at for at, n in enumerate(left) if n == 0][::-1]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for waiter in reversed(waited_by[node]):
            left[waiter] -= 1
            if left[waiter] == 0:
                ready.append(waiter)
    return order


def _free(taken: "dict[int, _Lane] | set[int]", after: int = -1) -> int:
    """The first column behind `after` that nothing is in."""
    column = after + 1
    while column in taken:
        column += 1
    return column

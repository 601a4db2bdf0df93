"""Children, or the tasks of a run, as a grid of squares, and in figures. Pure; `store.runs` says how they stand.

Up to SQUARES tasks have a square each; of more, each square stands for as many as are needed, in the colour of the
worst of them. The order is that of birth and never changes, so that a square stays where it is while its colour
changes. The picture is hidden from screen readers: the figures beside it say the same.
"""

from collections import Counter
from dataclasses import dataclass

from harness.policy.lifecycle import State
from harness.store.runs import LETTERS

SQUARES = 400
# From the worst to the best. Failures are apart: how many there are decides how red a square is.
_CLASSES = (
    ("w", "ask"),
    ("t", "try"),
    ("r", "run"),
    ("q", "que"),
    ("k", "pau"),
    ("p", "pau"),
    ("c", "can"),
    ("s", "ok"),
)


@dataclass(frozen=True, slots=True)
class Grid:
    """The squares as names of CSS classes, in order; `each`: how many tasks one of them stands for."""

    squares: list[str]
    each: int


def grid(states: str) -> Grid:
    """Return the squares of tasks that stand so (store.runs.LETTERS).

    >>> grid("ssrf")
    Grid(squares=['ok', 'ok', 'run', 'bad'], each=1)
    >>> found = grid("s" * 9_999 + "f"); len(found.squares), found.each, found.squares[-1]
    (400, 25, 'bad1')
    """
    each = max(1, -(-len(states) // SQUARES))
    return Grid([_square(states[at : at + each]) for at in range(0, len(states), each)], each)


def counts(states: str) -> dict[State, int]:
    """Return how many tasks are in which state.

    >>> {str(state): n for state, n in counts("ssrt").items()}
    {'running': 1, 'failed_retryable': 1, 'succeeded': 2}
    """
    found: dict[State, int] = {}
    letters = Counter(states)
    for letter, state in LETTERS.items():
        if letter in letters:
            found[state] = found.get(state, 0) + letters[letter]
    return found


def _square(states: str) -> str:
    if failed := states.count("f"):
        return "bad" if 2 * failed >= len(states) else "bad1"
    return next(name for letter, name in _CLASSES if letter in states)

"""When a task that waits for its children goes on, and how their states are kept in a step. Pure.

H1  A gather waits for some children and needs that so many of them succeed: all, one (`any`), or a number. Whatever it
    needs, its wait is over when all of them have ended: who failed can't succeed any more.
H2  What it returns is what was so when it went on: a later attempt gets the same states, whatever became of them since.
H3  Children don't outlive their parent: however it ends, those that live are cancelled.
"""

from collections.abc import Sequence
from typing import Final, Literal

from harness.policy.errors import Invalid
from harness.policy.lifecycle import TERMINAL, State

Policy = Literal["all", "any"] | int
Ranges = tuple[tuple[int, int], ...]  # ids of children: the first, and how many follow each other

_LETTERS: Final = {
    State.QUEUED: "q",
    State.RUNNING: "r",
    State.WAITING_APPROVAL: "w",
    State.PAUSED: "p",
    State.FAILED_RETRYABLE: "t",
    State.SUCCEEDED: "S",
    State.FAILED_TERMINAL: "F",
    State.CANCELLED: "C",
}
_STATES: Final = {letter: state for state, letter in _LETTERS.items()}


def need(policy: object, total: int) -> int:
    """Return how many of `total` children must succeed. Raises: Invalid naming `policy`.

    >>> need("all", 7), need("any", 7), need(3, 7), need("any", 0)
    (7, 1, 3, 0)
    """
    if policy == "all":
        return total
    if policy == "any":
        return min(1, total)
    if isinstance(policy, int) and not isinstance(policy, bool) and 1 <= policy <= total:
        return policy
    raise Invalid(
        f"policy: must be 'all', 'any' or a number from 1 to {total} (so many children are gathered), not {policy!r}",
        field="policy",
    )


def over(states: Sequence[State], needed: int) -> bool:
    """Return whether the wait is over (H1).

    >>> over([State.SUCCEEDED, State.RUNNING], 1), over([State.FAILED_TERMINAL, State.RUNNING], 1), over([], 0)
    (True, False, True)
    """
    live = sum(state not in TERMINAL for state in states)
    return live == 0 or (needed < len(states) and sum(state is State.SUCCEEDED for state in states) >= needed)


def ranges(ids: Sequence[int]) -> Ranges:
    """Return ids, in order of birth, as ranges.

    >>> ranges([5, 6, 7, 10])
    ((5, 3), (10, 1))
    """
    found: list[list[int]] = []
    for one in ids:
        if found and one == found[-1][0] + found[-1][1]:
            found[-1][1] += 1
        else:
            found.append([one, 1])
    return tuple((first, n) for first, n in found)


def written(states: Sequence[State]) -> str:
    """Return states as text, a letter each: ten thousand of them fit into a step.

    >>> read(written([State.SUCCEEDED, State.QUEUED])) == [State.SUCCEEDED, State.QUEUED]
    True
    """
    return "".join(_LETTERS[state] for state in states)


def read(text: str) -> list[State]:
    """Return the states that `written` wrote."""
    return [_STATES[letter] for letter in text]

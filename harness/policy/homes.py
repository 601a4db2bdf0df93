"""Which worker processes of a pool get its work, when its downstreams can't keep all of them busy.

Pure. Where every kind of a pool needs something that tasks hold, the pool's ceiling is exact: no more slots are used.
Then as many processes as the ceiling needs are its homes, the oldest first, and the others stand by: they start, gain
nothing, and take over when a home drains or falls silent. What a home has warm (connections) is then used again and
again, instead of lying idle in one process while another opens the same anew.

Invariants: the homes' slots cover the ceiling whenever all processes' do; there is always a home while a process lives;
who becomes a home waits until who was one has had time to see it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.policy.capacity import Bound

LOOK_S = 1.0  # between two looks of a process
SURE_AFTER = 4  # looks in a row that must say so before a process takes over from another
SEEN_FOR_S = 3.0  # what a look said holds for so long, less than SURE_AFTER looks: then nothing is kept


@dataclass(frozen=True, slots=True)
class Standing:
    """A live process of a pool that isn't draining, by age. `session` names it."""

    session: str
    slots: int


@dataclass(frozen=True, slots=True)
class Seat:
    """What a process remembers of its part in a pool: whether it gets work, and looks in a row that said it should."""

    home: bool = False
    looks: int = 0


def ceiling(bound: Bound) -> int | None:
    """Return the slots beyond which a pool's work never goes; None: calls or nothing bind it, so there is no such."""
    return bound.slots if bound.exact else None


def homes(most: int, standing: Sequence[Standing]) -> frozenset[str]:
    """Return the sessions that get the work. `standing`: oldest first.

    >>> sorted(homes(20, [Standing("a", 16), Standing("b", 16), Standing("c", 16)]))
    ['a', 'b']
    >>> sorted(homes(0, [Standing("a", 16), Standing("b", 16)]))
    ['a']
    """
    found: set[str] = set()
    slots = 0
    for one in standing:
        if found and slots >= most:
            break
        found.add(one.session)
        slots += one.slots
    return frozenset(found)


def sit(seat: Seat, session: str, most: int, standing: Sequence[Standing]) -> Seat:
    """Return a process's part after a look. It steps back at once, and takes over when it is sure, or alone.

    >>> both = [Standing("a", 16), Standing("b", 16)]
    >>> sit(Seat(), "a", 16, both).home, sit(Seat(), "a", 16, both[:1]).home
    (False, True)
    """
    if session not in homes(most, standing):
        return Seat()
    looks = seat.looks + 1
    alone = all(one.session == session for one in standing)
    return replace(seat, home=seat.home or alone or looks >= SURE_AFTER, looks=looks)

"""The numbers of children: each follows from its parent's, so that one made twice has the number of its twin. Pure."""

FAMILY, QUESTION, TALK = "bench.family", "bench.question", "bench.talk"
GENERATION = 10_000  # work that clients bring has numbers below it
FAMILIES_FROM = 100  # of a parent's children, those below are leaves


def leaves_of(i: int, n: int) -> list[int]:
    """Return the numbers of the children that only work.

    >>> leaves_of(7, 2)
    [80000, 80001]
    """
    return [GENERATION * (i + 1) + nth for nth in range(n)]


def families_of(i: int, n: int) -> list[int]:
    """Return the numbers of the children that have children.

    >>> families_of(7, 1), leaves_of(families_of(7, 1)[0], 1)
    ([80100], [801010000])
    """
    return [GENERATION * (i + 1) + FAMILIES_FROM + nth for nth in range(n)]

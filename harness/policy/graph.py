"""What the nodes of a run depend on: names and places become numbers, and a circle is refused with its nodes. Pure."""

from collections.abc import Mapping, Sequence

from harness.policy.errors import Invalid

EDGES_MOST = 50_000  # of one run: an end tells all that wait for it in one transaction
NAME_MAX_CHARS = 100
SHOWN_MOST = 20  # nodes of a circle that are named


def resolve(names: Sequence[str], depends_on: Sequence[Sequence[str | int]]) -> list[tuple[int, ...]]:
    """Return of each node the places of those that it depends on, sorted. `names`: '' for a node without one.

    Raises: Invalid naming the field: a name twice or unknown, a place that isn't there, itself, too many, a circle.

    >>> resolve(["a", "", "c"], [[], ["a"], [0, 1, "a"]])
    [(), (0,), (0, 1)]
    """
    places = _places(names)
    found: list[tuple[int, ...]] = []
    edges = 0
    for at, wanted in enumerate(depends_on):
        ons = {
            _place(one, places, len(names), at, field=f"nodes[{at}].depends_on[{nth}]")
            for nth, one in enumerate(wanted)
        }
        edges += len(ons)
        if edges > EDGES_MOST:
            raise Invalid(
                f"nodes[{at}].depends_on: a run has at most {EDGES_MOST:,} dependencies: join them in a node between",
                field=f"nodes[{at}].depends_on",
            )
        found.append(tuple(sorted(ons)))
    if circle := _circle(found):
        shown = " -> ".join(names[at] or f"nodes[{at}]" for at in [*circle[:SHOWN_MOST], circle[0]])
        field = f"nodes[{circle[0]}].depends_on"
        raise Invalid(
            f"{field}: these nodes wait for each other: {shown}; leave one of the dependencies out", field=field
        )
    return found


def _places(names: Sequence[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for at, name in enumerate(names):
        if not name:
            continue
        if len(name) > NAME_MAX_CHARS or not name.isprintable():
            raise Invalid(
                f"nodes[{at}].name: must be printable text of at most {NAME_MAX_CHARS} characters",
                field=f"nodes[{at}].name",
            )
        if name in places:
            raise Invalid(f"nodes[{at}].name: {name!r} is nodes[{places[name]}] already", field=f"nodes[{at}].name")
        places[name] = at
    return places


def _place(one: str | int, places: Mapping[str, int], n: int, at: int, *, field: str) -> int:
    place = places.get(one) if isinstance(one, str) else one if 0 <= one < n else None
    if place is None:
        what = f"no node of this run is named {one!r}" if isinstance(one, str) else f"there is no nodes[{one}]"
        raise Invalid(f"{field}: {what}", field=field)
    if place == at:
        raise Invalid(f"{field}: a node can't depend on itself", field=field)
    return place


def _circle(ons: Sequence[Sequence[int]]) -> list[int]:
    """Nodes that wait for each other, each for the next; none: the graph has no circle."""
    waits = [len(some) for some in ons]
    waiters: dict[int, list[int]] = {}
    for at, some in enumerate(ons):
        for on in some:
            waiters.setdefault(on, []).append(at)
    free = [at for at, n in enumerate(waits) if n == 0]
    while free:
        for waiter in waiters.get(free.pop(), ()):
            waits[waiter] -= 1
            if waits[waiter] == 0:
                free.append(waiter)
    left = next((at for at, n in enumerate(waits) if n), None)
    if left is None:
        return []
    # Each that is left waits for another that is left: following them comes round.
    path: dict[int, None] = {}
    while left not in path:
        path[left] = None
        left = next(on for on in ons[left] if waits[on])
    way = list(path)
    return way[way.index(left) :]

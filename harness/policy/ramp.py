"""How much of its slots a scope gets back after a pause: a share that doubles, so that no stampede follows. Pure.

What waited during a pause would otherwise ask its downstreams all at once, at the moment when whoever paused it knows
least about them. Each pool gives the scope a share of the pool's slots; what ran on through the pause counts in it.

Invariants: the share never falls with time; it is in (0, 1], and 1 from WHOLE_AFTER_S on; a pool with a slot gives one.
"""

from collections.abc import Mapping, Sequence
from math import ceil

START_RATIO = 0.10
DOUBLES_EVERY_S = 5.0
WHOLE_AFTER_S = 20.0  # 10, 20, 40, 80 %, then all

Ramp = tuple[str, str, float]  # scope, key, seconds since its pause ended
Held = tuple[str, int, int, int, int]  # pool, priority, tenant, run, leases
Left = dict[tuple[str, int], int]  # ("priority" | "tenant" | "run", number) -> slots left in one pool
_COLUMN = {"priority": 1, "pool_priority": 1, "tenant": 2, "run": 3}


def share(resumed_s: float) -> float:
    """Return the share of its slots that a scope has, `resumed_s` seconds after its pause ended.

    >>> [share(s) for s in (0, 4.9, 5, 12, 19, 20)]
    [0.1, 0.1, 0.2, 0.4, 0.8, 1.0]
    """
    if resumed_s >= WHOLE_AFTER_S:
        return 1.0
    return min(1.0, START_RATIO * 2.0 ** max(0, int(resumed_s / DOUBLES_EVERY_S)))


def most_in_flight(slots: int, resumed_s: float) -> int:
    """Return how many of a pool's slots the scope may hold now.

    >>> most_in_flight(50, 0), most_in_flight(4, 0), most_in_flight(50, 60)
    (5, 1, 50)
    """
    return min(slots, max(1, ceil(share(resumed_s) * slots - 1e-9)))


def left(
    ramps: Sequence[Ramp],
    held: Sequence[Held],
    slots: Mapping[str, int],
    *,
    aged_s: float,
) -> tuple[dict[str, int], dict[str, Left]]:
    """Return what is left to pools as a whole, and by pool to priorities, tenants and runs; of those on a ramp only.

    `ramps`: (scope, key, seconds since its pause ended), as of `aged_s` seconds ago. `held`: (pool, priority, tenant,
    run, leases).
    """
    pools: dict[str, int] = {}
    parts: dict[str, Left] = {}
    for pool, total in slots.items():
        here = [row for row in held if row[0] == pool]
        for scope, key, resumed_s in ramps:
            most = most_in_flight(total, resumed_s + aged_s)
            if scope == "pool":
                if key == pool:
                    pools[pool] = min(pools.get(pool, most), most - sum(row[4] for row in here))
                continue
            if scope == "pool_priority" and not key.startswith(f"{pool}.p"):
                continue
            number = int(key[-1]) if _COLUMN[scope] == 1 else int(key)
            used = sum(row[4] for row in here if row[_COLUMN[scope]] == number)
            name = ("priority" if _COLUMN[scope] == 1 else scope, number)
            part = parts.setdefault(pool, {})
            part[name] = min(part.get(name, most), most - used)
    return pools, parts

"""What scopes that come back from a pause may take now: the slots that their ramp gives, less what they hold."""

from collections.abc import Mapping, Sequence

from harness.policy import ramp

Left = dict[tuple[str, int], int]  # ("priority" | "tenant" | "run", number) -> slots left in one pool
_COLUMN = {"priority": 1, "pool_priority": 1, "tenant": 2, "run": 3}


def left(
    ramps: Sequence[tuple[str, str, float]],
    held: Sequence[tuple[str, int, int, int, int]],
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
            most = ramp.most_in_flight(total, resumed_s + aged_s)
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

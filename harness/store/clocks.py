"""What a leader's memory has moved and PostgreSQL must keep: clocks, credits, the charges in them, flows it has learnt.

It goes with a release, in one commit (transitions.release), or alone (`fold`). Values are absolute, and a charge goes
in the commit that writes what it moved: a leader that falls in between has done neither.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from harness.policy.accounts import Changes, ClockKey, ClockRow, CreditRow
from harness.store import sql
from harness.store.database import Connection

# A thread that doesn't return is charged so many seconds at most: its worker leaves long before, and a step of the
# server's clock is no service.
ZOMBIE_CHARGED_S = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """What is to be written. `changes` by pool; `charges`: ids of those that are in it; `known`: ids of flows.

    Clocks that it forgets are for `fold` alone.
    """

    changes: Mapping[str, Changes] = field(default_factory=dict)
    charges: tuple[int, ...] = ()
    known: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.charges or self.known)

    def parameters(self) -> dict[str, object]:
        """Return what a statement takes of it."""
        return {
            "clocks": _rows((pool, row) for pool, one in self.changes.items() for row in one.clocks),
            "credits": _rows((pool, row) for pool, one in self.changes.items() for row in one.credits),
            "charges": list(self.charges),
            "known": list(self.known),
        }


@dataclass(frozen=True, slots=True)
class Used:
    """How long tasks of a kind took: so many, on the mean."""

    kind: str
    n: int
    mean_s: float


def fold(
    connection: Connection,
    moved: Moved,
    *,
    forgotten: Iterable[tuple[str, ClockKey]] = (),
    used: Iterable[Used] = (),
    epoch: int,
    weight: float,
) -> bool:
    """Write what moved, delete clocks that say nothing any more (pool, key), and take into the estimates what was used.

    `weight`: of one task in the moving mean of its kind. False: another leads, nothing is written.
    """
    keys = [
        {"pool": pool, "priority": priority, "tenant": tenant, "run": run}
        for pool, (priority, tenant, run) in forgotten
    ]
    parameters = moved.parameters() | {
        "epoch": epoch,
        "forgotten": json.dumps(keys),
        "used": json.dumps([asdict(one) for one in used]),
        "weight": weight,
    }
    row = connection.execute(sql.load("snapshot/fold"), parameters).fetchone()
    return row is not None and bool(row[0])


def _rows(rows: Iterable[tuple[str, ClockRow | CreditRow]]) -> str:
    # Not `asdict`: it copies each value deeply, which takes longer than the plan.
    return json.dumps([{"pool": pool} | {name: getattr(row, name) for name in row.__slots__} for pool, row in rows])

"""What the door goes by: one row that the leader's side keeps, a tenant's own share of it, and what doors have refused.

Nothing here decides. Under role web a look sees the tenant's own rows, and of others the sums in that one row.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.policy.predicted import Crowd, Place
from harness.policy.pressure import Level
from harness.policy.pressure.facts import WINDOW_S, Held, Limit
from harness.policy.prospect import Came, Deferred, Facts, Ran, Waits
from harness.policy.resources import Resource
from harness.policy.settings import QUARANTINE, SYSTEM
from harness.store import resources, sql
from harness.store.database import Connection
from harness.store.pressure import FLOWS_MOST, OWN, limit_of
from harness.store.sessions import DEAD_AFTER_S

TASKS_MOST = 100_000  # waiting ones that are counted, in all
GROUPS_MOST = 500  # of deferred tasks: (pool, priority, signature, tenant)
COUNTED_MOST = 10_000  # of one such group
ATTEMPTS_MOST = 500
ARRIVALS_MOST = 2_000  # of more in a minute the newest tell the rate
RAN_S = 300.0  # attempts tell of services that ended so lately
SOON_S = 30.0  # what was postponed for longer isn't in anybody's way yet
ENOUGH = 5  # attempts of a kind that make a median
OWN_MOST = 10_000  # of a tenant's tasks before its next one that are counted
KEPT = "1 day"  # what was refused

Asked = tuple[str, int, str]  # pool, priority, signature


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What the leader's side saw. `at_s`: epoch seconds; `last_task`: the newest id."""

    facts: Facts
    at_s: float
    last_task: int


@dataclass(frozen=True, slots=True)
class OwnLine:
    """A tenant's ready tasks of a (pool, priority): all, those of the signature, those newer than the row."""

    tasks: int
    alike: int
    fresh: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """The door as it is for one tenant. `at_s` None: nobody keeps the row; `places` None: they are those known."""

    level: Level
    at_s: float | None
    age_s: float
    places: Mapping[str, Place] | None
    service_s: Mapping[str, float]
    weight: float
    cap: int
    in_flight: int
    own: tuple[OwnLine, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Submissions that a door answered alike within a second, `age_s` seconds ago; see models.DoorAnswer."""

    age_s: float
    tenant: int
    pool: str
    priority: int
    signature: str
    code: str
    reason: str
    tasks: int
    once: int


@dataclass(frozen=True, slots=True)
class Told:
    """What was refused or deferred in one minute, alike."""

    minute: datetime
    priority: int
    code: str
    reason: str
    tasks: int


def look(connection: Connection, configured: Mapping[str, Resource]) -> Look:
    """Look at all that waits are predicted from: one bounded statement, and how resources stand."""
    row = connection.execute(
        sql.load("door/look"),
        {
            "own": [str(code) for code in OWN],
            "flows": FLOWS_MOST,
            "tasks": TASKS_MOST,
            "attempts": ATTEMPTS_MOST,
            "arrivals": ARRIVALS_MOST,
            "groups": GROUPS_MOST,
            "counted": COUNTED_MOST,
            "window_s": WINDOW_S,
            "ran_s": RAN_S,
            "soon_s": SOON_S,
            "dead_after_s": DEAD_AFTER_S,
            "enough": ENOUGH,
        },
    ).fetchone()
    assert row is not None
    found = row[0]
    facts = Facts(
        slots={pool: n for pool, n in found["slots"] if pool not in (SYSTEM, QUARANTINE)},
        limits=_limits(connection, configured, now_s=found["at"]),
        waiting=[Waits(*one) for one in found["waiting"]],
        held=[Held(*one) for one in found["held"]],
        came=[Came(*one) for one in found["came"]],
        ran=[Ran(*one) for one in found["ran"]],
        deferred=[Deferred(*one) for one in found["deferred"]],
        service_s=found["service_s"] or {},
    )
    return Look(facts=facts, at_s=found["at"], last_task=found["last_task"])


def keep(connection: Connection, seen: Look, places: Mapping[str, Place], *, epoch: int) -> None:
    """Keep what a door goes by, under the leader's epoch."""
    facts = {
        "places": {name: [one.slots, one.in_use, one.mean_s, one.rates, one.crowds] for name, one in places.items()},
        "service_s": dict(seen.facts.service_s),
    }
    connection.execute(
        sql.load("door/keep"),
        {"at": seen.at_s, "last_task": seen.last_task, "facts": json.dumps(facts), "epoch": epoch},
    )


def seen(connection: Connection, tenant: int, asked: Sequence[Asked], *, known_s: float | None) -> Seen | None:
    """Return the door as it is for a tenant, in one statement. `known_s`: `at_s` of the places that are known."""
    row = connection.execute(
        sql.load("door/seen"),
        {"tenant": tenant, "known": known_s, "asked": json.dumps(asked), "most": OWN_MOST},
    ).fetchone()
    if row is None:
        return None
    facts: Mapping[str, Any] | None = row[3]
    return Seen(
        level=Level(row[0] or 0),
        at_s=row[1],
        age_s=row[2] or 0.0,
        places=None if facts is None else {name: _place(*one) for name, one in facts["places"].items()},
        service_s={} if facts is None else facts["service_s"],
        weight=row[4],
        cap=row[5],
        in_flight=row[6],
        own=tuple([OwnLine(*one) for one in row[7]]),
    )


def tell(connection: Connection, answers: Sequence[Answer]) -> None:
    """Add what a door refused or deferred."""
    rows = [
        {
            "age_s": one.age_s,
            "tenant": one.tenant,
            "pool": one.pool,
            "priority": one.priority,
            "signature": one.signature,
            "code": one.code,
            "reason": one.reason,
            "tasks": one.tasks,
            "once": one.once,
        }
        for one in answers
    ]
    connection.execute(sql.load("door/tell"), {"rows": json.dumps(rows)})


def told(connection: Connection, *, minutes: int, most: int) -> list[Told]:
    """Return what doors refused and deferred in the last minutes, the newest first; under role web of one tenant."""
    return [Told(*row) for row in connection.execute(sql.load("door/told"), {"minutes": minutes, "most": most})]


def forget(connection: Connection) -> None:
    """Drop what was refused long ago."""
    connection.execute(f"DELETE FROM door_answer WHERE at < clock_timestamp() - interval '{KEPT}'")


def _place(
    slots: float, in_use: float, mean_s: float, rates: Sequence[float], crowds: Sequence[Sequence[tuple[float, float]]]
) -> Place:
    return Place(
        slots=slots,
        in_use=in_use,
        mean_s=mean_s,
        rates=tuple(rates),
        crowds=tuple([tuple([Crowd(*one) for one in those]) for those in crowds]),
    )


def _limits(connection: Connection, configured: Mapping[str, Resource], *, now_s: float) -> dict[str, Limit]:
    kept = resources.kept(connection)
    return {
        # One that nobody has seen lately is as wide as it is configured, which promises no more than is so.
        name: limit_of(one, kept.get(name), now_s=now_s) or Limit(limit=one.resource.capacity, in_use=0, calls=False)
        for name, one in resources.effective(connection, configured).items()
    }

"""Databases that tasks work on, and how many connections to each may be in use now: what the target really has free.

Pure. A target's pool is shared with clients that Harness doesn't know, so its limit is measured, not configured:

    limit = min(capacity, pool - others, hard - others - spare)

of the least of the last SETTLED_S seconds, so that it falls at once and rises when the others have stayed away.
`others`: connections that aren't of Harness's tasks, and those that tasks left behind when their worker died. `hard`:
what the server itself refuses beyond (of the role, the database, the server). There `spare` stays free, or a newcomer
could never enter and so never be seen; while newcomers take all of it it doubles, and halves again when they don't.

Invariants: 0 <= limit <= capacity; a limit never rises to more than twice what it was; work under way is nobody's
business here, a lower limit only keeps the next task out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from harness.policy.resources import Resource
from harness.policy.toml import TomlFile

EVERY_S = 1.0  # between two measurements of a target
SETTLED_S = 3.0  # others must have been away for so long: a foreign pool that opens and closes makes no waves
SPARE_LEAST = 1
YIELD_S = 5.0  # a larger spare is halved so long after the last newcomer, or at once when it isn't wanted:
LEFT_LEAST = 2  # places that a look finds free beside its own
AWAY_AFTER = 2  # failures in a row: one lost packet blocks nobody
LEFT_BEHIND_LOOKS = 3  # a connection without a lease in so many looks in a row: between two a task may just have ended

Mode = Literal["follow", "yield", "full", "unreachable", "unset", "invalid"]
Reason = Literal[
    "began",
    "others_came",
    "others_left",
    "left_behind",
    "capacity",
    "yielding",
    "settled",
    "full",
    "back",
    "unreachable",
    "unset",
    "invalid",
]

_FILE = TomlFile("resources.toml")
_VARIABLE = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A database that tasks work on. `dsn_env` names the variable with its address; `pool`: connections for everybody.

    `follow` False: its limit is its capacity, whatever the target has free.
    """

    name: str
    dsn_env: str
    pool: int
    follow: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceiling:
    """A number of connections beyond which the server refuses: of the role, the database or the server."""

    of: Literal["role", "database", "server"]
    limit: int
    others: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What the target answered. `others`: connections to its database that aren't our tasks'.

    `ours`: our tasks' that are at work; `kept`: those that lie idle between two tasks.
    """

    others: int
    ours: int
    kept: int = 0
    ceilings: tuple[Ceiling, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Full:
    """The target let nobody in: it has as many connections as it takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Away:
    """The target can't be asked. `why` is for the log; it names no secret."""

    mode: Literal["unreachable", "unset", "invalid"]
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """What one look left for us: by the pool, by the server (None: it refuses nobody), and connections left behind."""

    at_s: float
    soft: int
    hard: int | None
    stray: int


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What is remembered of a target between two looks. `limit` None: none has been made yet.

    `reason`: why it is what it is; it stays while the limit does. `came_s`: when the last newcomer was seen.
    """

    limit: int | None = None
    mode: Mode = "follow"
    reason: Reason = "began"
    rose: bool = False  # at the last look
    capacity: int = 0
    rooms: tuple[Room, ...] = ()
    spare: int = SPARE_LEAST
    came_s: float = 0.0
    failures: int = 0


def parse(raw: Mapping[str, object], resources: Mapping[str, Resource]) -> dict[str, Target]:
    """Build the targets from the table `targets` of resources.toml. Raises: Invalid naming the key, never its value."""
    table = _FILE.table(raw, "targets", "") if "targets" in raw else {}
    return {name: _target(name, _FILE.table(table, name, "targets."), resources) for name in table}


def _target(name: str, table: Mapping[str, object], resources: Mapping[str, Resource]) -> Target:
    at = f"targets.{name}."
    _FILE.only(table, {"dsn_env", "pool", "follow"}, at)
    resource = resources.get(name)
    if resource is None or resource.held != "task":
        _FILE.refuse(f"targets.{name}", f'needs a table resources."{name}" with held = "task" and its capacity')
    dsn_env = table.get("dsn_env")
    if not isinstance(dsn_env, str) or not _VARIABLE.fullmatch(dsn_env):
        # Not what it is: somebody may have put the address itself there, with its password.
        _FILE.refuse(at + "dsn_env", "must be the name of an environment variable that holds the address")
    pool = table.get("pool", resource.capacity)
    if not isinstance(pool, int) or isinstance(pool, bool) or pool < 1:
        _FILE.refuse(at + "pool", f"must be a whole number of at least 1, not {pool!r}")
    follow = table.get("follow", True)
    if not isinstance(follow, bool):
        _FILE.refuse(at + "follow", f"must be true or false, not {follow!r}")
    if follow and resource.capacity > pool:
        _FILE.refuse(
            at + "pool", f"must be at least the capacity of resources.{name} ({resource.capacity}), not {pool}"
        )
    return Target(name=name, dsn_env=dsn_env, pool=pool, follow=follow)


def follow(
    state: State, target: Target, look: Seen | Full | Away, *, capacity: int, leases: int, now_s: float
) -> State:
    """Return the state after a look at the target. `capacity`: as overridden; `leases`: connections that tasks may use.

    >>> target = Target(name="db:main", dsn_env="X", pool=20)
    >>> before = follow(State(), target, Seen(others=0, ours=0), capacity=20, leases=0, now_s=0.0)
    >>> before.limit, follow(before, target, Seen(others=10, ours=20), capacity=20, leases=20, now_s=1.0).limit
    (20, 10)
    """
    match look:
        case Seen():
            return _seen(state, target, look, capacity, leases, now_s)
        case Full():
            return _full(state, target, capacity, leases, now_s)
        case Away():
            return _away(state, look)


def _seen(state: State, target: Target, look: Seen, capacity: int, leases: int, now_s: float) -> State:
    hard = min((one.limit - one.others for one in look.ceilings), default=None)
    room = Room(at_s=now_s, soft=target.pool - look.others, hard=hard, stray=max(0, look.ours - leases))
    rooms = (*(one for one in state.rooms if now_s - one.at_s < SETTLED_S), room)
    before = state.rooms[-1].hard if state.rooms else None
    # Only where the server's number is the one that binds: who comes elsewhere on a large server has room anyway.
    came = hard is not None and before is not None and hard < before and hard - state.spare < room.soft
    left = hard is not None and hard - look.ours - look.kept >= LEFT_LEAST
    spare, came_s = _spare(state, target, came=came and not left, left=left, now_s=now_s)
    stray = min(one.stray for one in rooms[-LEFT_BEHIND_LOOKS:]) if len(rooms) >= LEFT_BEHIND_LOOKS else 0
    soft = min(one.soft for one in rooms) - stray
    free = min((one.hard for one in rooms if one.hard is not None), default=None)
    limit = soft if free is None else min(soft, free - stray - spare)
    limit = max(0, min(limit, capacity))
    was = state.limit
    if was is not None and limit > was:
        limit = min(limit, max(1, 2 * was))
    return replace(
        state,
        limit=limit,
        mode="yield" if free is not None and spare > SPARE_LEAST and free - stray - spare < soft else "follow",
        reason=_reason(state, limit=limit, capacity=capacity, stray=stray, spare=spare),
        rose=was is not None and limit > was,
        capacity=capacity,
        rooms=rooms,
        spare=spare,
        came_s=came_s,
        failures=0,
    )


def _spare(state: State, target: Target, *, came: bool, left: bool, now_s: float) -> tuple[int, float]:
    """Return the spare, and when newcomers last came. `left`: places were left that nobody wanted."""
    if came:
        return min(2 * state.spare, target.pool), now_s
    if left or now_s - state.came_s >= YIELD_S:
        return max(SPARE_LEAST, state.spare // 2), now_s
    return state.spare, state.came_s


def _reason(state: State, *, limit: int, capacity: int, stray: int, spare: int) -> Reason:
    was = state.limit
    if was is None:
        return "began"
    if limit == was:
        return state.reason
    if limit > was:
        if state.mode not in ("follow", "yield") or (state.reason == "back" and state.rose):
            return "back"
        if spare < state.spare:
            return "settled"
        return "capacity" if was == state.capacity < capacity else "others_left"
    if limit == capacity < state.capacity:
        return "capacity"
    if stray:
        return "left_behind"
    return "yielding" if spare > state.spare else "others_came"


def _full(state: State, target: Target, capacity: int, leases: int, now_s: float) -> State:
    """Give way: who lets nobody in, lets those neither whose pool it is as well."""
    spare, came_s = _spare(state, target, came=True, left=False, now_s=now_s)
    ours = leases if state.limit is None else min(state.limit, leases)
    return replace(
        state,
        limit=max(0, min(ours - spare, capacity)),
        mode="full",
        reason="full",
        capacity=capacity,
        rooms=(),
        spare=spare,
        came_s=came_s,
        failures=0,
    )


def _away(state: State, look: Away) -> State:
    failures = state.failures + 1
    if look.mode == "unreachable" and failures < AWAY_AFTER and state.limit is not None:
        return replace(state, failures=failures)
    return replace(state, limit=0, mode=look.mode, reason=look.mode, rooms=(), spare=SPARE_LEAST, failures=failures)

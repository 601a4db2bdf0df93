"""The decision at the door: is a submission accepted, deferred or refused? Pure; policy.md 6.1 with R6 and R7.

A submission is admitted or refused as a whole. A refusal is an answer and a counter, never a task; deferred is a task
that gets in line later. In this order: what the tenant may (priority, quota), what can't be done in time, what the
level of pressure leaves open (`pressure.ACTIONS`). A wait that nobody can say refuses nothing.

Invariants: what is accepted at a level is accepted at every lower one; of two alike, if the less urgent one is taken so
is the other; nothing is accepted whose predicted wait and median run leave less than half of the time to its deadline,
unless it would start at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.policy import pressure
from harness.policy.errors import Invalid, Refused
from harness.policy.pressure import Level
from harness.policy.pressure.machine import DWELL_S

RETRY_AFTER_S = (
    5.0  # a full backlog drains at the pace of the workers: soon enough to notice, late enough not to hammer
)
RETRY_MOST_S = 600.0
RETRY_SPREAD = 0.1  # of a Retry-After, to both sides
TARGET_S = (5.0, 60.0, 600.0, 3600.0)  # that a task of P0 .. P3 should wait at the most
MOST_S = (60.0, 600.0, 7200.0, 86_400.0)  # beyond which it is refused while pressure is high
WAITS_S = 5.0  # rule R7: what starts sooner isn't refused for pressure
AT_ONCE_S = 1.0  # a wait that is none: a tick, and a slot that comes free
DEADLINE_RATIO = 0.5  # of the time to a deadline that wait and run may take: predictions err, and so do services
DEFAULT_PRIORITY = 2  # ordinary background work
# Seconds within which a task of P0 .. P3 must start, if it doesn't say itself: nobody waits for an answer that comes
# after they have left; a week-old batch is stale. HARNESS_TTL_S sets others.
DEFAULT_TTL_S: tuple[float | None, ...] = (300.0, 3600.0, 86_400.0, 604_800.0)


class Forbidden(Refused):
    """The caller may not do this, now or later."""

    code = "forbidden"


class OverQuota(Refused):
    """The tenant's own quota is used up; there is room again when work of its ends."""

    code = "over_quota"


class Overload(Refused):
    """More is asked for than can be done in time; the same may fit a little later."""

    code = "overload"


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantFacts:
    """What the door must know of a tenant. `backlog_quota`: most live tasks; `top_priority`: most urgent allowed."""

    id: int
    name: str
    top_priority: int
    backlog_quota: int


Why = Literal["priority", "backlog", "deadline", "start_by", "never", "pressure"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Tasks of a submission that are alike. `wait_s`: predicted for the first of them, `last_s` for the last.

    None: nobody can say. `service_s`: the median that its kind takes, 0: not known. `deadline_s`, `start_by_s`: the
    time left (None: no end). `starts_s`: until its not_before.
    """

    priority: int
    count: int = 1
    wait_s: float | None = None
    last_s: float | None = None
    service_s: float = 0.0
    deadline_s: float | None = None
    start_by_s: float | None = None
    starts_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Accept:
    """Take it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Defer:
    """Take it, and let it in later: `after_s` seconds from now at the latest, by the number of what was wanted.

    What isn't in `after_s` gets in line at once. `starts_s`: when the first of what is deferred is expected to start.
    """

    after_s: dict[int, float]
    starts_s: float
    level: Level
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Reject:
    """Don't. `retry_after_s`: when it may fit (None: never as it stands). `at`: the number of what is wanted."""

    why: Why
    message: str
    retry_after_s: float | None = None
    level: Level = Level.NORMAL
    at: int | None = None


Decision = Accept | Defer | Reject


def parse_ttl_s(text: str) -> tuple[float | None, ...]:
    """Read HARNESS_TTL_S: four numbers of seconds above 0, or "none". Raises: Invalid.

    >>> parse_ttl_s("60, 3600, none, 1e6")
    (60.0, 3600.0, None, 1000000.0)
    """
    values: list[float | None] = []
    for part in text.split(","):
        try:
            values.append(None if part.strip() == "none" else float(part))
        except ValueError:
            values.append(0.0)
    if len(values) != 4 or not all(value is None or 0 < value < 3e9 for value in values):
        raise Invalid(
            f'HARNESS_TTL_S: must be four numbers of seconds (or "none"), for P0 to P3, not {text!r}',
            field="HARNESS_TTL_S",
        )
    return tuple(values)


def default_priority(tenant: TenantFacts) -> int:
    """Return the priority of a task that names none: P2, or the tenant's best if that is less urgent.

    >>> default_priority(TenantFacts(id=1, name="a", top_priority=3, backlog_quota=1))
    3
    """
    return max(DEFAULT_PRIORITY, tenant.top_priority)


def decide(
    tenant: TenantFacts,
    *,
    most_urgent: int,
    count: int,
    backlog: int,
    wanted: Sequence[Wanted] = (),
    level: Level = Level.NORMAL,
    luck: float = 0.5,
) -> Decision:
    """Decide on `count` tasks, the most urgent of them of priority `most_urgent`, with `backlog` live tasks there.

    `luck`: a number from 0 to 1 by which those who are refused together come again apart.

    >>> one = TenantFacts(id=1, name="a", top_priority=1, backlog_quota=10)
    >>> decide(one, most_urgent=1, count=3, backlog=7)
    Accept()
    >>> decide(one, most_urgent=0, count=1, backlog=0).why, decide(one, most_urgent=1, count=4, backlog=7).why
    ('priority', 'backlog')
    """
    return (
        refused(tenant, most_urgent=most_urgent, count=count, backlog=backlog)
        or _too_late(wanted, level, luck)
        or _by_level(wanted, level, luck)
    )


def refused(tenant: TenantFacts, *, most_urgent: int, count: int, backlog: int) -> Reject | None:
    """Refuse what the tenant may not, whatever waits; None: it may."""
    if most_urgent < tenant.top_priority:
        return Reject(
            why="priority",
            message=f"priority {most_urgent} is more urgent than this tenant may ask for: "
            f"ask for {tenant.top_priority} or a larger number",
        )
    if count > tenant.backlog_quota:
        return Reject(
            why="backlog",
            message=f"{count} tasks at once never fit this tenant's backlog quota of {tenant.backlog_quota}: "
            "send fewer, or have the quota raised",
        )
    if backlog + count > tenant.backlog_quota:
        return Reject(
            why="backlog",
            message=f"{backlog} of this tenant's tasks are unfinished; {count} more would exceed its backlog quota of "
            f"{tenant.backlog_quota}: try again when some have ended",
            retry_after_s=RETRY_AFTER_S,
        )
    return None


def _too_late(wanted: Sequence[Wanted], level: Level, luck: float) -> Reject | None:
    """Refuse what can't make its deadline, or start before it expires (rule R6)."""
    for at, one in enumerate(wanted):
        left_s = None if one.deadline_s is None else one.deadline_s - one.starts_s
        if left_s is not None and one.service_s > left_s:
            return Reject(
                why="never",
                message=f"half of the tasks of this kind take longer than {one.service_s:.3g} s, and its deadline "
                f"leaves {left_s:.3g} s: give it more time",
                level=level,
                at=at,
            )
        last_s = _in_line_s(one.last_s, one.starts_s)
        if (
            left_s is not None
            and last_s is not None
            and last_s > AT_ONCE_S
            and last_s + one.service_s > DEADLINE_RATIO * left_s
        ):
            return Reject(
                why="deadline",
                message=f"it would wait some {last_s:.0f} s, too long to be sure that it is done by its deadline",
                retry_after_s=_again_s(last_s + one.service_s - DEADLINE_RATIO * left_s, luck),
                level=level,
                at=at,
            )
        wait_s = _in_line_s(one.wait_s, one.starts_s)
        if wait_s is not None and one.start_by_s is not None and wait_s > one.start_by_s - one.starts_s:
            return Reject(
                why="start_by",
                message=f"it would wait some {wait_s:.0f} s, and expire before it could start",
                retry_after_s=_again_s(wait_s - one.start_by_s, luck),
                level=level,
                at=at,
            )
    return None


def _by_level(wanted: Sequence[Wanted], level: Level, luck: float) -> Decision:
    """Decide by what the level leaves open to each class."""
    later: dict[int, float] = {}
    starts_s: list[float] = []
    for at, one in enumerate(wanted):
        door = pressure.of(level, one.priority).door
        wait_s = _in_line_s(one.wait_s, one.starts_s)
        if door == "accept" or wait_s is None:
            continue
        target_s, most_s = TARGET_S[one.priority], MOST_S[one.priority]
        # Shut for whoever waits, it goes by the last of a run: else an empty line gets ten thousand in at once.
        last_s = max(wait_s, _in_line_s(one.last_s, one.starts_s) or 0.0) if door == "reject" else wait_s
        if (door == "reject" and last_s >= WAITS_S) or (door == "limit" and wait_s > most_s):
            # It opens again when hardly anybody waits, or when the level has fallen.
            opens_s = min(last_s - WAITS_S, DWELL_S[level]) if door == "reject" else 0.0
            return Reject(
                why="pressure",
                message=f"pressure is {level.word}, and P{one.priority} would wait some {last_s:.0f} s: come later",
                retry_after_s=_again_s(max(last_s - target_s, opens_s), luck),
                level=level,
                at=at,
            )
        if door != "reject" and wait_s > target_s:
            later[at] = _at_the_latest_s(one, wait_s)
            starts_s.append(wait_s)
    if not later:
        return Accept()
    return Defer(
        after_s=later,
        starts_s=min(starts_s),
        level=level,
        reason=f"pressure is {level.word}, and it would wait some {min(starts_s):.0f} s in line",
    )


def _in_line_s(wait_s: float | None, starts_s: float) -> float | None:
    """Return what of a wait is left when the task's own time comes: by then the line of now has moved on."""
    return None if wait_s is None else max(0.0, wait_s - starts_s)


def _at_the_latest_s(one: Wanted, wait_s: float) -> float:
    """Return when a deferred task is let in however long the line is: so that it isn't its deferral that it expires of.

    >>> _at_the_latest_s(Wanted(priority=2, start_by_s=900.0), 800.0), _at_the_latest_s(Wanted(priority=2), 800.0)
    (300.0, 800.0)
    """
    if one.start_by_s is None:
        return one.starts_s + wait_s
    return one.starts_s + max(0.0, min(wait_s, one.start_by_s - one.starts_s - TARGET_S[one.priority]))


def _again_s(over_s: float, luck: float) -> float:
    return min(RETRY_MOST_S, max(RETRY_AFTER_S, over_s)) * (1.0 + RETRY_SPREAD * (2.0 * luck - 1.0))

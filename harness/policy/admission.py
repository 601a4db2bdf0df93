"""The decision at the door: is a submission accepted, given what its tenant may and what already waits?

A submission is admitted or refused as a whole. A refusal is an answer and a counter, never a task.
"""

from dataclasses import dataclass
from typing import Literal

from harness.policy.errors import Invalid, Refused

RETRY_AFTER_S = (
    5.0  # a full backlog drains at the pace of the workers: soon enough to notice, late enough not to hammer
)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantFacts:
    """What the door must know of a tenant. `backlog_quota`: most live tasks; `top_priority`: most urgent allowed."""

    id: int
    name: str
    top_priority: int
    backlog_quota: int


@dataclass(frozen=True, slots=True)
class Admit:
    """Take it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reject:
    """Don't. `retry_after_s`: when it may fit (None: never as it stands)."""

    why: Literal["priority", "backlog"]
    message: str
    retry_after_s: float | None = None


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


def decide(tenant: TenantFacts, *, most_urgent: int, count: int, backlog: int) -> Admit | Reject:
    """Decide on `count` tasks, the most urgent of them of priority `most_urgent`, with `backlog` live tasks there.

    >>> one = TenantFacts(id=1, name="a", top_priority=1, backlog_quota=10)
    >>> decide(one, most_urgent=1, count=3, backlog=7)
    Admit()
    >>> decide(one, most_urgent=0, count=1, backlog=0).why, decide(one, most_urgent=1, count=4, backlog=7).why
    ('priority', 'backlog')
    """
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
    return Admit()

"""What a call asks of its resources, and the answers: values that the store, the engine and the planner pass on.

A permit is one call now. A call asks for all that it needs at once and gets all or none; a refusal burns nothing and
says which limit binds and until when. Times are epoch seconds of the permits' own clock (Redis), durations seconds.

Order of those who wait for one resource (rule R5): P0, then who has most calls done, then the oldest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from harness.policy.errors import Invalid

Limit = Literal["breaker", "blocked", "concurrency", "tenant", "requests", "tokens", "redis"]
Outcome = Literal["success", "ignore", "drop"]
Breaker = Literal["closed", "open", "half_open"]

RENEW_S = 5.0  # between two renewals of a running call's permit; lets an empty Redis learn of it, too
DOOR_S = 6.0  # an empty Redis with an earlier life lets new calls in little by little: longer than RENEW_S
WAITER_S = 2.0  # who waits asks again within this, or is taken out of the order
ASKED_S = 900.0  # a task that has asked counts as one of the resource's users for so long after its last call
JOINT_S = 2.0  # who needs several resources and waits for so long keeps its place in the order of each
POLL_S = 0.25  # who waits asks again within this even if nobody wakes it: a permit may have expired
CALLS_MOST = 4095  # more calls done than that don't advance a place
P0_SCORE = float(2**52)  # a place below it is one of P0
CALL_SCORE = float(2**40)
SWEEP_S = 0.5  # between two looks for waiters that are gone, and for permits that have expired
WAKE_MOST = 16  # woken by one call's end
CHANGES_MOST = 10_000  # changes of limits that wait to be kept; older ones go
STATE_S = 604_800.0  # what is known of a resource that nobody uses goes after a week
PREFIX = "harness:permits:"  # of all keys and channels


@dataclass(frozen=True, slots=True)
class Want:
    """What one call wants of one resource: one place, one request, and so many tokens."""

    resource: str
    tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One call's question. `member` names the call: "task:release_no:n"; asking again with it is harmless.

    `since_s`: when the call began to wait, in epoch seconds; `calls_done`: of the attempt; `waits`: who is refused
    keeps a place in the order, and must ask again within WAITER_S or give up; `first`: of the task's first attempt
    (feeds the retry budget).
    """

    member: str
    tenant: int
    priority: int
    calls_done: int
    since_s: float
    wants: tuple[Want, ...]
    waits: bool
    first: bool = True

    @property
    def task(self) -> str:
        """The attempt that asks: "task:release_no".

        >>> Ask(member="7:2:5", tenant=1, priority=1, calls_done=4, since_s=0.0, wants=(), waits=True).task
        '7:2'
        """
        return self.member.rpartition(":")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """A permit of each resource. `sent`: how many were in flight before this call, by resource; `local`: Redis was
    away, and the process granted it from its own share."""

    member: str
    tenant: int
    wants: tuple[Want, ...]
    sent: Mapping[str, int]
    sent_s: float
    local: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """No permit. `wait_s`: seconds after which asking again makes sense at the earliest, `until_s` the same in epoch
    seconds; both 0.0 when nobody knows: it may be at any time. `ahead`: who goes first; `limit_now`: the limit."""

    resource: str
    limit: Limit
    wait_s: float
    until_s: float
    ahead: int
    limit_now: int


class RateFigures(Protocol):
    """What an answer's headers say of requests and tokens a minute (policy.ratelimit_headers); None: they don't."""

    @property
    def limit_requests(self) -> int | None: ...
    @property
    def remaining_requests(self) -> int | None: ...
    @property
    def limit_tokens(self) -> int | None: ...
    @property
    def remaining_tokens(self) -> int | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """How a call ended. `drop`: the downstream refused it for load (429, 503, 529) or it timed out.

    `resource`: which of the call's resources the outcome is about ("": the first); for the others the call succeeded
    if it succeeded, and else tells nothing. `tokens`: really used, by resource; a resource that isn't named keeps
    what was reserved. `rate`: the refusal was one of requests or tokens a minute; `overload`: a 503 or 529, which one
    call too many doesn't explain; `failure`: the breaker counts it; `timed_out`: the call's own time-out;
    `latency_s`: to the first byte, or of a token, 0: not known; `headers`: what the answer said of rate limits.
    """

    outcome: Outcome
    resource: str = ""
    tokens: Mapping[str, int] | None = None
    retry_after_s: float = 0.0
    rate: bool = False
    failure: bool = False
    overload: bool = False
    timed_out: bool = False
    latency_s: float = 0.0
    headers: RateFigures | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A resource at `at_s`. `proven` 0: nothing proven; `asked`: tasks that have asked, and neither ended nor given up;
    `mode`: ramp, hold, drain, fixed; `blocked_until_s`: also of a pause longer than a limiter's own; `rate_wait_s`:
    until a request and a token are free; times 0.0: not blocked, not open."""

    at_s: float
    limit: int
    proven: int
    ceiling: int
    in_flight: int
    waiting: int
    waiting_p0: int
    asked: int
    mode: str
    blocked_until_s: float
    breaker: Breaker
    breaker_until_s: float
    rate_wait_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A limit has changed. `id` orders changes and names how far they are kept."""

    id: str
    resource: str
    at_s: float
    old: int
    new: int
    reason: str
    mode: str


def check_ask(ask: Ask) -> None:
    """Raises: Invalid naming what of an ask makes no sense."""
    if not ask.wants:
        raise Invalid("a call must name a resource", field="resource")
    names = [want.resource for want in ask.wants]
    if len(set(names)) != len(names):
        raise Invalid(f"a call must name each resource once, not {', '.join(names)}", field="resource")
    for want in ask.wants:
        if want.tokens < 0:
            raise Invalid(f"the cost of a call must be 0 tokens or more, not {want.tokens}", field="cost")


def score(priority: int, calls_done: int, since_s: float) -> float:
    """Return a waiter's place in the order: smaller goes first. Exact in a double until the year 2318.

    >>> score(0, 0, 9.0) < score(1, 5, 1.0) < score(1, 4, 0.0) < score(2, 4, 0.5)
    True
    """
    urgent = 0.0 if priority == 0 else P0_SCORE
    return urgent + (CALLS_MOST - min(calls_done, CALLS_MOST)) * CALL_SCORE + float(int(since_s * 100.0))

"""Rule R4: whether a call that got no permit waits for it in its task's slot, or the task goes back in line.

A slot that waits does nothing, and a task that goes back costs two transactions and its place: so a wait is for what is
worth about as long as a call takes. Nobody waits in a slot for more than WAIT_MOST_S (architecture, decision 13), but
P0: it is never put back because others are before it. What nobody gets before a known time (a bucket, a block, an open
breaker) isn't waited for in a slot for longer, by P0 neither. Times are seconds.

Who goes back at once is replaced by the leader at its next tick, and so on, many times a second. So who is first for
room (rule R3 releases one more than the limit) waits WAIT_MOST_S, whatever it expects; and whoever is behind waits
LEAST_S, in which the leader reads that there is one too many.
"""

from dataclasses import dataclass
from typing import Literal

WAIT_MOST_S = 5.0
LEAST_S = 1.0  # four readings of the leader
OF_A_CALL_RATIO = 0.4  # of a call's own length is little beside it
TURNS = 2.0  # or two turns of the limit: who is that near gets its permit
GIVE_UP_RATIO = 2.0  # of what it was willing to wait: the figures were wrong
CALL_PRIOR_S = 1.0  # a call of a resource that nobody has called yet


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why there is no permit.

    `lacks` room: others hold all there is (concurrency, a tenant's cap); rate: a bucket has too little for `wait_s`;
    leave: a block or an open breaker lets nobody through for `wait_s`. `ahead`: how many wait before this one;
    `limit_now`: calls at a time; `call_s`: how long one takes.
    """

    lacks: Literal["room", "rate", "leave"]
    wait_s: float
    ahead: int
    limit_now: int
    call_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """Wait in the slot, for `most_s` in all since the first refusal; `expected_s`: when a permit should come."""

    most_s: float
    expected_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GiveBack:
    """Put the task back in line: it isn't worth asking before `after_s`."""

    after_s: float


def decide(refusal: Refusal, *, priority: int, waited_s: float, left_s: float = float("inf")) -> Wait | GiveBack:
    """Decide after a refusal. `waited_s`: since the first one for this call; `left_s`: until the task must end.

    >>> room = Refusal(lacks="room", wait_s=0.0, ahead=0, limit_now=20, call_s=5.0)
    >>> decide(room, priority=2, waited_s=0.0)
    Wait(most_s=5.0, expected_s=0.25)
    >>> decide(Refusal(lacks="rate", wait_s=30.0, ahead=0, limit_now=20, call_s=5.0), priority=2, waited_s=0.0)
    GiveBack(after_s=30.0)
    """
    turn_s = refusal.call_s / max(1, refusal.limit_now)
    expected_s = refusal.wait_s + ((refusal.ahead + 1) * turn_s if refusal.lacks == "room" else 0.0)
    if priority == 0 and refusal.lacks == "room" and refusal.wait_s <= WAIT_MOST_S and left_s > 0:
        return Wait(most_s=float("inf"), expected_s=expected_s)
    willing_s = min(WAIT_MOST_S, max(OF_A_CALL_RATIO * refusal.call_s, TURNS * turn_s))
    if refusal.lacks == "rate" or priority == 0:
        # A bucket gives at the moment that it says, and is only used up if somebody waits for it then.
        willing_s = WAIT_MOST_S
    most_s = min(WAIT_MOST_S, GIVE_UP_RATIO * willing_s) if expected_s <= willing_s else 0.0
    if refusal.lacks == "room" and refusal.wait_s <= WAIT_MOST_S:
        most_s = WAIT_MOST_S if refusal.ahead == 0 else max(most_s, LEAST_S)
    if waited_s < most_s and left_s > 0:
        return Wait(most_s=most_s, expected_s=expected_s)
    return GiveBack(after_s=expected_s)

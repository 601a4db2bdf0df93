"""People's verb that sends ended tasks again, one or a batch, and what it would do. Many of them: operate.bulk.

What is refused of many is counted by code, never raised. Idempotent: what waits in line already is `already`, and two
redrives at once make one. `tenant` None is for operators: whosever the tasks are. All of it is called outside a
transaction.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import psycopg

from harness.engine.operate import readmit
from harness.engine.operate.batches import MANY_MOST, cut, patiently
from harness.engine.operate.done import Done
from harness.engine.operate.readmit import KEEP, Ready
from harness.engine.operate.tally import Tally
from harness.engine.operate.who import check_reason, held
from harness.policy.errors import Conflict, NotFound, Unavailable
from harness.policy.redrive import Already, No
from harness.store import ended
from harness.store import letters as stored
from harness.store.database import LOCKED, Connection
from harness.store.doorbell import Doorbell
from harness.store.ended import Facts
from harness.store.transitions import By

LOOKS = 3  # a task may be sent by someone else, and end, between the look and the lock

_doorbell = Doorbell()


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What a redrive would do now; nothing was done. `states`: in which those are that would be sent.

    `anew`: how many get another token, with another input. `attempts`, `slot_s`, `tokens`, `usd`: what they have used
    so far (usd None: a model had no price); `expected_slot_s`: what one more try takes, by the kinds' means. `room`:
    what the tenant's backlog still takes (None: several tenants). `steps_kept`: finished steps that aren't done again;
    `steps_dropped`: those that are, since their task begins anew.
    """

    tasks: int
    anew: int
    states: Mapping[str, int]
    tally: Tally
    attempts: int
    slot_s: float
    tokens: int
    usd: float | None
    expected_slot_s: float
    room: int | None
    steps_kept: int
    steps_dropped: int


def redrive(
    connection: Connection,
    task: uuid.UUID,
    *,
    tenant: int | None,
    actor: str,
    reason: str = "",
    input: object = KEEP,
) -> Done:
    """Send a task again, with another `input` if one is given.

    Raises: NotFound; Invalid, TooLarge (input, reason); Conflict (its state, kind or version); OverQuota, Forbidden,
    BudgetExceeded (its tenant's); Unavailable when someone else keeps it locked.
    """
    check_reason(reason)
    by = By(actor=actor, reason=reason)
    with held(connection, tenant):
        for _ in range(LOOKS):
            decided = _decide(connection, task, input, tenant)
            if isinstance(decided, Already):
                return Done(outcome="already")
            try:
                done = readmit.send(connection, [decided], tenant=tenant, by=by)
            except psycopg.errors.LockNotAvailable as error:
                raise Unavailable(LOCKED) from error
            for refusal, _ in done.refused:
                raise refusal
            if done.sent:
                _doorbell.ring(connection)
                return Done(outcome="redriven", anew=decided.anew)
    raise Conflict("the task keeps changing hands; try again", task_id=str(task))


def batch(
    connection: Connection, tasks: Sequence[int], tally: Tally, *, tenant: int | None, by: By, input: object = KEEP
) -> list[int] | None:
    """Send a batch again, a tenant at a time, for operate.bulk.

    Returns those that somebody has locked; None: nothing of a tenant's could be done, and the whole must stop.
    The caller has checked the reason, holds the connection to its tenant, and wakes the dispatcher.
    """
    found = _own(ended.facts(connection, tasks), tenant)
    tally.refuse("it is gone", n=len(tasks) - len(found))
    ready = list(readmit.decide_all(connection, found, input, tally))
    busy: list[int] = []
    for whose in sorted({item.facts.tenant for item in ready}):
        own = [item for item in ready if item.facts.tenant == whose]
        done = patiently(partial(readmit.send, connection, own, tenant=tenant, by=by, pass_over=True))
        if done is None:
            return None
        for refusal, n in done.refused:
            tally.refuse(refusal.code, refusal.message, n)
        if done.sent:
            tally.done["redriven"] += done.sent
        tally.already += len(own) - done.sent - len(done.busy) - sum(n for _, n in done.refused)
        busy += done.busy
    return busy


def forecast_one(connection: Connection, task: uuid.UUID, *, tenant: int | None, input: object = KEEP) -> Forecast:
    """Say what `redrive` would do. Raises: NotFound, Invalid, TooLarge; Conflict when it can't be sent as it stands."""
    with held(connection, tenant):
        decided = _decide(connection, task, input, tenant)
        ready = [decided] if isinstance(decided, Ready) else []
        return _forecast(connection, ready, Tally(verb="redrive", already=1 - len(ready)))


def forecast(
    connection: Connection,
    tasks: Iterable[Sequence[int]],
    *,
    tenant: int | None,
    input: object = KEEP,
    most: int = MANY_MOST,
) -> Forecast:
    """Say what a bulk redrive of these tasks would do."""
    tally = Tally(verb="redrive")
    with held(connection, tenant):
        ready: list[Ready] = []
        for some in cut(tasks, most, tally):
            ready += readmit.decide_all(connection, _own(ended.facts(connection, some), tenant), input, tally)
        return _forecast(connection, ready, tally)


def _decide(connection: Connection, task: uuid.UUID, value: object, tenant: int | None) -> Ready | Already:
    """Decide on one task. Raises: NotFound, Conflict, Invalid, TooLarge."""
    found = _own(ended.facts(connection, list(stored.ids(connection, [task]).values())), tenant)
    if not found:
        raise NotFound(f"there is no task {task}")
    decided = readmit.decide(connection, found[0], value)
    if isinstance(decided, No):
        raise Conflict(decided.message, task_id=str(task), state=found[0].state)
    return decided


def _own(found: list[Facts], tenant: int | None) -> list[Facts]:
    """The tenant's own: roles web and staff see no others anyhow, but role engine does."""
    return found if tenant is None else [facts for facts in found if facts.tenant == tenant]


def _forecast(connection: Connection, ready: Sequence[Ready], tally: Tally) -> Forecast:
    owners = {item.facts.tenant for item in ready}
    means = ended.means(connection, sorted({item.kind.name for item in ready}))
    prices = [item.facts.usd for item in ready]
    return Forecast(
        tasks=len(ready),
        anew=sum(item.anew for item in ready),
        states=dict(Counter(item.facts.state for item in ready)),
        tally=tally,
        attempts=sum(item.facts.attempts for item in ready),
        slot_s=sum(item.facts.slot_s for item in ready),
        tokens=sum(item.facts.tokens for item in ready),
        usd=None if None in prices else sum(price or 0.0 for price in prices),
        expected_slot_s=sum(means.get(item.kind.name, item.kind.est_s) for item in ready),
        room=readmit.room_of(connection, owners.pop()) if len(owners) == 1 else None,
        steps_kept=sum(item.facts.steps for item in ready if not item.anew),
        steps_dropped=sum(item.facts.steps for item in ready if item.anew),
    )

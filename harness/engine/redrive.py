"""People's verb that sends ended tasks again: one, some, or all dead letters of a kind, class or reason.

Many go in batches of BATCH, each in transactions of its own, a tenant at a time; what is refused is counted by code,
never raised. Idempotent: what waits in line already is `already`, and two redrives at once make one. `tenant` None is
for operators: whosever the tasks are. All of it is called outside a transaction.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import psycopg

from harness.engine import again, letters
from harness.engine.again import KEEP, Ready, Tally
from harness.engine.letters import Wanted
from harness.policy.errors import Conflict, Invalid, NotFound, Unavailable
from harness.policy.redrive import Already, No
from harness.store import letters as stored
from harness.store import queries, redrives
from harness.store.database import LOCKED, Connection
from harness.store.doorbell import Doorbell
from harness.store.redrives import Facts
from harness.telemetry import logs

__all__ = (
    "KEEP",
    "MANY_MOST",
    "REASON_MAX_CHARS",
    "Preview",
    "Redriven",
    "Tally",
    "batch",
    "dead_letters",
    "ids",
    "many",
    "one",
    "preview_dead_letters",
    "preview_many",
    "preview_one",
)

REASON_MAX_CHARS = 500
BATCH = 200  # tasks locked at once: some 10 ms
MANY_MOST = 10_000  # of one call: a person's page or a client's request waits for it
TRIES = 3  # a task may be sent by someone else, and end, between the look and the lock

log = logs.get(__name__)
_doorbell = Doorbell()


@dataclass(frozen=True, kw_only=True, slots=True)
class Redriven:
    """What became of one task. `anew`: with another input, under another token."""

    outcome: Literal["redriven", "already"]
    anew: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """What a redrive would do now; nothing was done. `states`: in which those are that would be sent.

    `anew`: how many get another token, with another input. `attempts`, `slot_s`, `tokens`, `usd`: what they
    have used so far (usd None: a model had no price); `expected_slot_s`: what one more try takes, by the kinds' means.
    `room`: what the tenant's backlog still takes (None: several tenants).
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


def one(
    connection: Connection,
    task: uuid.UUID,
    *,
    tenant: int | None,
    actor: str,
    reason: str = "",
    input: object = KEEP,
) -> Redriven:
    """Send a task again, with another `input` if one is given.

    Raises: NotFound; Invalid, TooLarge (input, reason); Conflict (its state, kind or version); OverQuota, Forbidden,
    BudgetExceeded (its tenant's); Unavailable when someone else keeps it locked.
    """
    _check_reason(reason)
    with _held(connection, tenant):
        for _ in range(TRIES):
            decided = _decide(connection, task, input, tenant)
            if isinstance(decided, Already):
                return Redriven(outcome="already")
            try:
                sent, refused = again.send(connection, [decided], tenant=tenant, actor=actor, reason=reason)
            except psycopg.errors.LockNotAvailable as error:
                raise Unavailable(LOCKED) from error
            for refusal, _n in refused:
                raise refusal
            if sent:
                _ring(connection)
                return Redriven(outcome="redriven", anew=decided.anew)
    raise Conflict("the task keeps changing hands; try again", task_id=str(task))


def many(
    connection: Connection,
    tasks: Iterable[Sequence[int]],
    *,
    tenant: int | None,
    actor: str,
    reason: str = "",
    input: object = KEEP,
    most: int = MANY_MOST,
) -> Tally:
    """Send tasks (batches of ids) again, at most `most`. Another `input` is that of all of them.

    Raises: Invalid (reason).
    """
    _check_reason(reason)
    tally = Tally()
    with _held(connection, tenant):
        for found in _looked(connection, tasks, tenant, most, tally):
            _send(connection, found, tally, tenant=tenant, actor=actor, reason=reason, input=input)
    return tally


def batch(connection: Connection, tasks: Sequence[int], *, tenant: int | None, actor: str, reason: str = "") -> Tally:
    """Send at most BATCH tasks again. The caller has checked the reason and holds the connection to its tenant."""
    tally = Tally()
    found = _own(redrives.facts(connection, tasks), tenant)
    _send(connection, found, tally, tenant=tenant, actor=actor, reason=reason, input=KEEP)
    return tally


def dead_letters(
    connection: Connection, wanted: Wanted, *, tenant: int | None, actor: str, reason: str = "", most: int = MANY_MOST
) -> Tally:
    """Send all dead letters again that fit, newest first, at most `most`. Raises: Invalid (reason)."""
    return many(connection, _letters(connection, wanted, tenant), tenant=tenant, actor=actor, reason=reason, most=most)


def preview_one(
    connection: Connection,
    task: uuid.UUID,
    *,
    tenant: int | None,
    input: object = KEEP,
) -> Preview:
    """Say what `one` would do. Raises: NotFound, Invalid, TooLarge, and Conflict when it can't be sent as it stands."""
    with _held(connection, tenant):
        decided = _decide(connection, task, input, tenant)
        ready = [decided] if isinstance(decided, Ready) else []
        return _preview(connection, ready, Tally(already=1 - len(ready)))


def preview_many(
    connection: Connection,
    tasks: Iterable[Sequence[int]],
    *,
    tenant: int | None,
    input: object = KEEP,
    most: int = MANY_MOST,
) -> Preview:
    """Say what `many` would do with these."""
    tally = Tally()
    with _held(connection, tenant):
        ready: list[Ready] = []
        for found in _looked(connection, tasks, tenant, most, tally):
            ready += again.decide_all(connection, found, input, tally)
        return _preview(connection, ready, tally)


def preview_dead_letters(
    connection: Connection, wanted: Wanted, *, tenant: int | None, most: int = MANY_MOST
) -> Preview:
    """Say what `dead_letters` would do."""
    return preview_many(connection, _letters(connection, wanted, tenant), tenant=tenant, most=most)


def ids(connection: Connection, tasks: Sequence[uuid.UUID], *, tenant: int | None) -> list[int]:
    """Return the ids of tasks by their public ids. Raises: NotFound naming the first that isn't there."""
    with _held(connection, tenant):
        known = stored.ids(connection, tasks)
    for task in tasks:
        if task not in known:
            raise NotFound(f"there is no task {task}", field="task_ids")
    return sorted(set(known.values()))


def _decide(connection: Connection, task: uuid.UUID, value: object, tenant: int | None) -> Ready | Already:
    """Decide on one task. Raises: NotFound, Conflict, Invalid, TooLarge."""
    found = _own(redrives.facts(connection, list(stored.ids(connection, [task]).values())), tenant)
    if not found:
        raise NotFound(f"there is no task {task}")
    decided = again.decide(connection, found[0], value)
    if isinstance(decided, No):
        raise Conflict(decided.message, task_id=str(task), state=found[0].state)
    return decided


def _own(found: list[Facts], tenant: int | None) -> list[Facts]:
    """The tenant's own: roles web and staff see no others anyhow, but role engine does."""
    return found if tenant is None else [facts for facts in found if facts.tenant == tenant]


def _looked(
    connection: Connection, tasks: Iterable[Sequence[int]], tenant: int | None, most: int, tally: Tally
) -> Iterator[list[Facts]]:
    """Yield facts by batch, of at most `most` tasks; the tally says when there were more."""
    left = most
    for some in tasks:
        for at in range(0, len(some), BATCH):
            batch = list(some[at : at + BATCH])
            if len(batch) > left:
                tally.more = True
                batch = batch[:left]
            if batch:
                yield _own(redrives.facts(connection, batch), tenant)
            left -= len(batch)
            if tally.more:
                return


def _send(
    connection: Connection,
    found: Sequence[Facts],
    tally: Tally,
    *,
    tenant: int | None,
    actor: str,
    reason: str,
    input: object,
) -> None:
    ready = list(again.decide_all(connection, found, input, tally))
    for whose in sorted({item.facts.tenant for item in ready}):
        own = [item for item in ready if item.facts.tenant == whose]
        sent, refused = again.send(connection, own, tenant=tenant, actor=actor, reason=reason)
        for refusal, n in refused:
            tally.refuse(refusal.code, refusal.message, n)
        tally.redriven += sent
        tally.already += len(own) - sent - sum(n for _, n in refused)
    _ring(connection)


def _preview(connection: Connection, ready: Sequence[Ready], tally: Tally) -> Preview:
    owners = {item.facts.tenant for item in ready}
    means = redrives.means(connection, sorted({item.kind.name for item in ready}))
    prices = [item.facts.usd for item in ready]
    return Preview(
        tasks=len(ready),
        anew=sum(item.anew for item in ready),
        states=dict(Counter(item.facts.state for item in ready)),
        tally=tally,
        attempts=sum(item.facts.attempts for item in ready),
        slot_s=sum(item.facts.slot_s for item in ready),
        tokens=sum(item.facts.tokens for item in ready),
        usd=None if None in prices else sum(price or 0.0 for price in prices),
        expected_slot_s=sum(means.get(item.kind.name, item.kind.est_s) for item in ready),
        room=again.room_of(connection, owners.pop()) if len(owners) == 1 else None,
    )


def _letters(connection: Connection, wanted: Wanted, tenant: int | None) -> Iterator[list[int]]:
    for some in letters.each(connection, wanted, tenant=tenant):
        yield [letter.id for letter in some]


def _held(connection: Connection, tenant: int | None) -> AbstractContextManager[None]:
    return nullcontext() if tenant is None else queries.held_to_tenant(connection, tenant)


def _check_reason(reason: str) -> None:
    if len(reason) > REASON_MAX_CHARS or not reason.isprintable():
        raise Invalid(f"reason: must be printable text of at most {REASON_MAX_CHARS} characters", field="reason")


def _ring(connection: Connection) -> None:
    try:
        _doorbell.ring(connection)
    except psycopg.Error as error:  # the tasks are there; the dispatcher's tick finds them
        log.info("doorbell_failed", reason=str(error))

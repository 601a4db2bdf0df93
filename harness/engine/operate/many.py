"""Verbs over many tasks: a preview that counts, and the act in bounded batches, each a transaction of its own.

What matches is looked up without locks; each task is decided again under its lock, so one that has moved on meanwhile
is refused, not harmed. A batch holds its locks for some 10 ms: a release waits no longer. Broken off at any point, what
is done is done, and `next` tells where to go on.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg

from harness.engine.operate.one import facts_of
from harness.engine.operate.registry import VERBS, Verb
from harness.engine.operate.who import check_priority, check_reason, hold_of
from harness.engine.redrive import Tally
from harness.policy import terms, verbs
from harness.policy.errors import Invalid, NotFound
from harness.policy.lifecycle import State
from harness.policy.verbs import Asked, Decision, Stand
from harness.store import bulk as stored
from harness.store import queries, transitions
from harness.store.database import Connection
from harness.store.doorbell import Doorbell

BATCH = 200  # tasks locked at once
LOOK = 100_000  # ids looked up at once: some 100 ms
PREVIEW_MOST = 100_000  # counted exactly; beyond, "more than"
TRIES = 3  # of a batch that met a deadlock, or a lock held for longer than the connection waits

_MOVED_ON = verbs.refused("it no longer matches the filter")


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """What the tasks have in common: at least one of these. A tag needs its tenant.

    Unfinished tasks are looked at; for a redrive the ended ones of a run or tag, and without either the dead letters.
    """

    tenant: int | None = None
    run: uuid.UUID | None = None
    tag: str | None = None
    state: State | None = None
    kind: str | None = None
    pool: str | None = None
    priority: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """How many tasks match, exactly up to PREVIEW_MOST (`more`: there are more), and those counted by state."""

    matching: int
    more: bool
    by_state: Mapping[str, int]


@dataclass(slots=True)
class Bulk:
    """What a bulk verb did: tasks looked at; done, by outcome; refused, by reason. `next`: go on after this task id.

    `stopped`: why it ended early; empty when it went through.
    """

    verb: str
    matched: int = 0
    done: Counter[str] = field(default_factory=Counter)
    already: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    next: int | None = None
    stopped: str = ""


def preview(connection: Connection, name: str, where: Filter, *, tenant: int | None) -> Preview:
    """Count what a bulk verb would look at. `tenant`: who asks; None: an operator.

    Raises: Invalid naming the field, NotFound (run).
    """
    verb = verb_of(name)
    with _held(connection, tenant):
        found = stored.matching(
            connection, _where(connection, where, tenant, verb), live=verb.over == "live", most=PREVIEW_MOST + 1
        )
    return Preview(
        matching=min(len(found), PREVIEW_MOST),
        more=len(found) > PREVIEW_MOST,
        by_state=dict(Counter(state for _, state in found[:PREVIEW_MOST])),
    )


def bulk(
    connection: Connection,
    name: str,
    where: Filter,
    *,
    tenant: int | None,
    actor: str,
    reason: str = "",
    priority: int | None = None,
    after: int = 0,
    within_s: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    more: Mapping[str, Any] | None = None,
    say: Callable[[Bulk], None] = lambda _: None,
) -> Bulk:
    """Do a verb to every task that matches, in batches of BATCH. Outside a transaction.

    `tenant`: who acts, on its own tasks; None: an operator. `after`: the `next` of an earlier, broken-off call. It
    stops after a batch when `within_s` seconds have passed or `stop()` says so. `say` hears of each batch. `more`: what
    the verb's statement takes beyond the usual. Nothing that matches is no error. Raises: as `preview`; Forbidden.
    """
    verb = verb_of(name)
    asked = _asked(connection, name, tenant=tenant, reason=reason, priority=priority)
    by = transitions.By(actor=actor, reason=reason)
    result = Bulk(verb=name)
    end_s = None if within_s is None else time.monotonic() + within_s
    bell = Doorbell()
    with _held(connection, tenant):
        exact = _where(connection, where, tenant, verb)
        decide = partial(_decide, verb, where)
        while True:
            found = stored.matching(connection, exact, live=verb.over == "live", after=after, most=LOOK)
            for at in range(0, len(found), BATCH):
                ids = [task for task, _ in found[at : at + BATCH]]
                if stop():
                    result.stopped = "stopped"
                elif end_s is not None and time.monotonic() >= end_s:
                    result.stopped = f"{within_s:g} s were over"
                else:
                    result.stopped = (
                        _batch(connection, ids, decide, asked, by, more, result)
                        if verb.batch is None
                        else _own_batch(connection, ids, verb.batch, tenant, by, result)
                    )
                if result.stopped:
                    result.next = after
                    return result
                after = ids[-1]
                bell.ring(connection)
                say(result)
            if len(found) < LOOK:
                return result


def verb_of(name: str) -> Verb:
    """Return a verb by name. Raises: Invalid."""
    verb = VERBS.get(name)
    if verb is None:
        raise Invalid(f"verb: there is no {name!r}; choose from {', '.join(VERBS)}", field="verb")
    return verb


def _asked(connection: Connection, name: str, *, tenant: int | None, reason: str, priority: int | None) -> Asked:
    check_reason(reason)
    if (name == "priority") is (priority is None):
        raise Invalid("priority: the verb `priority` needs it, and no other takes it", field="priority")
    if priority is not None:
        check_priority(priority, facts_of(connection, tenant))
    return Asked(hold=hold_of(tenant), priority=priority)


def _held(connection: Connection, tenant: int | None) -> Any:
    return nullcontext() if tenant is None else queries.held_to_tenant(connection, tenant)


def _where(connection: Connection, where: Filter, tenant: int | None, verb: Verb) -> stored.Where:
    whose = where.tenant if tenant is None else tenant
    named = (where.run, where.tag, where.state, where.kind, where.pool, where.priority)
    if all(one is None for one in named) and (tenant is not None or whose is None):
        raise Invalid("filter: name at least one of run, tag, state, kind, pool and priority", field="filter")
    if where.tag is not None and whose is None:
        raise Invalid("tenant: a tag is a tenant's own: name the tenant", field="tenant")
    if verb.over == "ended" and where.run is None and where.tag is None and where.state is State.CANCELLED:
        raise Invalid(
            "state: cancelled tasks are found by run or tag alone; without either, only those that failed for good are",
            field="state",
        )
    run = None
    if where.run is not None:
        found = queries.run_and_tenant(connection, where.run)
        if found is None:
            raise NotFound(f"there is no run {where.run}")
        run, _ = found
    return stored.Where(
        tenant=whose,
        run=run,
        term=None if where.tag is None else terms.of_tag(terms.check_tags([where.tag], "tag")[0]),
        state=where.state,
        kind=where.kind,
        pool=where.pool,
        priority=where.priority,
    )


def _decide(verb: Verb, where: Filter, stand: Stand, asked: Asked) -> Decision:
    if where.state is not None and stand.state is not where.state:
        return _MOVED_ON
    if where.priority is not None and stand.priority != where.priority:
        return _MOVED_ON
    return verb.decide(stand, asked)


def _batch(
    connection: Connection,
    ids: list[int],
    decide: verbs.Decide,
    asked: Asked,
    by: transitions.By,
    more: Mapping[str, Any] | None,
    result: Bulk,
) -> str:
    """Do one batch. Returns why the whole must stop, or nothing."""
    for _ in range(TRIES):
        try:
            done = transitions.act(connection, ids, decide, asked, by, more=more)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            continue
        break
    else:
        return "a task stayed locked by someone else"
    result.matched += len(ids)
    for decision in done.values():
        if decision.step is not None:
            result.done[decision.outcome] += 1
        elif decision.outcome == "already":
            result.already += 1
        else:
            result.refused[decision.why] += 1
    result.refused["it is gone"] += len(ids) - len(done)
    result.refused += Counter()  # drops what is 0
    return ""


def _own_batch(
    connection: Connection,
    ids: list[int],
    batch: Callable[..., Tally],
    tenant: int | None,
    by: transitions.By,
    result: Bulk,
) -> str:
    """Do one batch of a verb that has a way of its own. Returns why the whole must stop, or nothing."""
    try:
        tally = batch(connection, ids, tenant=tenant, by=by)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        return "a task stayed locked by someone else"
    result.matched += len(ids)
    result.done["redriven"] += tally.redriven
    result.already += tally.already
    result.refused.update({tally.messages[code]: n for code, n in tally.refused.items()})
    result.done += Counter()  # drops what is 0
    return ""

"""Verbs over many tasks: a preview that counts, and the act in bounded batches, each a transaction of its own.

What matches is looked up without locks; each task is decided again under its lock, so one that has moved on meanwhile
is refused, not harmed. A batch holds its locks for some 10 ms: a release waits no longer. What somebody has locked is
passed over, tried again after the others, and told. Broken off at any point, what is done is done, and `next` tells
where to go on.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from django.conf import settings

from harness.engine.operate.batches import STAYED_LOCKED, come_back, cut, patiently
from harness.engine.operate.one import facts_of
from harness.engine.operate.readmit import KEEP
from harness.engine.operate.registry import VERBS, Verb
from harness.engine.operate.tally import Tally
from harness.engine.operate.who import check_priority, check_reason, held, hold_of
from harness.kinds import registry
from harness.policy import terms, verbs
from harness.policy.errors import Invalid, NotFound
from harness.policy.lifecycle import State
from harness.policy.verbs import Asked, Decision, Stand
from harness.store import bulk as stored
from harness.store import queries, transitions
from harness.store.database import Connection
from harness.store.doorbell import Doorbell

LOOK = 100_000  # ids looked up at once: some 100 ms
PREVIEW_MOST = 100_000  # counted exactly; beyond, "more than"

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


def preview(connection: Connection, name: str, where: Filter, *, tenant: int | None) -> Preview:
    """Count what a bulk verb would look at. `tenant`: who asks; None: an operator.

    Raises: Invalid naming the field, also when nothing matches because it names a pool or kind that isn't there;
    NotFound (run).
    """
    verb = verb_of(name)
    with held(connection, tenant):
        found = stored.matching(
            connection, _where(connection, where, tenant, verb), live=verb.over == "live", most=PREVIEW_MOST + 1
        )
    if not found:
        _check_names(where)
    return Preview(
        matching=min(len(found), PREVIEW_MOST),
        more=len(found) > PREVIEW_MOST,
        by_state=dict(Counter(state for _, state in found[:PREVIEW_MOST])),
    )


def bulk(
    connection: Connection,
    name: str,
    where: Filter | Iterable[Sequence[int]],
    *,
    tenant: int | None,
    actor: str,
    reason: str = "",
    priority: int | None = None,
    input: object = KEEP,
    after: int = 0,
    most: int | None = None,
    within_s: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Do a verb to every task that matches, at most `most`, in batches of BATCH. Outside a transaction.

    `where`: a filter, or for a redrive also ids, in pieces. `tenant`: who acts, on its own tasks; None: an operator.
    `input`: of a redrive, another one for all. `after`: the `next` of an earlier, broken-off call by a filter. It stops
    after a batch when `within_s` seconds have passed or `stop()` says so. `say` hears of each batch. Nothing that
    matches is no error, unless the filter names what isn't there. Raises: as `preview`; Forbidden.
    """
    verb = verb_of(name)
    asked = _asked(connection, verb, name, tenant=tenant, reason=reason, priority=priority, input=input)
    by = transitions.By(actor=actor, reason=reason)
    tally = Tally(verb=name)
    end_s = None if within_s is None else time.monotonic() + within_s
    bell = Doorbell()
    with held(connection, tenant):
        found: Iterable[Sequence[int]]
        act: Callable[[list[int], Tally], list[int] | None]
        if isinstance(where, Filter):
            found = _found(connection, _where(connection, where, tenant, verb), verb, after)
            act = partial(_batch, connection, partial(_decide, verb, where), asked, by)
        elif verb.batch is not None:
            found = where
        else:
            raise ValueError(f"{name} goes by a filter: whose the ids are is not checked")
        if verb.batch is not None:
            act = partial(verb.batch, connection, tenant=tenant, by=by, input=input)
        locked: list[int] = []
        for ids in cut(found, most, tally):
            if stop():
                tally.stopped = "stopped"
            elif end_s is not None and time.monotonic() >= end_s:
                tally.stopped = f"{within_s:g} s were over"
            else:
                busy = act(ids, tally)
                locked += busy or ()
                tally.stopped = STAYED_LOCKED if busy is None else ""
            if tally.stopped:
                tally.more = True
                break
            tally.matched += len(ids)
            after = ids[-1]
            bell.ring(connection)
            say(tally)
        stayed = locked if tally.stopped else come_back(locked, lambda ids: act(ids, tally))
        tally.refuse(transitions.BUSY.why, n=len(stayed))
        if len(stayed) < len(locked):
            bell.ring(connection)
        if isinstance(where, Filter):
            tally.next = after if tally.more else None
            if not tally.matched and not tally.more:
                _check_names(where)
        return tally


def verb_of(name: str) -> Verb:
    """Return a verb by name. Raises: Invalid."""
    verb = VERBS.get(name)
    if verb is None:
        raise Invalid(f"verb: there is no {name!r}; choose from {', '.join(VERBS)}", field="verb")
    return verb


def _asked(
    connection: Connection,
    verb: Verb,
    name: str,
    *,
    tenant: int | None,
    reason: str,
    priority: int | None,
    input: object,
) -> Asked:
    check_reason(reason)
    if verb.batch is None and input is not KEEP:
        raise Invalid(f"input: {name} leaves it as it is", field="input")
    if (name == "priority") is (priority is None):
        raise Invalid("priority: the verb `priority` needs it, and no other takes it", field="priority")
    if priority is not None:
        check_priority(priority, facts_of(connection, tenant))
    return Asked(hold=hold_of(tenant), priority=priority)


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


def _check_names(where: Filter) -> None:
    """Raises: Invalid for a pool or kind that isn't there. Asked when nothing matched: tasks may outlive either."""
    pools = settings.HARNESS_TOPOLOGY.pools
    if where.pool is not None and where.pool not in pools:
        raise Invalid(f"pool: there is no {where.pool!r}; choose from {', '.join(sorted(pools))}", field="pool")
    if where.kind is not None and registry.find(where.kind) is None:
        raise Invalid(f"kind: there is no {where.kind!r}, and no such task; `manage.py kinds` shows them", field="kind")


def _decide(verb: Verb, where: Filter, stand: Stand, asked: Asked) -> Decision:
    if where.state is not None and stand.state is not where.state:
        return _MOVED_ON
    if where.priority is not None and stand.priority != where.priority:
        return _MOVED_ON
    return verb.decide(stand, asked)


def _found(connection: Connection, where: stored.Where, verb: Verb, after: int) -> Iterator[list[int]]:
    """Yield the ids of what matches, by looks of LOOK."""
    while True:
        found = stored.matching(connection, where, live=verb.over == "live", after=after, most=LOOK)
        yield [task for task, _ in found]
        if len(found) < LOOK:
            return
        after = found[-1][0]


def _batch(
    connection: Connection, decide: verbs.Decide, asked: Asked, by: transitions.By, ids: list[int], tally: Tally
) -> list[int] | None:
    """Do one batch that the tasks' own rows decide. Returns what somebody has locked; None: nothing could be done."""
    done = patiently(lambda: transitions.act(connection, ids, decide, asked, by, pass_over=True))
    if done is None:
        return None
    for decision in done.values():
        if decision is transitions.BUSY:
            continue
        if decision.step is not None:
            tally.done[decision.outcome] += 1
        elif decision.outcome == "already":
            tally.already += 1
        else:
            tally.refuse(decision.why)
    tally.refuse("it is gone", n=len(ids) - len(done))
    return [task for task, decision in done.items() if decision is transitions.BUSY]

"""Sending ended tasks again, a batch at a time: what may go (policy.redrive), and what its tenant has room for.

operate.redrive is the verb over it. A redrive is admitted like a new submission: it respects the backlog quota and the
budget, and starts within the time that its priority has by default. The backlog is counted afresh under a lock of its
own, so redrives alone never exceed the quota; beside submissions the bound of store.backlog holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from django.conf import settings
from pydantic import ValidationError

from harness.engine import payload
from harness.engine.operate.tally import Tally
from harness.kinds import registry
from harness.kinds.registry import Kind
from harness.policy import admission, money, redrive, terms
from harness.policy.admission import Forbidden, OverQuota, TenantFacts
from harness.policy.errors import HarnessError, Invalid, NotFound
from harness.policy.redrive import Already, Go, No
from harness.store import ended, queries, transitions
from harness.store import money as spending
from harness.store.database import Connection
from harness.store.ended import Facts
from harness.store.transitions import Again, By

ERRORS_TOLD = 20


class Keep(Enum):
    """The input stays as it is. (None is a JSON value.)"""

    INPUT = "input"


KEEP: Final = Keep.INPUT


@dataclass(frozen=True, slots=True)
class Ready:
    """A task that may go, but for its tenant's room."""

    facts: Facts
    kind: Kind
    again: Again

    @property
    def anew(self) -> bool:
        """Whether it begins anew: with another input, under another token."""
        return self.again.input is not None


@dataclass(frozen=True, slots=True)
class Sent:
    """How many were sent, what refused how many, and which (ids) somebody has locked; the rest had been sent before."""

    sent: int
    refused: list[tuple[HarnessError, int]]
    busy: list[int]


@dataclass(frozen=True, slots=True)
class _Input:
    """Another input, checked against one kind."""

    value: object
    text: str
    signature: str


def decide(connection: Connection, facts: Facts, value: object) -> Ready | Already | No:
    """Decide on one task, and on its new input unless that is KEEP. Raises: Invalid, TooLarge (the input)."""
    kind = registry.find(facts.kind)
    given = None if kind is None or value is KEEP else _checked(kind, value)
    changed = value is not KEEP
    if kind is not None and given is not None and kind.version == facts.version:
        # An input that is equal to the old one changes nothing: the token stays, whoever filled in the form.
        changed = not ended.same_input(connection, facts.id, given.text)
    decided = redrive.decide(
        state=facts.state,
        kind=facts.kind,
        version=facts.version,
        known_version=None if kind is None else kind.version,
        changed=changed,
    )
    match decided:
        case Go(anew=anew) if kind is not None:
            return Ready(facts, kind, _again(facts, kind, given if anew else None))
        case Already() | No():
            return decided
    raise AssertionError(f"sent again without a kind: {facts.kind}")


def decide_all(connection: Connection, found: Sequence[Facts], value: object, tally: Tally) -> Iterator[Ready]:
    """Yield those that may go; count the others, also those whose kind doesn't take the new input."""
    for facts in found:
        try:
            decided = decide(connection, facts, value)
        except Invalid as error:
            tally.refuse(error.code, error.message)
            continue
        match decided:
            case Ready():
                yield decided
            case Already():
                tally.already += 1
            case No(why=why, message=message):
                tally.refuse(why, message)


def send(
    connection: Connection, ready: Sequence[Ready], *, tenant: int | None, by: By, pass_over: bool = False
) -> Sent:
    """Send tasks of one tenant, as many as it has room for, in one transaction. `tenant` None: an operator does it.

    `pass_over`: don't wait for tasks that somebody has locked.
    """
    whose = ready[0].facts.tenant
    refused: list[tuple[HarnessError, int]] = []
    with connection.transaction():
        ended.lock(connection, whose)
        facts = queries.tenant_facts(connection, whose)
        if facts is None:
            return Sent(0, [(NotFound("the task's tenant is gone"), len(ready))], [])
        free = {item.facts.id for item in ready}
        if pass_over:
            free = transitions.lock_free(connection, sorted(free))
        going = [item for item in ready if item.facts.id in free]
        if tenant is not None:  # operators may send what is more urgent than the tenant may ask for
            urgent = [item for item in going if item.facts.priority < facts.top_priority]
            if urgent:
                refused.append((_refusal(facts, urgent[0].facts.priority, 1, 0), len(urgent)))
                going = [item for item in going if item.facts.priority >= facts.top_priority]
        costing = [item for item in going if item.kind.costs]
        standing = spending.standing(connection, whose) if costing else money.OPEN
        if standing.line == "hard":
            refused.append((money.refusal(standing), len(costing)))
            going = [item for item in going if not item.kind.costs]
        if going:
            backlog = ended.unfinished(connection, whose, most=facts.backlog_quota + 1)
            room = max(0, facts.backlog_quota - backlog)
            over = len(going) - room
            if over > 0:
                refused.append((_refusal(facts, facts.top_priority, over, max(backlog, facts.backlog_quota)), over))
                going = going[:room]
        sent = transitions.redrive(connection, [item.again for item in going], actor=by.actor, reason=by.reason)
    return Sent(len(sent), refused, [item.facts.id for item in ready if item.facts.id not in free])


def room_of(connection: Connection, tenant: int) -> int:
    """Return how many tasks a tenant's backlog takes now."""
    facts = queries.tenant_facts(connection, tenant)
    if facts is None:
        return 0
    return max(0, facts.backlog_quota - ended.unfinished(connection, tenant, most=facts.backlog_quota + 1))


def _checked(kind: Kind, value: object) -> _Input:
    """Check an input against its kind. Raises: Invalid, TooLarge, naming the field."""
    text = payload.encode(value, "input", max_bytes=settings.HARNESS_BODY_MAX_BYTES)
    try:
        checked = kind.input.model_validate(value)
    except ValidationError as error:
        errors = payload.told_by_pydantic(error, "input")
        first = errors[0]
        raise Invalid(
            f"{first['field']}: {first['message']}", field=first["field"], errors=errors[:ERRORS_TOLD]
        ) from None
    return _Input(value, text, kind.signature_of(checked))


def _again(facts: Facts, kind: Kind, given: _Input | None) -> Again:
    ttl_s = settings.HARNESS_TTL_S[facts.priority]
    searched = bool(facts.title or facts.tags or facts.schedule)
    return Again(
        task=facts.id,
        version=kind.version,
        pool=kind.pool,
        signature=_signature(facts, kind, given),
        start_by=None if ttl_s is None else datetime.now(UTC) + timedelta(seconds=ttl_s),
        input=None if given is None else given.text,
        terms=terms.of_task(
            title=facts.title or "",
            tags=facts.tags or (),
            kind=kind.name,
            value=given.value,
            schedule=str(facts.schedule) if facts.schedule else None,
        )
        if given is not None and searched
        else None,
    )


def _signature(facts: Facts, kind: Kind, given: _Input | None) -> str:
    """Return what the task needs now. By an input that stays it needs what it needed, where its kind still says so."""
    if given is not None:
        return given.signature
    return facts.signature if facts.signature in kind.signatures else kind.signature


def _refusal(tenant: TenantFacts, priority: int, count: int, backlog: int) -> HarnessError:
    decision = admission.refused(tenant, most_urgent=priority, count=count, backlog=backlog)
    assert decision is not None
    if decision.why == "priority":
        return Forbidden(decision.message, field="priority")
    return OverQuota(decision.message, retry_after_s=decision.retry_after_s)

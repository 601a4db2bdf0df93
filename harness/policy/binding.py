"""Which reason binds a flow now: the first of policy.reasons.TABLE that holds all of the flow's tasks. Pure.

It asks the same facts as the plan (policy.quota, policy.room) but gives its answer for every flow, also for those that
a look leaves out. What it can't name is a matter of order: the flow waits for its turn.

Cost: what binds is gathered once a pool, priority, tenant, run or signature; then some look-ups a flow, 3 us.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from harness.policy import pressure
from harness.policy.flow import needs
from harness.policy.known import Kinds
from harness.policy.money import Standing
from harness.policy.quota import left_of, soft_cap
from harness.policy.ramp import Left
from harness.policy.reasons import Code, Fact, Reason
from harness.policy.room import Room
from harness.policy.shortage import Downstream, Shortage

FlowKey = tuple[str, int, int, int, str]  # pool, priority, tenant, run, signature


class Flow(NamedTuple):
    """A flow (with its row's id) and the caps that it stands under. A tuple: some ten thousand are made a second."""

    id: int

    key: FlowKey
    tenant_cap: int
    run_cap: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PauseFacts:
    """A pause in force: whose, by whom, why, since and until when (epoch seconds)."""

    scope: str
    key: str
    source: str
    author: str
    reason: str
    since_s: float
    until_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """All pools at one moment, before anything is released.

    `capacities`: of resources; `quotas`: (tenant, "pool" | "resource", name) -> cap; `beyond`: tenants whose budget is
    spent; `waiting`: tenants with work for a pool, a moment ago; `held`: what the last plans said of flows that they
    looked at; `ramped_pools`, `ramped`: what is left to scopes that come back from a pause (policy.ramp.left).
    `downstreams`: of resources that give less than they could, or are held by the call.
    """

    room: Room
    capacities: Mapping[str, int]
    quotas: Mapping[tuple[int, str, str], int]
    pauses: Sequence[PauseFacts]
    kinds: Kinds
    beyond: Mapping[int, Standing]
    waiting: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[int, str] = field(default_factory=dict)
    ramped_pools: Mapping[str, int] = field(default_factory=dict)
    downstreams: Mapping[str, Downstream] = field(default_factory=dict)
    ramped: Mapping[str, Left] = field(default_factory=dict)


Check = Callable[[Flow], Reason | None]


def binder(facts: Facts) -> Callable[[Flow], Reason]:
    """Return the function from a flow to the reason that binds it. It is good for these facts only."""
    checks = [check for check in _checks(facts) if check is not None]
    turns: dict[str, Reason] = {}

    def bind(flow: Flow) -> Reason:
        for check in checks:
            if (reason := check(flow)) is not None:
                return reason
        pool = flow.key[0]
        if pool not in turns:
            turns[pool] = Reason(Code.TURN, "", {"pool": pool})
        return turns[pool]

    return bind


def _checks(facts: Facts) -> Iterable[Check | None]:
    """The checks in the order of policy.reasons.TABLE; None for one that can't bind anything now."""
    yield _paused(facts.pauses) if facts.pauses else None
    yield _unserved(facts.room.slots)
    resources = Shortage(facts.room, facts.capacities, facts.downstreams)
    yield _by_signature(resources.too_large)
    yield _by_signature(resources.shut) if facts.downstreams else None
    yield _beyond_budget(facts) if facts.beyond else None
    yield _capped(facts.room)
    yield _run_capped(facts.room)
    yield _beyond_quota(facts) if facts.quotas or facts.room.tenant_caps else None
    yield _by_signature(resources.used_up)
    yield _kept_back(facts.held) if facts.held else None
    yield _beside_others(facts)
    yield _ramping(facts) if facts.ramped_pools or facts.ramped else None


def _paused(pauses: Sequence[PauseFacts]) -> Check:
    found: dict[tuple[str, str], Reason] = {}
    # Of several sources of one scope the one that lasts longest is told: lifting the other would free nothing.
    for pause in sorted(pauses, key=lambda one: (one.until_s is not None, -(one.until_s or 0.0), one.source)):
        found.setdefault((pause.scope, pause.key), _pause_reason(pause))

    def check(flow: Flow) -> Reason | None:
        pool, priority, tenant, run, _ = flow.key
        return (
            found.get(("pool", pool))
            or found.get(("priority", f"p{priority}"))
            or found.get(("pool_priority", f"{pool}.p{priority}"))
            or found.get(("tenant", str(tenant)))
            or (found.get(("run", str(run))) if run else None)
        )

    return check


def _pause_reason(pause: PauseFacts) -> Reason:
    subject, what = _scope_words(pause.scope, pause.key)
    facts: dict[str, Fact | None] = {
        "what": what,
        "source": pause.source,
        "author": pause.author,
        "reason": pause.reason,
        "since_s": pause.since_s,
        "until_s": pause.until_s,
    }
    return Reason(Code.PAUSED, subject, facts)


def _scope_words(scope: str, key: str) -> tuple[str, str]:
    """Return a scope as a subject and as the beginning of a sentence; numbers of tenants and runs aren't told.

    >>> _scope_words("pool_priority", "llm.p3"), _scope_words("tenant", "17")
    (('pool llm, P3', 'Priority P3 in the pool llm'), ('tenant', 'All your work'))
    """
    match scope:
        case "pool":
            return f"pool {key}", f"The pool {key}"
        case "priority":
            return key.upper(), f"Priority {key.upper()}"
        case "pool_priority":
            pool, _, priority = key.rpartition(".")
            return f"pool {pool}, {priority.upper()}", f"Priority {priority.upper()} in the pool {pool}"
        case "tenant":
            return "tenant", "All your work"
        case _:
            return "run", "This run"


def _unserved(slots: Mapping[str, int]) -> Check:
    reasons: dict[str, Reason | None] = {pool: None for pool, n in slots.items() if n > 0}

    def check(flow: Flow) -> Reason | None:
        pool = flow.key[0]
        if pool not in reasons:
            reasons[pool] = Reason(Code.NO_WORKER, pool, {"pool": pool})
        return reasons[pool]

    return check


def _beyond_budget(facts: Facts) -> Check:
    costing = facts.kinds.costing_in

    def check(flow: Flow) -> Reason | None:
        pool, _, tenant, _, signature = flow.key
        standing = facts.beyond.get(tenant)
        if standing is None or signature not in costing.get(pool, ()):
            return None
        period = standing.period or "day"
        return Reason(Code.BUDGET, period, {"period": period, "limit": standing.limit_usd})

    return check


def _capped(room: Room) -> Check:
    reason = _figures(Code.TENANT_CAP)

    def check(flow: Flow) -> Reason | None:
        used = room.tenants.get(flow.key[2], 0)
        return reason(used, flow.tenant_cap) if used >= flow.tenant_cap else None

    return check


def _run_capped(room: Room) -> Check:
    reason = _figures(Code.RUN_CAP)

    def check(flow: Flow) -> Reason | None:
        if flow.run_cap is None or not flow.key[3]:
            return None
        used, cap = room.runs.get(flow.key[3], 0), flow.run_cap
        if cap and cap > used >= (now := pressure.fanout(room.level, cap)):
            return reason(used, now, halved_of=cap)
        return reason(used, cap) if used >= cap else None

    return check


class _Figures(Protocol):
    def __call__(self, used: int, limit: int, *, halved_of: int = 0) -> Reason: ...


def _figures(code: Code) -> _Figures:
    """Reasons of so much of so much, made once for each: most that are at a cap are at the same."""
    known: dict[tuple[int, int, int], Reason] = {}

    def of(used: int, limit: int, *, halved_of: int = 0) -> Reason:
        reason = known.get((used, limit, halved_of))
        if reason is None:
            facts: dict[str, Fact | None] = {"used": used, "limit": limit}
            if halved_of:
                facts["halved_of"] = halved_of
            reason = known[used, limit, halved_of] = Reason(code, "", facts)
        return reason

    return of


def _beyond_quota(facts: Facts) -> Check:
    """Of quotas only those matter that leave less than a task may need; most tenants have none."""
    left, caps = facts.room.quotas, facts.quotas

    def of(tenant: int, scope: str, name: str, n: int) -> Reason | None:
        key = (tenant, scope, name)
        free, cap = left.get(key), caps.get(key, 0)
        if free is None and scope == "resource":
            free, cap = left_of(facts.room, tenant, name), facts.room.tenant_caps.get(name, 0)
        if free is None or free >= n:
            return None
        figures: dict[str, Fact | None] = {"name": name, "used": cap - free, "limit": cap}
        return Reason(Code.QUOTA, name, figures | ({"needs": n} if n > 1 else {}))

    def check(flow: Flow) -> Reason | None:
        pool, _, tenant, _, signature = flow.key
        found = of(tenant, "pool", pool, 1)
        for resource, n in needs(signature) if found is None else ():
            found = found or of(tenant, "resource", resource, n)
        return found

    return check


def _kept_back(held: Mapping[int, str]) -> Check:
    """What only the plan knows, of the flows that it looked at last: rules 11 and 14, and the level's."""

    def check(flow: Flow) -> Reason | None:
        name, _, resource = held.get(flow.id, "").partition(":")
        if name == "reserved":
            return Reason(Code.RESERVED, resource, {"resource": resource})
        if name == "pressure":
            return Reason(Code.PRESSURE, "", {"pool": flow.key[0]})
        return Reason(Code.FAN_OUT, "", {"pool": flow.key[0]}) if name == "fan_out" else None

    return check


def _beside_others(facts: Facts) -> Check:
    """Rule 8. Others count here while they have work or hold a place; the plan remembers them for 10 min longer."""
    caps = {pool: (soft_cap(slots), slots) for pool, slots in facts.room.slots.items()}
    flight = facts.room.flight

    def check(flow: Flow) -> Reason | None:
        pool, priority, tenant, _, _ = flow.key
        cap, slots = caps.get(pool, (0, 0))
        if not priority or cap >= slots:
            return None
        used = flight[pool].tenants.get(tenant, 0)
        if used < cap or (facts.waiting.get(pool, 0) < 2 and len(flight[pool].tenants) < 2):
            return None
        return Reason(Code.SHARE, "", {"pool": pool, "used": used, "limit": cap})

    return check


def _ramping(facts: Facts) -> Check:
    def check(flow: Flow) -> Reason | None:
        pool, priority, tenant, run, _ = flow.key
        if facts.ramped_pools.get(pool, 1) <= 0:
            return _ramp_reason("pool", pool)
        left = facts.ramped.get(pool, {})
        for scope, number, key in (
            ("priority", priority, f"p{priority}"),
            ("tenant", tenant, ""),
            ("run", run, ""),
        ):
            if left.get((scope, number), 1) <= 0:
                return _ramp_reason(scope, key)
        return None

    return check


def _ramp_reason(scope: str, key: str) -> Reason:
    subject, what = _scope_words(scope, key)
    return Reason(Code.RAMP, subject, {"what": what})


def _by_signature(of: Callable[[str, int], Reason | None]) -> Check:
    """A check that depends on the signature, and on whether it is P0, is made once for each."""
    urgent: dict[str, Reason | None] = {"": None}
    known: dict[str, Reason | None] = {"": None}

    def check(flow: Flow) -> Reason | None:
        signature, priority = flow.key[4], flow.key[1]
        found = known if priority else urgent
        if signature not in found:
            found[signature] = of(signature, priority)
        return found[signature]

    return check

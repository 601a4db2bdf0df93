"""All that is decided at one resource about permits: its limiter, breaker, buckets and retry budget put together. Pure.

The store does the same in Redis, in Lua, for all processes (store/lua/permit_desk.lua mirrors this module line by line;
tests/conformance drives both); this one serves a process that Redis has left alone, and the simulator.

D1  A call is asked about in this order: breaker, block, tenant's cap, concurrency and the order of who waits, the door,
    requests and tokens. The first that binds refuses; a refusal changes nothing but what time changes.
D2  The order: who comes finds so many places free; as many as wait before it (rule R5) are theirs.
D3  Who is first and waits for tokens isn't overtaken by who needs fewer, until HEAD_S after its time has come.
D4  The door: where an earlier life of this state is known (Redis was emptied), calls of it may still be running.
    They are told within RENEW_S; until then, beside one for each that ended, new calls come in little by little:
    1 + limit * age / DOOR_S.
D5  A refusal for rate goes to the buckets; without one, nothing is let in for as long as was said.

All steps change the desk in place. Facts: `in_flight` counts permits that live, without the call in question; `jitter`
in [0, 1). Times are epoch seconds of one clock.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from harness.policy import breaker as breakers
from harness.policy import bucket as buckets
from harness.policy import retry_budget
from harness.policy.breaker import OPEN, Breaker
from harness.policy.bucket import Bucket
from harness.policy.limits import STRATEGIES, Strategy, guard
from harness.policy.limits.csl import CANARY_MOST_S
from harness.policy.limits.guard import Guard
from harness.policy.limits.state import DRAIN, MODES, State, Terms, asked, begin, clamp, restart, wait_s
from harness.policy.permits import DOOR_S, Limit, Report
from harness.policy.resources import Live
from harness.policy.retry_budget import Budget

HEAD_S = 0.3  # somewhat longer than POLL_S: who is first asks again within this
RATE_LEAST_S = 1.0  # a refusal for rate that says nothing of when
OPENED, PROBING, CLOSED = "breaker_opened", "breaker_probing", "breaker_closed"

Changed = tuple[int, int, str]  # old and new limit, reason


@dataclass(slots=True)
class Desk:
    """What is kept of one resource. `door_s`: until when the door stands, 0.0: none; `door`: let in, less ended."""

    born_s: float
    limiter: State
    breaker: Breaker = field(default_factory=Breaker)
    requests: Bucket = field(default_factory=Bucket)
    tokens: Bucket = field(default_factory=Bucket)
    budget: Budget = field(default_factory=Budget)
    guard: Guard = field(default_factory=Guard)
    door_s: float = 0.0
    door: int = 0
    head_s: float = 0.0  # when the first in the order has its requests or tokens (D3)
    head: Limit = "requests"  # which of them
    stop_s: float = 0.0  # a rate that nothing here counts is used up until then (D5)


@dataclass(frozen=True, slots=True)
class Sent:
    """What is remembered of a call that was let in: `estimate` and `charged` are tokens."""

    n_send: int
    at_s: float
    estimate: float
    charged: float


def opened(live: Live, now_s: float, *, reborn: bool) -> Desk:
    """Return the desk of a resource that nothing is kept of; `reborn`: somebody knows an earlier life of it."""
    terms = terms_of(live)
    state = begin(terms, now_s, start=live.resource.start, proven=float(live.proven or 0))
    if live.resource.limiter == "fixed":
        state.limit = float(terms.ceiling)
    return Desk(
        born_s=now_s,
        limiter=state,
        guard=Guard(window_s=now_s),
        door_s=now_s + DOOR_S if reborn or live.proven else 0.0,
    )


def terms_of(live: Live) -> Terms:
    """Return the bounds of a resource's limiter."""
    one = live.resource
    return Terms(floor=one.floor, ceiling=max(1, one.capacity), reserve=one.p0_reserve)


def limit_now(desk: Desk, live: Live) -> int:
    """Return the limit: how many calls there may be at once."""
    one = live.resource
    if one.limiter == "fixed" or one.capacity == 0:
        return one.capacity
    limit = min(desk.limiter.limit, float(one.capacity))
    return int(min(limit, desk.limiter.trim) if desk.limiter.trim else limit)


def step(desk: Desk, live: Live, now_s: float, *, in_flight: int, waiting: int, priority: int) -> Iterator[Changed]:
    """Let time pass, before anything else is asked; `priority`: of who asks, -1: somebody only looks (the latency
    guard's windows end then). Yields what changed."""
    terms = terms_of(live)
    yield from _change(desk, live, lambda: clamp(desk.limiter, terms))
    if priority >= 0:
        asked(desk.limiter, now_s, priority)
    if live.resource.breaker and breakers.tick(desk.breaker, now_s):
        yield 0, limit_now(desk, live), PROBING
    if priority < 0 and live.resource.limiter == "csl" and guard.due(desk.guard, now_s):
        yield from _change(desk, live, lambda: guard.turn(desk.guard, desk.limiter, terms, now_s))
    tick = strategy_of(live).tick
    yield from _change(desk, live, lambda: tick(desk.limiter, terms, now_s, in_flight, waiting))


def binding(
    desk: Desk,
    live: Live,
    now_s: float,
    *,
    in_flight: int,
    ahead: int,
    priority: int,
    tenant_used: int,
    tenant_cap: int | None,
    tokens: int,
) -> tuple[Limit, float] | None:
    """Return the limit that refuses a call now and for how many seconds at least (0: nobody knows), or None (D1)."""
    one, state = live.resource, desk.limiter
    if one.breaker and (shut_s := breakers.wait_s(desk.breaker, now_s)) > 0:
        return "breaker", shut_s if desk.breaker.mode == OPEN else 0.0  # a probe may be over at any time
    if one.capacity == 0:
        return "blocked", 0.0
    if now_s < state.blocked_s:
        return "blocked", state.blocked_s - now_s
    if tenant_cap is not None and tenant_used >= tenant_cap:
        return "tenant", 0.0
    if strategy_of(live).seen(state, terms_of(live), now_s, priority) - in_flight <= ahead:
        return "concurrency", _pause_s(desk, live, now_s)
    if now_s < desk.door_s:
        limit = limit_now(desk, live)
        if desk.door >= 1 + int(limit * (now_s - desk.born_s) / DOOR_S):
            return "redis", max(DOOR_S * desk.door / limit - (now_s - desk.born_s), 0.001)
    return _rated(desk, live, now_s, ahead, tokens)


def charge(desk: Desk, live: Live, tokens: int) -> float:
    """Return what an estimate of tokens is charged as."""
    return buckets.charge_of(desk.tokens, float(tokens)) if live.resource.tpm else 0.0


def wait_of_first(desk: Desk, now_s: float, *, ahead: int, limit: Limit, wait: float) -> None:
    """Note when the first in the order has its requests or tokens; after `binding` refused for them (D3)."""
    if ahead == 0:
        desk.head_s, desk.head = now_s + wait, limit


def let_in(desk: Desk, live: Live, now_s: float, *, in_flight: int, tokens: int, first: bool) -> Sent:
    """Take one call in; only after `binding` said None at every resource that it needs."""
    one = live.resource
    strategy_of(live).sent(desk.limiter, terms_of(live), now_s, in_flight)
    if one.breaker:
        breakers.sent(desk.breaker, now_s)
    if one.rpm:
        buckets.take(desk.requests, one.rpm, now_s, 1.0)
    charged = charge(desk, live, tokens)
    if one.tpm:
        buckets.take(desk.tokens, one.tpm, now_s, charged)
    if first:
        retry_budget.first(desk.budget, now_s, one.retry_ratio, one.retry_per_s)
    desk.door += 1
    return Sent(in_flight, now_s, float(tokens), charged)


def used(desk: Desk, live: Live, now_s: float, sent: Sent, tokens: int, *, learn: bool = True) -> None:
    """Settle what a call reserved by what it used. Once for a call. `learn` False: it was never sent."""
    if live.resource.tpm:
        estimate = sent.estimate if learn else 0.0
        buckets.settle(
            desk.tokens, live.resource.tpm, now_s, charged=sent.charged, estimate=estimate, actual=float(tokens)
        )


def told(
    desk: Desk, live: Live, now_s: float, sent: Sent, report: Report, *, in_flight: int, jitter: float
) -> Iterator[Changed]:
    """Take over how a call ended; `in_flight` without it. Yields what changed."""
    terms, strategy, state = terms_of(live), strategy_of(live), desk.limiter
    latency_s = report.latency_s
    desk.door -= 1

    def limited() -> str:
        if report.timed_out:
            return strategy.ended(state, terms, now_s, timed_out=True)
        if report.outcome == "success":
            if live.resource.limiter == "csl" and latency_s > 0:
                guard.noted(desk.guard, latency_s)
            return strategy.succeeded(state, terms, now_s, sent.n_send, sent.at_s, latency_s)
        if report.outcome == "ignore" or report.rate:
            return strategy.ended(state, terms, now_s, timed_out=False)
        return strategy.dropped(
            state,
            terms,
            now_s,
            sent.n_send,
            sent.at_s,
            now_s - sent.at_s,
            in_flight,
            report.retry_after_s,
            report.overload,
        )

    yield from _change(desk, live, lambda: clamp(state, terms))
    yield from _change(desk, live, limited)
    if report.rate:
        _stopped(desk, live, now_s, report)
    _tightened(desk, live, now_s, report)
    if live.resource.breaker:
        counts = report.outcome == "success" or report.failure
        yield from _broken(desk, live, now_s, sent, counts=counts, failed=report.failure, jitter=jitter)


def told_aside(desk: Desk, live: Live, now_s: float, sent: Sent, *, succeeded: bool) -> Iterator[Changed]:
    """Take over that a call is over whose outcome another resource brought about, or nobody knows (its worker died)."""
    terms, strategy, state = terms_of(live), strategy_of(live), desk.limiter
    desk.door -= 1
    yield from _change(desk, live, lambda: clamp(state, terms))
    if succeeded:
        yield from _change(desk, live, lambda: strategy.succeeded(state, terms, now_s, sent.n_send, sent.at_s, 0.0))
    else:
        yield from _change(desk, live, lambda: strategy.ended(state, terms, now_s, timed_out=False))
    if live.resource.breaker:
        yield from _broken(desk, live, now_s, sent, counts=succeeded, failed=False, jitter=0.0)


def retry(desk: Desk, live: Live, now_s: float) -> float:
    """Take one retry from the budget, as a debt when it is empty. Returns the seconds that it must wait."""
    return retry_budget.owe(desk.budget, now_s, live.resource.retry_per_s)


def mode(live: Live, state: State) -> str:
    """Return the limiter's mode as people read it: ramp, hold, drain, fixed; of aimd and gradient its name."""
    return MODES[state.mode] if live.resource.limiter == "csl" else live.resource.limiter


def proven(desk: Desk, live: Live) -> int:
    """Return how many were in flight without a refusal; of a fixed limit the limit. 0: nothing is proven."""
    if live.resource.limiter == "fixed":
        return live.resource.capacity
    if live.resource.limiter != "csl":
        return int(desk.limiter.limit)
    return int(desk.limiter.proven) or (live.proven or 0)


def blocked_until_s(desk: Desk, live: Live, now_s: float) -> float:
    """Return until when the resource has asked to be sent nothing; 0.0 when it hasn't.

    A pause counts too while more of it is left than the limiter makes by itself (csl.CANARY_MOST_S): no slot waits for
    that long, so nobody should be released meanwhile.
    """
    if now_s < desk.limiter.blocked_s:
        return desk.limiter.blocked_s
    return desk.limiter.pause_s if _pause_s(desk, live, now_s) > CANARY_MOST_S else 0.0


def rate_wait_s(desk: Desk, live: Live, now_s: float) -> float:
    """Return the seconds until one more request and one more token are free."""
    one = live.resource
    longest = max(0.0, desk.stop_s - now_s)
    if one.rpm:
        longest = max(longest, buckets.wait_s(desk.requests, one.rpm, now_s, 1.0))
    if one.tpm:
        longest = max(longest, buckets.wait_s(desk.tokens, one.tpm, now_s, 1.0))
    return longest


def strategy_of(live: Live) -> Strategy:
    """Return the resource's limiter."""
    return STRATEGIES[live.resource.limiter]


def _pause_s(desk: Desk, live: Live, now_s: float) -> float:
    """Return the seconds for which a drain still sends nothing at all."""
    state = desk.limiter
    if live.resource.limiter == "fixed" or state.mode != DRAIN or state.canary_s:
        return 0.0
    return max(0.0, state.pause_s - now_s)


def _rated(desk: Desk, live: Live, now_s: float, ahead: int, tokens: int) -> tuple[Limit, float] | None:
    one = live.resource
    if now_s < desk.stop_s:
        return "requests", desk.stop_s - now_s
    requests_s = buckets.wait_s(desk.requests, one.rpm, now_s, 1.0) if one.rpm else 0.0
    tokens_s = buckets.wait_s(desk.tokens, one.tpm, now_s, charge(desk, live, tokens)) if one.tpm else 0.0
    if tokens_s > requests_s:
        return "tokens", tokens_s
    if requests_s > 0:
        return "requests", requests_s
    if ahead > 0 and now_s < desk.head_s + HEAD_S:
        return desk.head, max(desk.head_s - now_s, 0.0)
    return None


def _stopped(desk: Desk, live: Live, now_s: float, report: Report) -> None:
    """A refusal for rate: of what the headers say is used up; of both when they don't say."""
    one, said = live.resource, report.headers
    stop_s = max(wait_s(report.retry_after_s), RATE_LEAST_S)
    requests = said is not None and said.remaining_requests == 0
    tokens = said is not None and said.remaining_tokens == 0
    if not one.rpm and not one.tpm:
        desk.stop_s = max(desk.stop_s, now_s + stop_s)
    if one.rpm and (requests or not tokens or not one.tpm):
        buckets.stop(desk.requests, one.rpm, now_s, stop_s)
    if one.tpm and (tokens or not requests or not one.rpm):
        buckets.stop(desk.tokens, one.tpm, now_s, stop_s)


def _tightened(desk: Desk, live: Live, now_s: float, report: Report) -> None:
    one, said = live.resource, report.headers
    if said is None:
        return
    if one.rpm:
        limit, left = said.limit_requests or 0, said.remaining_requests
        buckets.tighten(
            desk.requests, one.rpm, now_s, limit=float(limit), remaining=-1.0 if left is None else float(left)
        )
    if one.tpm:
        limit, left = said.limit_tokens or 0, said.remaining_tokens
        buckets.tighten(
            desk.tokens, one.tpm, now_s, limit=float(limit), remaining=-1.0 if left is None else float(left)
        )


def _broken(
    desk: Desk, live: Live, now_s: float, sent: Sent, *, counts: bool, failed: bool, jitter: float
) -> Iterator[Changed]:
    """Tell the breaker; when it closes, the limiter begins again from half."""
    change = breakers.reported(desk.breaker, now_s, sent.at_s, counts=counts, failed=failed, slow=False, jitter=jitter)
    if change in ("opened", "reopened"):
        yield limit_now(desk, live), 0, OPENED
    elif change == "closed":
        yield 0, limit_now(desk, live), CLOSED
        if live.resource.limiter != "fixed":
            yield from _change(desk, live, lambda: restart(desk.limiter, terms_of(live), now_s))


def _change(desk: Desk, live: Live, take: Callable[[], str]) -> Iterator[Changed]:
    before = limit_now(desk, live)
    reason = take()
    after = limit_now(desk, live)
    if after != before:
        yield before, after, reason or "bounds"

"""Plays callers behind a limiter against a provider, in virtual time, and measures what came of it.

The steps are those of harness/policy/limits (and breaker, retry budget), called as the permits call them: whoever
waits asks again when a place is free (WAKE_S later) or after POLL_S. No real clock. Same play and seed, same figures.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any

from harness.policy import breaker as breakers
from harness.policy import retry_budget
from harness.policy.limits import STRATEGIES
from harness.policy.limits import guard as guards
from harness.policy.limits.state import DRAIN, Terms, asked, begin, clamp, restart
from harness.sim.provider import Law, Provider

WAKE_S = 0.02  # from the end of a call to the next one's permit, as measured with the wake-up on one machine
POLL_S = 0.1
START_S = 1000.0  # the clock's first moment: 0 means never
ORACLE = "oracle"  # knows the quota at every moment: what no limiter can beat
_FILL, _END, _P0, _OFFER, _POLL = range(5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Play:
    """One scenario. `offered_per_s`: None is an endless backlog of P>0, and it is from `endless_from_s` on; `p0_per_s`
    comes on top (Poisson). `strategy`: one of policy.limits, or ORACLE.
    """

    name: str
    law: Law
    terms: Terms
    strategy: str = "csl"
    offered_per_s: float | None = None
    endless_from_s: float = inf
    p0_per_s: float = 0.0
    proven: float = 0.0
    guard: bool = False
    breaker: bool = False
    wake_s: float = WAKE_S


@dataclass(slots=True)
class Tally:
    """What was counted, second by second (index: second) and in all."""

    seconds: int
    taken: list[float] = field(default_factory=list)  # integral of the provider's in-flight
    useful: list[float] = field(default_factory=list)  # the same, not above the quota
    sends: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    ok: int = 0
    refused: int = 0
    failed: int = 0
    hung: int = 0
    firsts: int = 0
    retries: int = 0
    sent_while_open: int = 0
    canaries_most: int = 0
    p0_waits_s: list[float] = field(default_factory=list)
    limits: list[tuple[float, float, str]] = field(default_factory=list)
    limit_most: float = 0.0
    in_flight_most: int = 0

    def __post_init__(self) -> None:
        self.taken = [0.0] * self.seconds
        self.useful = [0.0] * self.seconds
        self.sends = [0] * self.seconds
        self.ends = [0] * self.seconds


class Caller:
    """The callers of one play."""

    def __init__(self, play: Play, seed: int) -> None:
        self.play = play
        self.rng = Random(f"{play.name} {seed}")
        self.provider = Provider(play.law, Random(f"{play.name} {seed} provider"))
        self.step = STRATEGIES["fixed" if play.strategy == ORACLE else play.strategy]
        self.state = begin(play.terms, START_S, proven=play.proven)
        self.guard = guards.Guard(window_s=START_S)
        self.breaker = breakers.Breaker()
        self.budget = retry_budget.Budget(at_s=START_S, began_s=START_S)
        self.tally = Tally(int(play.law.seconds))
        self.in_flight = 0
        self.canaries: Counter[float] = Counter()  # in flight, by the drain that sent them
        self.waiting_p0: deque[float] = deque()
        self.offered = 0
        self.again = 0  # failed calls that wait for the retry budget
        self._heap: list[tuple[float, int, int, Any]] = []
        self._number = 0
        self._fill_at_s = 0.0
        self._edge_s = 0.0

    def run(self) -> Tally:
        """Play it to its end and return what was counted."""
        end_s = self.play.law.seconds
        self._at(0.0, _POLL)
        if self.play.p0_per_s:
            self._at(self.rng.expovariate(self.play.p0_per_s), _P0)
        if self.play.offered_per_s:
            self._at(self.rng.expovariate(self.play.offered_per_s), _OFFER)
        while self._heap:
            now_s, _, kind, what = heappop(self._heap)
            if now_s >= end_s:
                break
            self._pass(now_s)
            if kind == _END:
                self._end(now_s, what)
                self._wake(now_s)
            elif kind == _FILL:
                self._fill_at_s = 0.0
                self._fill(now_s)
            elif kind == _POLL:
                self._fill(now_s)
                self._at(now_s + POLL_S, _POLL)
            elif kind == _P0:
                self.waiting_p0.append(now_s)
                self._fill(now_s)
                self._at(now_s + self.rng.expovariate(self.play.p0_per_s), _P0)
            else:
                assert self.play.offered_per_s
                self.offered += 1
                self._fill(now_s)
                if now_s < self.play.endless_from_s:
                    self._at(now_s + self.rng.expovariate(self.play.offered_per_s), _OFFER)
        self._pass(end_s)
        return self.tally

    def _at(self, at_s: float, kind: int, what: Any = None) -> None:
        self._number += 1
        heappush(self._heap, (at_s, self._number, kind, what))

    def _wake(self, now_s: float) -> None:
        if not self._fill_at_s:
            self._fill_at_s = now_s + self.play.wake_s
            self._at(self._fill_at_s, _FILL)

    def _pass(self, now_s: float) -> None:
        """Count what the provider had in flight since the last event, by seconds."""
        at_s, provider, tally = self._edge_s, self.provider, self.tally
        while at_s < now_s:
            second = int(at_s)
            until_s = min(now_s, second + 1.0)
            passed_s = until_s - at_s
            tally.taken[second] += passed_s * provider.in_flight
            tally.useful[second] += passed_s * min(provider.in_flight, provider.quota(at_s))
            at_s = until_s
        self._edge_s = now_s

    def _fill(self, now_s: float) -> None:
        """Let go whoever may go: P0 first."""
        play, state, clock_s = self.play, self.state, START_S + now_s
        endless = play.offered_per_s is None or now_s >= play.endless_from_s
        self._changed(now_s, clamp(state, play.terms))
        if play.guard and guards.due(self.guard, clock_s):
            self._changed(now_s, guards.turn(self.guard, state, play.terms, clock_s))
        while True:
            p0 = bool(self.waiting_p0)
            waiting = len(self.waiting_p0) + (1 if endless else self.offered + self.again)
            if p0:
                asked(state, clock_s, 0)
            self._changed(now_s, self.step.tick(state, play.terms, clock_s, self.in_flight, waiting))
            if not waiting:
                return
            if play.breaker:
                breakers.tick(self.breaker, clock_s)
                if breakers.wait_s(self.breaker, clock_s) > 0:
                    return
            priority = 0 if p0 else 1
            if self.in_flight >= self._limit(now_s, priority):
                return
            if not p0 and self.again and retry_budget.take(self.budget, clock_s) == 0.0:
                self.again -= 1
                self.tally.retries += 1
            elif p0 or endless or self.offered:
                retry_budget.first(self.budget, clock_s)
                self.tally.firsts += 1
                if p0:
                    self.tally.p0_waits_s.append(now_s - self.waiting_p0.popleft())
                elif not endless:
                    self.offered -= 1
            else:
                return
            self._send(now_s)

    def _limit(self, now_s: float, priority: int) -> int:
        if self.play.strategy == ORACLE:
            return int(self.provider.quota(now_s))
        return self.step.seen(self.state, self.play.terms, START_S + now_s, priority)

    def _send(self, now_s: float) -> None:
        play, clock_s = self.play, START_S + now_s
        if play.breaker:
            self.tally.sent_while_open += self.breaker.mode == breakers.OPEN
            breakers.sent(self.breaker, clock_s)
        drain_s = self.state.cut_s if self.state.mode == DRAIN else 0.0
        if drain_s:
            self.canaries[drain_s] += 1
            self.tally.canaries_most = max(self.tally.canaries_most, self.canaries[drain_s])
        self._changed(now_s, self.step.sent(self.state, play.terms, clock_s, self.in_flight))
        answer, after_s, latency = self.provider.ask(now_s)
        self.tally.sends[int(now_s)] += 1
        self._at(now_s + after_s, _END, (answer, clock_s, self.in_flight, latency, drain_s))
        self.in_flight += 1
        self.tally.in_flight_most = max(self.tally.in_flight_most, self.in_flight)

    def _end(self, now_s: float, what: tuple[str, float, int, float, float]) -> None:
        answer, sent_s, n_send, latency, drain_s = what
        play, state, clock_s, tally = self.play, self.state, START_S + now_s, self.tally
        self.in_flight -= 1
        if drain_s:
            self.canaries[drain_s] -= 1
        if answer in {"ok", "hung"}:
            self.provider.done()
        if answer == "ok":
            tally.ok += 1
            tally.ends[int(now_s)] += 1
            guards.noted(self.guard, latency)
            reason = self.step.succeeded(state, play.terms, clock_s, n_send, sent_s, clock_s - sent_s)
        elif answer == "refused":
            tally.refused += 1
            reason = self.step.dropped(
                state, play.terms, clock_s, n_send, sent_s, clock_s - sent_s, self.in_flight,
                play.law.retry_after_s, False,
            )  # fmt: skip
        else:
            tally.failed += answer == "failed"
            tally.hung += answer == "hung"
            self.again += play.offered_per_s is not None
            reason = self.step.ended(state, play.terms, clock_s, timed_out=answer == "hung")
        self._changed(now_s, reason)
        if play.breaker:
            bad = answer in {"failed", "hung"}
            change = breakers.reported(
                self.breaker, clock_s, sent_s, counts=answer != "refused", failed=bad, slow=False,
                jitter=self.rng.random(),
            )  # fmt: skip
            if change == "closed":
                self._changed(now_s, restart(state, play.terms, clock_s))

    def _changed(self, now_s: float, reason: str) -> None:
        if reason:
            self.tally.limits.append((now_s, self.state.limit, reason))
        self.tally.limit_most = max(self.tally.limit_most, self.state.limit)

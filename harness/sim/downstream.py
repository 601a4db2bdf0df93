"""Providers behind permits in a simulated world: who calls, who waits for a permit in its slot, who goes back in line.

The decisions are those of the real ones: policy.desk grants and learns, policy.waiting says who waits. A provider has a
quota that moves, of which nobody here knows: what is beyond it is refused, and comes back fast. A task makes one call,
at the end of its time in the slot.

Invariants: a provider never has more in flight than its quota was when it took the last one; who leaves its slot is in
no line.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from random import Random

from harness.policy import desk as desks
from harness.policy import waiting
from harness.policy.breaker import MODES, OPEN
from harness.policy.desk import Desk, Sent
from harness.policy.errors import ErrorClass
from harness.policy.outlook import Outlook
from harness.policy.permits import P0_SCORE, POLL_S, WAKE_MOST, Reading, Report, score
from harness.policy.resources import Live, Resource
from harness.policy.waiting import CALL_PRIOR_S, GiveBack, Refusal
from harness.sim.clock import Clock
from harness.sim.rows import Lease, Task
from harness.sim.scenario import Provider

START_S = 1000.0  # the permits' clock at second 0 of the world: 0 means never
WAKE_S = 0.02  # from the end of a call to the next one's permit, as measured
ASK_LEAST_S = 0.001  # between two questions: of a wait that is over but for a rounding, time would stand still
CALL_WEIGHT = 0.1  # of one call in the mean of what they take, as a worker keeps it
LACKS: Mapping[str, str] = {"breaker": "leave", "blocked": "leave", "requests": "rate", "tokens": "rate"}

Over = Callable[[Lease, Task, float, ErrorClass | None, float | None], None]


@dataclass(slots=True)
class Call:
    """One task's call. `call_s`, `error`: how it goes if it is taken; `began_s`: when the task's slot was taken."""

    lease: Lease
    task: Task
    place: "Place"
    began_s: float
    call_s: float
    error: ErrorClass | None
    since_s: float | None = None  # when it first asked for a permit
    turn: tuple[float, int] = (0.0, 0)
    sent: Sent | None = None
    sent_s: float = 0.0
    asks_again_s: float = 0.0


@dataclass(slots=True)
class Place:
    """One provider: the desk before it, who waits in which order, and what it really takes.

    `used_s`, `useful_s`: slot-seconds of its calls, and of those whose tasks were done in time; `quota_s`: what there
    was to use.
    """

    provider: Provider
    live: Live
    desk: Desk
    line: list[tuple[float, int]] = field(default_factory=list)
    waiting: dict[tuple[float, int], Call] = field(default_factory=dict)
    asked: int = 0
    held: int = 0
    in_flight: int = 0
    call_s: float = CALL_PRIOR_S
    counts: Counter[str] = field(default_factory=Counter)
    used_s: float = 0.0
    useful_s: float = 0.0
    quota_s: float = 0.0
    seen_s: float = 0.0
    until_s: float = inf  # nothing is counted after
    most: int = 0

    def count(self, what: str, now_s: float) -> None:
        """Count something, while it is measured."""
        self.counts[what] += now_s <= self.until_s

    def quota(self, now_s: float) -> int:
        """Return how many calls it takes at once."""
        steps = self.provider.quota
        return steps[bisect_right(steps, now_s, key=lambda step: step[0]) - 1][1]

    def down(self, now_s: float) -> bool:
        """Whether every call fails."""
        return any(from_s <= now_s < until_s for from_s, until_s in self.provider.down)

    def pass_time(self, now_s: float) -> None:
        """Count until now."""
        now_s = min(now_s, self.until_s)
        passed_s, self.seen_s = max(0.0, now_s - self.seen_s), max(now_s, self.seen_s)
        self.used_s += passed_s * self.in_flight
        self.quota_s += passed_s * self.quota(now_s)


class Downstreams:
    """All providers of a cell. `over`: told when a task's time in its slot is over, and with which error."""

    def __init__(self, providers: Mapping[str, Provider], clock: Clock, dice: Random, over: Over) -> None:
        self.places = {name: _place(name, one) for name, one in providers.items()}
        self._clock, self._dice, self._over = clock, dice, over
        self._number = 0

    def begin(
        self, lease: Lease, task: Task, name: str, slot_s: float, call_s: float, error: ErrorClass | None
    ) -> None:
        """A task begins; its call comes when the rest of its time is over."""
        now_s = self._clock.now_s
        call = Call(lease, task, self.places[name], now_s, call_s, error)
        self._clock.at(now_s + max(0.0, slot_s - call_s), self._ask, call)

    def measure(self, until_s: float) -> None:
        """Begin to count anew, until then: what came before isn't measured."""
        for place in self.places.values():
            place.until_s = until_s
            place.pass_time(self._clock.now_s)
            place.counts.clear()
            place.used_s = place.useful_s = place.quota_s = 0.0
            place.most = place.in_flight

    def retry_wait_s(self, name: str) -> float:
        """Take a retry from the budget; return the seconds after which it may be made."""
        place = self.places[name]
        return desks.retry(place.desk, place.live, START_S + self._clock.now_s)

    def in_outage(self, name: str) -> bool:
        """Whether the breaker isn't closed: what failed there says nothing of the task."""
        return MODES[self.places[name].desk.breaker.mode] != "closed"

    def outlook(self) -> Outlook:
        """Return what permits say now, as the leader reads it."""
        now_s = self._clock.now_s
        readings = {name: self._read(place) for name, place in self.places.items()}
        return Outlook(by_task={}, readings=readings, at_s=START_S + now_s, taken_s=now_s)

    # -- inside

    def _read(self, place: Place) -> Reading:
        now_s, it, live = START_S + self._clock.now_s, place.desk, place.live
        self._step(place, -1)
        return Reading(
            at_s=now_s,
            limit=desks.limit_now(it, live),
            proven=desks.proven(it, live),
            ceiling=live.resource.capacity,
            in_flight=place.held,
            waiting=len(place.line),
            waiting_p0=bisect_left(place.line, (P0_SCORE, 0)),
            asked=place.asked,
            mode=desks.mode(live, it.limiter),
            blocked_until_s=desks.blocked_until_s(it, live, now_s),
            breaker=MODES[it.breaker.mode] if live.resource.breaker else "closed",  # type: ignore[arg-type]  # its words
            breaker_until_s=it.breaker.until_s if live.resource.breaker and it.breaker.mode == OPEN else 0.0,
            rate_wait_s=desks.rate_wait_s(it, live, now_s),
        )

    def _step(self, place: Place, priority: int) -> None:
        now_s = START_S + self._clock.now_s
        for _ in desks.step(
            place.desk, place.live, now_s, in_flight=place.held, waiting=len(place.line), priority=priority
        ):
            place.count("changes", self._clock.now_s)

    def _ask(self, call: Call) -> None:
        """Ask for a permit; wait for it in the slot, or give the slot back (rule R4)."""
        place, now_s = call.place, self._clock.now_s
        if call.lease.dead:
            self._leave(call)
            place.asked -= call.since_s is not None
            return
        priority = call.task.priority
        if call.since_s is None:
            self._number += 1
            call.since_s = now_s
            call.turn = (score(priority, 0, START_S + now_s), self._number)
            place.asked += 1
        self._step(place, priority)
        ahead = bisect_left(place.line, call.turn)
        found = desks.binding(
            place.desk,
            place.live,
            START_S + now_s,
            in_flight=place.held,
            ahead=ahead,
            priority=priority,
            tenant_used=0,
            tenant_cap=None,
            tokens=0,
        )
        if found is None:
            self._send(call)
            return
        limit, wait_s = found
        refusal = Refusal(
            lacks=LACKS.get(limit, "room"),  # type: ignore[arg-type]  # one of the three words
            wait_s=waiting.WAIT_MOST_S * 2 if limit == "blocked" and wait_s <= 0 else wait_s,
            ahead=ahead,
            limit_now=desks.limit_now(place.desk, place.live),
            call_s=place.call_s,
        )
        waited_s = now_s - call.since_s
        decision = waiting.decide(refusal, priority=priority, waited_s=waited_s)
        if isinstance(decision, GiveBack):
            self._leave(call)
            place.asked -= 1
            place.count("given_back", now_s)
            self._end(call, ErrorClass.NO_PERMIT, decision.after_s)
            return
        if call.turn not in place.waiting:
            insort(place.line, call.turn)
            place.waiting[call.turn] = call
        self._again(call, now_s + min(POLL_S, max(ASK_LEAST_S, decision.most_s - waited_s)))

    def _again(self, call: Call, at_s: float) -> None:
        if call.asks_again_s <= self._clock.now_s or at_s < call.asks_again_s:
            call.asks_again_s = at_s
            self._clock.at(at_s, self._wake, (call, at_s))

    def _wake(self, what: tuple[Call, float]) -> None:
        call, at_s = what
        if call.asks_again_s == at_s and call.turn in call.place.waiting:  # else it was woken before, or has left
            call.asks_again_s = 0.0
            self._ask(call)

    def _leave(self, call: Call) -> None:
        if call.place.waiting.pop(call.turn, None) is not None:
            del call.place.line[bisect_left(call.place.line, call.turn)]

    def _send(self, call: Call) -> None:
        place, now_s = call.place, self._clock.now_s
        self._leave(call)
        call.sent = desks.let_in(
            place.desk, place.live, START_S + now_s, in_flight=place.held, tokens=0, first=call.task.attempts_used == 0
        )
        call.sent_s = now_s
        place.held += 1
        place.count("sent", now_s)
        if place.down(now_s):
            self._clock.at(now_s + place.provider.refuse_after_s, self._answered, (call, "failed"))
        elif place.in_flight >= place.quota(now_s):
            self._clock.at(now_s + place.provider.refuse_after_s, self._answered, (call, "refused"))
        else:
            place.pass_time(now_s)
            place.in_flight += 1
            place.most = max(place.most, place.in_flight)
            self._clock.at(now_s + call.call_s, self._answered, (call, "ok"))

    def _answered(self, what: tuple[Call, str]) -> None:
        call, answer = what
        place, provider, now_s = call.place, call.place.provider, self._clock.now_s
        assert call.sent is not None
        place.count(answer, now_s)
        error: ErrorClass | None
        match answer:
            case "refused":
                error, after_s = ErrorClass.RATE_LIMIT, provider.retry_after_s or None
                report = Report(outcome="drop", retry_after_s=provider.retry_after_s)
            case "failed":
                error, after_s = ErrorClass.SERVER_ERROR, None
                report = Report(outcome="ignore", failure=True)
            case _:
                place.pass_time(now_s)
                place.in_flight -= 1
                place.call_s += CALL_WEIGHT * (call.call_s - place.call_s)
                error, after_s = call.error, None
                in_time = call.task.deadline_s is None or now_s <= call.task.deadline_s
                if error is None and in_time and now_s <= place.until_s:
                    place.useful_s += call.call_s
                bad = error in (ErrorClass.SERVER_ERROR, ErrorClass.NETWORK, ErrorClass.TIMEOUT)
                report = Report(outcome="ignore" if bad else "success", failure=bad)
        place.held -= 1
        place.asked -= 1
        for _ in desks.told(
            place.desk, place.live, START_S + now_s, call.sent, report, in_flight=place.held, jitter=self._dice.random()
        ):
            place.count("changes", self._clock.now_s)
        room = desks.limit_now(place.desk, place.live) - place.held
        for turn in place.line[: max(0, min(WAKE_MOST, room))]:
            self._again(place.waiting[turn], now_s + WAKE_S)
        self._end(call, error, after_s)

    def _end(self, call: Call, error: ErrorClass | None, after_s: float | None) -> None:
        self._over(call.lease, call.task, self._clock.now_s - call.began_s, error, after_s)


def _place(name: str, provider: Provider) -> Place:
    resource = Resource(
        name=name,
        held="call",
        capacity=provider.capacity,
        limiter=provider.limiter,
        floor=provider.floor,
        start=provider.start,
        p0_reserve=provider.p0_reserve,
    )
    live = Live(resource=resource)
    return Place(provider=provider, live=live, desk=desks.opened(live, START_S, reborn=False))

"""The stage `downstream`: permit -> room for a connection -> call -> report; once each, never sent twice.

One `Downstream` a process. It knows the resources as they are now, asks for permits, waits for them as policy.waiting
says, renews what runs, and counts. Invariants: a permit is held until its call has really returned, also when the task
has left it (ADR 0011); whatever happens between permit and report, the permit ends; no error of Redis gets to a task.
"""

import math
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Literal

from harness.engine.counts import HTTP, PERMIT
from harness.engine.passage import TOKENS_MOST, Passage
from harness.engine.room import Room
from harness.engine.waits import Waits
from harness.kinds import calling
from harness.kinds.errors import NoPermit
from harness.policy import retry_budget, waiting
from harness.policy.permits import RENEW_S, Ask, Granted, Limit, Refused, Report, Want
from harness.policy.pressure import Level
from harness.policy.resources import Live, Resource
from harness.store import pressure, resources, sessions
from harness.store.database import Connection
from harness.store.permits import Permits
from harness.telemetry import logs

LOOK_S = 0.25  # between two looks whether the task should stop, while it waits
BEFORE_LIMIT_S = 0.5  # a wait ends so long before the task's own time limit, which would spend an attempt
CALL_KEEP_RATIO = 0.9  # of the mean length of calls, at each new one
TELL_S = 60.0
IDLE_ROUNDS = 6  # of the renewing thread without a call; then it ends
COUNTED = ("failure", "timed_out", "rate", "overload")  # of a report, beside its outcome
LACKS: Mapping[Limit, Literal["room", "rate", "leave"]] = {
    "concurrency": "room",
    "tenant": "room",
    "redis": "room",
    "requests": "rate",
    "tokens": "rate",
    "breaker": "leave",
    "blocked": "leave",
}

log = logs.get(__name__)


class Downstream:
    """The calls of one process. Safe for threads."""

    def __init__(self, url: str, configured: Mapping[str, Resource], waits: Waits) -> None:
        """`url` of Redis, "" without one: limits are then the process's own share."""
        self.live: Mapping[str, Live] = {name: Live(resource=resource) for name, resource in configured.items()}
        self.level = Level.NORMAL
        self.processes = 1  # that share the limits while Redis is away
        self._url = url
        self._waits = waits
        self._permits: Permits | None = None
        self._rooms: dict[str, Room] = {}
        self._under_way: set[Passage] = set()
        self._call_s: dict[str, float] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._renewing: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def permits(self) -> Permits:
        """The permits, connected when first asked for: after the fork of a prefork child."""
        with self._lock:
            if self._permits is None:
                self._permits = Permits(self._url, lambda: self.live, lambda: self.processes)
            return self._permits

    def wants(self, resources: tuple[str, ...], cost: int | Mapping[str, int]) -> tuple[Want, ...]:
        """Return what a call wants of the resources that are held by calls; what tasks hold, its lease has.

        Raises: ValueError naming a cost that makes no sense.
        """
        costs = dict(cost) if isinstance(cost, Mapping) else dict.fromkeys(resources, cost)
        if odd := costs.keys() - set(resources):
            raise ValueError(f"cost: {', '.join(sorted(odd))} is none of the call's resources")
        for name, tokens in costs.items():
            if not 0 <= tokens <= TOKENS_MOST:
                raise ValueError(f"cost: the tokens of {name} must be from 0 to {TOKENS_MOST:,}, not {tokens!r}")
        held = [name for name in resources if (live := self.live.get(name)) and live.resource.held == "call"]
        return tuple(Want(name, int(costs.get(name, 0))) for name in held)

    # 1. Permit, 2. room

    def enter(self, ask: Ask, look: Callable[[], None], *, left_s: Callable[[], float], patient: bool) -> Passage:
        """Get the permits of a call, and room for its connection; end the passage with `run`, `arun` or `undo`.

        `look` is called while waiting; `left_s`: until the task's time limit; `patient`: P0 may wait for its turn.
        Raises: NoPermit when waiting isn't worth the slot; what `look` raises. Nothing is held then.
        """
        if not ask.wants:
            return Passage(None, look=look, learns=self.learns, over=self._over)
        lives = [live for want in ask.wants if (live := self.live.get(want.resource)) is not None]
        most_s = min((live.resource.timeout_s for live in lives), default=math.inf)
        granted = self._permit(ask, look, left_s, patient)
        passage = Passage(granted, look=look, learns=self.learns, over=self._over, most_s=most_s)
        try:
            for want in ask.wants:
                room = self._room(want.resource)
                room.enter(look)
                passage.rooms.append(room)
        except BaseException:
            passage.undo()
            raise
        self._begin(passage)
        return passage

    def _permit(self, ask: Ask, look: Callable[[], None], left_s: Callable[[], float], patient: bool) -> Granted:
        permits, began_s = self.permits, time.monotonic()
        priority = ask.priority if patient else max(1, ask.priority)
        refused = False
        try:
            while True:
                look()
                answer = permits.acquire(ask)
                waited_s = time.monotonic() - began_s
                if isinstance(answer, Granted):
                    self._note_permit(ask, waited_s)
                    return answer
                refused = True
                decision = waiting.decide(
                    self._refusal(answer),
                    priority=priority,
                    waited_s=waited_s,
                    left_s=left_s() - BEFORE_LIMIT_S,
                )
                if isinstance(decision, waiting.GiveBack):
                    self._count(answer.resource, f"refused_{answer.limit}")
                    raise _no_permit(answer, decision.after_s)
                permits.wait(ask, min(LOOK_S, max(0.0, decision.most_s - waited_s)))
        except BaseException:
            if refused:
                permits.give_up(ask)
            raise

    def _refusal(self, answer: Refused) -> waiting.Refusal:
        return waiting.Refusal(
            lacks=LACKS[answer.limit],
            # A block without a known end (nothing may use it at all) isn't worth a slot.
            wait_s=waiting.WAIT_MOST_S * 2 if answer.limit == "blocked" and answer.wait_s <= 0 else answer.wait_s,
            ahead=answer.ahead,
            limit_now=answer.limit_now,
            call_s=self._call_s.get(answer.resource, waiting.CALL_PRIOR_S),
        )

    def _room(self, resource: str) -> Room:
        with self._lock:
            if resource not in self._rooms:
                self._rooms[resource] = Room(
                    calling.CONNECTIONS, lambda waited_s: self._waits.note(resource, waited_s, what=HTTP)
                )
            return self._rooms[resource]

    # 3. Call, 4. report

    def _begin(self, passage: Passage) -> None:
        with self._lock:
            self._under_way.add(passage)
            if self._renewing is None:
                self._renewing = threading.Thread(target=self._renew, name="renew", daemon=True)
                self._renewing.start()

    def _over(self, passage: Passage, granted: Granted, met: Report, told: Report) -> None:
        """A call has ended: the permit goes. `met` is counted here, `told` goes to all processes."""
        with self._lock:
            self._under_way.discard(passage)
            if met.outcome == "success":
                mean_s = self._call_s.get(met.resource, met.latency_s)
                self._call_s[met.resource] = CALL_KEEP_RATIO * mean_s + (1 - CALL_KEEP_RATIO) * met.latency_s
            for what in (met.outcome, *(name for name in COUNTED if getattr(met, name))):
                self._counts[met.resource, what] += 1
        for room in passage.rooms:
            room.leave()
        self.permits.finish(granted, told)

    def learns(self, resource: str) -> bool:
        """Whether anything of a resource learns from how its calls end.

        Of one that doesn't (fixed, no breaker, no rates) nothing is told: behind such a one stand hosts of tenants'
        own choice, and what one of them answers must not close it for everyone.
        """
        live = self.live.get(resource)
        if live is None:
            return False
        its = live.resource
        return its.limiter != "fixed" or its.breaker or its.rpm is not None or its.tpm is not None

    # After an attempt

    def in_outage(self, resource: str) -> bool:
        """Whether a resource's breaker isn't closed: what failed there says nothing of the task."""
        found = self.permits.read([resource]) if self.learns(resource) else None
        # Redis is away: the breaker is taken for closed.
        return found is not None and resource in found and found[resource].breaker != "closed"

    def retry_wait_s(self, resource: str, priority: int) -> float:
        """Take a retry from the resource's budget, if the priority may; return the seconds until it may be made."""
        if (wait_s := retry_budget.held_back_s(self.level, priority, random.random())) > 0:
            return wait_s
        return self.permits.take_retry(resource) if self.live.get(resource) is not None else 0.0

    def ended(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Tell that attempts (task, release_no) that have asked for permits are over, and none of their calls runs."""
        self.permits.ended(attempts)

    # Beside the calls

    def read(self, connection: Connection, configured: Mapping[str, Resource], session: uuid.UUID) -> None:
        """Read the level, the resources as it leaves them, and how many processes share them. Raises: psycopg.Error."""
        before, now = self.live, resources.effective(connection, configured)
        self.level = pressure.level(connection)
        now = {
            name: replace(live, resource=retry_budget.under(live.resource, self.level)) for name, live in now.items()
        }
        # What hasn't changed stays the same object, which is what Permits goes by.
        self.live = {name: before[name] if before.get(name) == live else live for name, live in now.items()}
        self.processes = sessions.sharing(connection, session)

    def facts(self) -> dict[str, dict[str, float]]:
        """Return, by resource, what this process counted since it began, and how it stands now."""
        with self._lock:
            counts = dict(self._counts)
            rooms = {name: (room.in_use, room.waiting) for name, room in self._rooms.items()}
            call_s = dict(self._call_s)
        found: dict[str, dict[str, float]] = {}
        for (resource, what), n in sorted(counts.items()):
            found.setdefault(resource, {})[what] = n
        for resource, (in_use, queued) in rooms.items():
            found.setdefault(resource, {}).update(connections_in_use=in_use, connections_waited_for=queued)
        for resource, mean_s in call_s.items():
            found.setdefault(resource, {})["call_s"] = round(mean_s, 4)
        for resource, told in self._waits.read().items():
            found.setdefault(resource, {})["connection_wait_p95_s"] = told["p95_s"]
        return found

    def counted(self) -> dict[str, dict[str, list[float]]]:
        """Return what came of calls since this process began, for the metrics: `calls:<what>`, by resource."""
        found: dict[str, dict[str, list[float]]] = {}
        with self._lock:
            for (resource, what), n in self._counts.items():
                found.setdefault(f"calls:{what}", {})[resource] = [float(n)]
        return found

    def close(self) -> None:
        """Stop renewing, and drop the connections to Redis."""
        self._closed.set()
        if self._renewing is not None and self._renewing is not threading.current_thread():
            self._renewing.join(1.0)
        if self._permits is not None:
            self._permits.close()

    def _renew(self) -> None:
        """Keep the permits of running calls alive, and let an emptied Redis learn of them."""
        idle, told_s = 0, time.monotonic()
        while not self._closed.wait(RENEW_S):
            if self._under_way:
                idle = 0
                self.permits.renew()
            else:
                idle += 1
            if time.monotonic() - told_s >= TELL_S:
                told_s = time.monotonic()
                log.info("calls_counted", resources=self.facts())
            with self._lock:
                if idle >= IDLE_ROUNDS and not self._under_way:
                    self._renewing = None
                    return

    def _note_permit(self, ask: Ask, waited_s: float) -> None:
        for want in ask.wants:
            self._waits.counts.waited(PERMIT, want.resource, waited_s)
            self._count(want.resource, "granted")
            if waited_s >= LOOK_S / 10:
                self._count(want.resource, "waited")

    def _count(self, resource: str, what: str) -> None:
        with self._lock:
            self._counts[resource, what] += 1


def _no_permit(answer: Refused, after_s: float) -> NoPermit:
    error = NoPermit(f"{answer.resource}: {_words(answer)}", retry_after_s=after_s)
    error.resource = answer.resource
    return error


def _words(answer: Refused) -> str:
    wait = f"{answer.wait_s:.1f} s more" if answer.wait_s > 0 else "a while"
    match answer.limit:
        case "concurrency":
            return f"limited to {answer.limit_now} calls at a time; {answer.ahead} wait before this one"
        case "tenant":
            return f"the tenant has as many calls there as it may ({answer.limit_now} for all)"
        case "breaker":
            return f"its breaker is open for {wait}"
        case "blocked":
            return f"blocked for {wait}"
        case "requests" | "tokens":
            return f"its {answer.limit} a minute are used up for {wait}"
        case "redis":
            return f"Redis is away, and this process's own share is {answer.limit_now} calls at a time"

"""A provider that refuses everything for minutes: permits, slots and releases in one loop, in virtual time.

What asks, waits and goes back is the policy's own (limiter, R3, R4, readings a quarter of a second old); the provider,
the workers' delays and the clock are the test's.
"""

from dataclasses import dataclass
from random import Random

import pytest

from harness.policy.calls import Trend, allow, learn
from harness.policy.permits import Ask, Limit, Report, Want
from harness.policy.resources import Live, Resource
from harness.policy.waiting import GiveBack, Refusal, decide
from tests.conformance.permit_book import Book

STEP_S = 0.05
READ_S = 0.25
START_S = 1_000.0
REFUSAL_S = 0.05
QUOTA = 50
CALL_S = 6.0
LLM = "llm:default"
FULL: tuple[Limit, ...] = ("concurrency", "tenant", "redis")


@dataclass
class Task:
    """One lease. `asks_s`: when it asks for the first time; `since_s`: waits since; `ends_s`: its call's end."""

    ask: Ask
    asks_s: float
    since_s: float | None = None
    ends_s: float | None = None
    refused: bool = False
    gone_s: float | None = None  # settled, and its slot free, at


class Loop:
    """A backlog that never ends, one resource, a leader."""

    def __init__(self, *, retry_after_s: float, straggler: bool, seed: int) -> None:
        self.dice = Random(seed)
        self.live = {LLM: Live(resource=Resource(name=LLM, held="call", capacity=60, limiter="csl", start=50))}
        self.retry_after_s = retry_after_s
        self.book = Book()
        self.now_s = START_S
        self.refusing = False
        self.tasks: list[Task] = []
        self.trend: Trend | None = None
        self.read_s = 0.0
        self.released = self.sent = self.given_back = 0
        self.used_s = 0.0
        if straggler:
            task = self._release()
            self.book.acquire(task.ask, "p", self.live, self.now_s)
            task.ends_s = START_S + 10_000.0

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += STEP_S
            self._lead()
            for task in list(self.tasks):
                self._live_on(task)
            self.used_s += STEP_S * self._at_provider()

    def _lead(self) -> None:
        if self.now_s >= self.read_s + READ_S:
            self.read_s = self.now_s
            self.reading = self.book.read(self.live[LLM], self.now_s)
            self.trend = learn(self.trend, self.reading, released=len(self.tasks))
        assert self.trend is not None
        while len(self.tasks) < allow(self.reading, self.trend, self.now_s).most:
            self._release()

    def _release(self) -> Task:
        self.released += 1
        asks_s = self.now_s + self.dice.uniform(0.0, 0.1)
        ask = Ask(
            member=f"{self.released}:1:1", tenant=1, priority=2, calls_done=0, since_s=asks_s, wants=(Want(LLM),),
            waits=True,
        )  # fmt: skip
        self.tasks.append(Task(ask, asks_s))
        return self.tasks[-1]

    def _live_on(self, task: Task) -> None:
        if task.gone_s is not None:
            if task.gone_s <= self.now_s:
                self.tasks.remove(task)
        elif task.ends_s is not None:
            if task.ends_s <= self.now_s:
                drop = Report(outcome="drop", retry_after_s=self.retry_after_s)
                report = drop if task.refused else Report(outcome="success", latency_s=1.0)
                self.book.finish(task.ask.member, report, self.live, self.now_s, 0.0)
                self._end(task)
        elif task.asks_s <= self.now_s:
            self._ask(task)

    def _ask(self, task: Task) -> None:
        answer = self.book.acquire(task.ask, "p", self.live, self.now_s)
        if answer[0] == "granted":
            task.refused = self.refusing or self._at_provider() >= QUOTA
            task.ends_s = self.now_s + (REFUSAL_S if task.refused else self.dice.expovariate(1.0 / CALL_S))
            self.sent += 1
            return
        _, _, limit, wait_s, _, ahead, limit_now = answer
        assert limit in (*FULL, "blocked") and isinstance(wait_s, float)
        assert isinstance(ahead, int) and isinstance(limit_now, int)
        refusal = Refusal(
            lacks="room" if limit in FULL else "leave", wait_s=wait_s, ahead=ahead, limit_now=limit_now, call_s=CALL_S
        )
        task.since_s = self.now_s if task.since_s is None else task.since_s
        if isinstance(decide(refusal, priority=2, waited_s=self.now_s - task.since_s), GiveBack):
            self.given_back += 1
            self.book.give_up(task.ask, "p", self.live, self.now_s)
            self._end(task)

    def _end(self, task: Task) -> None:
        self.book.ended(task.ask.task, self.live, self.now_s)
        task.gone_s = self.now_s + self.dice.uniform(0.0, 0.1)

    def _at_provider(self) -> int:
        return sum(1 for task in self.tasks if task.ends_s is not None and task.gone_s is None and not task.refused)


@pytest.mark.parametrize("straggler", [False, True])
@pytest.mark.parametrize("retry_after_s", [0.0, 20.0])
@pytest.mark.parametrize("seed", range(2))
def test_releases_go_at_the_pace_of_the_calls_that_try_it_and_all_is_used_again_afterwards(
    retry_after_s: float, straggler: bool, seed: int
) -> None:
    loop = Loop(retry_after_s=retry_after_s, straggler=straggler, seed=seed)
    loop.run(60.0)
    loop.refusing = True
    loop.run(40.0)
    released, sent = loop.released, loop.sent
    loop.run(120.0)
    # One call is tried each 5 s, or each 20: its task is released, and at most one that waits beside it.
    assert loop.sent - sent >= (4 if retry_after_s else 10)
    assert loop.released - released <= 60
    loop.refusing = False
    loop.run(75.0)
    loop.used_s = 0.0
    loop.run(120.0)
    assert loop.used_s >= 0.95 * 120.0 * QUOTA


def test_one_lease_too_many_is_replaced_once_a_second_at_most() -> None:
    """As after an attempt whose end nobody told: it counts as between two calls until it is forgotten."""
    loop = Loop(retry_after_s=0.0, straggler=True, seed=3)
    loop.refusing = True
    loop.run(40.0)
    for place in loop.book.places.values():
        place.asked |= {f"{lost}:1": loop.now_s + 900.0 for lost in range(-3, 0)}
    released = loop.released
    loop.run(60.0)
    assert loop.released - released <= 4 * 60

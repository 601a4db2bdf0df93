"""The whole loop in virtual time: a provider with a quota, the limiter that learns it, slots, and who adds workers."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from harness.policy.autoscale import EVERY_S, Advice, Look, Memory, Runs, Seen, learn, pools, size, step
from harness.policy.limits import csl
from harness.policy.limits.state import MODES, Terms, begin, now_limit
from harness.policy.pressure.facts import Ended, Facts, Held, Waits
from harness.policy.settings import Pool, Topology

DT_S = 0.1
CALL_S = 2.0
REFUSAL_S = 0.1
STARTS_S = 6.0  # a worker process
BACKLOG = 100_000
SIGNATURE = "llm=1"


@dataclass
class World:
    """A pool whose tasks are one call each, towards a provider that takes `quota` at a time."""

    each: int
    quota: int
    ceiling: int
    workers: int = 1
    now_s: float = 1.0
    starting: list[float] = field(default_factory=list)
    calls: list[tuple[float, int]] = field(default_factory=list)  # (sent, in flight then), oldest first
    refusals: list[tuple[float, float, int]] = field(default_factory=list)  # (answered, sent, in flight then)
    ended: list[Ended] = field(default_factory=list)
    done: int = 0
    waiting: int = 0
    counts: list[tuple[float, int]] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    phi: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.terms = Terms(floor=1, ceiling=self.ceiling)
        self.limiter = begin(self.terms, self.now_s)
        pool = Pool(name="p", workers="threads", slots=self.each, connections=1, prefetch_multiplier=1, events=False)
        self.topology = Topology(database_connections=10_000, pools={"p": pool}, resources={})

    @property
    def in_flight(self) -> int:
        return len(self.calls) + len(self.refusals)

    def run(self, for_s: float) -> None:
        until_s = self.now_s + for_s
        looked = round(self.now_s / EVERY_S)
        while self.now_s < until_s:
            self.now_s += DT_S
            self._ends()
            self._sends()
            if round(self.now_s / EVERY_S) > looked:
                looked = round(self.now_s / EVERY_S)
                self._look()

    def _ends(self) -> None:
        while self.calls and self.now_s - self.calls[0][0] >= CALL_S:
            sent_s, before = self.calls.pop(0)
            csl.succeeded(self.limiter, self.terms, self.now_s, before, sent_s, CALL_S)
            self.done += 1
            self._note("succeed", "", CALL_S)
        while self.refusals and self.now_s >= self.refusals[0][0]:
            _, sent_s, before = self.refusals.pop(0)
            csl.dropped(
                self.limiter, self.terms, self.now_s, before, sent_s, REFUSAL_S, self.in_flight, 0.0, overload=False
            )
            self._note("postpone", "rate_limit", REFUSAL_S)

    def _note(self, verdict: str, error: str, slot_s: float) -> None:
        self.ended.append(Ended("p", 2, 1, SIGNATURE, "k", slot_s, verdict, error, self.now_s))

    def _sends(self) -> None:
        live = [one for one in self.starting if one <= self.now_s]
        self.workers += len(live)
        self.starting = [one for one in self.starting if one > self.now_s]
        csl.tick(self.limiter, self.terms, self.now_s, self.in_flight, self.waiting)
        slots = self.workers * self.each
        while self.in_flight < min(slots, csl.seen(self.limiter, self.terms, self.now_s, 2)):
            before = self.in_flight
            csl.sent(self.limiter, self.terms, self.now_s, before)
            if len(self.calls) >= self.quota:
                self.refusals.append((self.now_s + REFUSAL_S, self.now_s, before))
            else:
                self.calls.append((self.now_s, before))
        self.waiting = 1 if slots > self.in_flight else 0  # the planner lets one wait for a permit (rule R3)

    def _look(self) -> None:
        self.ended = [one for one in self.ended if self.now_s - one.age_s < 60.0]
        leases = self.in_flight + self.waiting
        look = Look(
            facts=Facts(
                slots={"p": self.workers * self.each},
                waiting=(Waits("p", 2, SIGNATURE, BACKLOG),),
                held=(Held("p", SIGNATURE, leases, CALL_S),) if leases else (),
                ended=tuple(
                    Ended("p", 2, 1, SIGNATURE, "k", one.slot_s, one.verdict, one.error, self.now_s - one.age_s)
                    for one in self.ended
                ),
            ),
            seen={
                "llm": Seen(
                    held="call",
                    limit=min(self.ceiling, int(max(now_limit(self.limiter), self.limiter.proven))),
                    ceiling=self.ceiling,
                    adaptive=True,
                    mode=MODES[self.limiter.mode],
                    in_flight=self.in_flight,
                    waiting=self.waiting,
                )
            },
            runs=[Runs(pools={"p": self.each}, connections=3)] * self.workers,
        )
        self.phi = learn(self.phi, look)
        pool = pools(self.topology, look, self.phi)["p"]
        self.memory, advice = step(self.memory, pool.crew, size(pool.crew, pool.work, pool.downstreams), EVERY_S)
        self._apply(advice)

    def _apply(self, advice: Advice) -> None:
        has = self.workers + len(self.starting)
        if advice.desired > has and not advice.holds:
            self.starting += [self.now_s + STARTS_S] * (advice.desired - has)
        elif advice.desired < self.workers:
            self.workers = advice.desired
        self.counts.append((self.now_s, self.workers + len(self.starting)))


def best(each: int, quota: int) -> int:
    """Return the smallest count that gives 95 % of the best throughput."""
    return next(n for n in range(1, 200) if min(quota, n * each) >= 0.95 * quota)


def turns(counts: list[tuple[float, int]]) -> int:
    moves = [after > before for (_, before), (_, after) in pairwise(counts) if before != after]
    return sum(one is not other for one, other in pairwise(moves))


@pytest.mark.parametrize(
    ("each", "quota", "ceiling", "within_s"),
    [
        *[(16, *one, 60.0) for one in ((20, 50), (50, 50), (50, 200), (35, 40))],
        *[(8, *one, 60.0) for one in ((20, 50), (50, 50), (35, 40))],
        # Twelve from one, or a limit of which a quarter is known: doubling takes longer, or goes too far once.
        (8, 50, 200, 80.0),
        *[(4, *one, 85.0) for one in ((20, 50), (50, 50), (50, 200), (35, 40))],
    ],
)
def test_none_is_added_while_429_is_answered_and_soon_after_it_is_the_best_count(
    each: int, quota: int, ceiling: int, within_s: float
) -> None:
    world = World(each=each, quota=0, ceiling=ceiling)
    world.run(120.0)
    assert {count for _, count in world.counts} == {1}
    world.quota = quota
    began_s = world.now_s
    world.run(within_s)
    wanted = best(each, quota)
    assert abs(world.counts[-1][1] - wanted) <= 1, (wanted, world.counts)
    world.run(600.0)
    after = [one for one in world.counts if one[0] > began_s + within_s]
    assert {abs(count - wanted) <= 1 for _, count in after} == {True}
    assert turns([one for one in world.counts if one[0] > began_s]) <= 1
    assert world.done >= 0.9 * quota / CALL_S * 600.0


def test_a_quota_that_falls_adds_nobody_and_one_that_rises_again_is_used() -> None:
    world = World(each=8, quota=40, ceiling=100)
    world.run(120.0)
    assert abs(world.counts[-1][1] - best(8, 40)) <= 1
    world.quota = 8
    before = world.counts[-1][1]
    began_s = world.now_s
    world.run(180.0)
    assert max(count for at_s, count in world.counts if at_s > began_s) <= before
    world.quota = 80
    world.run(600.0)
    assert abs(world.counts[-1][1] - best(8, 80)) <= 1

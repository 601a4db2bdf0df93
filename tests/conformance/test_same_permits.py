"""The scripts in Redis and policy.desk give the same permits, refusals and states, number for number."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
import redis
from django.conf import settings

from harness.policy.breaker import BUCKETS
from harness.policy.desk import Desk
from harness.policy.permits import PREFIX, Ask, Report, Want
from harness.policy.resources import Live, Resource
from harness.store.permits import scripts
from harness.store.permits.scripts import FIELDS
from tests.conformance.permit_book import Book

STEPS = 300
START_S = 1_796_000_000.0
TENANTS = (1, 2, 3)


@dataclass(frozen=True, kw_only=True)
class RateHeaders:
    limit_requests: int | None = None
    remaining_requests: int | None = None
    limit_tokens: int | None = None
    remaining_tokens: int | None = None


@pytest.fixture
def client() -> Iterator[Any]:
    with redis.Redis.from_url(settings.BROKER_URL) as client:
        yield client
        for found in client.scan_iter(f"{PREFIX}*"):
            client.delete(found)


@dataclass
class Played:
    """One sequence on both sides at once."""

    client: Any
    dice: Random
    lives: dict[str, Live]
    process: str = "p"

    def __post_init__(self) -> None:
        self.book = Book()
        self.scripts = {name: self.client.register_script(scripts.text(name)) for name in scripts.NAMES}
        self.now_s = START_S
        self.held: list[tuple[str, tuple[Want, ...]]] = []
        self.waiting: list[Ask] = []
        self.asks = 0

    def play(self) -> None:
        for _ in range(STEPS):
            self.now_s += self.dice.choice((0.0, 0.001, 0.05, 0.3, 1.0, 7.0)) * self.dice.random()
            self.dice.choices(
                (self.ask, self.finish, self.give_up, self.end, self.read, self.retry, self.override),
                (50, 36, 2, 2, 5, 2, 1),
            )[0]()
            self.compare()

    def ask_of(self, name: str) -> None:
        self.asks += 1
        ask = Ask(
            member=f"{self.asks}:1:1",
            tenant=1,
            priority=1,
            calls_done=0,
            since_s=self.now_s,
            wants=(Want(name),),
            waits=False,
        )
        self._ask(ask)

    def succeed(self, latency_s: float) -> None:
        member, wants = self.held.pop()
        self._finish(member, wants, Report(outcome="success", latency_s=latency_s), 0.5)

    def ask(self) -> None:
        again = self.waiting and self.dice.random() < 0.6
        ask = self.dice.choice(self.waiting) if again else self._new()
        if again:
            self.waiting.remove(ask)
        self._ask(ask)

    def _ask(self, ask: Ask) -> None:
        rest = [
            config(self.lives[want.resource], self.lives[want.resource].tenant_cap(ask.tenant), want.tokens)
            for want in ask.wants
        ]
        question = scripts.question(ask, again=False)
        args = [repr(self.now_s), ask.member, ask.task, self.process, ask.tenant, question]
        answer = self.run("acquire", [want.resource for want in ask.wants], [*args, *rest])
        found = self.book.acquire(ask, self.process, self.lives, self.now_s)
        names = [want.resource for want in ask.wants]
        if answer[0] == b"1":
            assert found == ("granted", {name: int(answer[3 + 2 * at]) for at, name in enumerate(names)})
            self.held.append((ask.member, ask.wants))
            return
        assert found == (
            "refused",
            names[int(answer[2]) - 1],
            answer[3].decode(),
            float(answer[4]),
            float(answer[5]),
            int(answer[6]),
            int(answer[7]),
        )
        if ask.waits:
            self.waiting.append(ask)

    def finish(self) -> None:
        if not self.held:
            return
        member, wants = self.dice.choice(self.held)
        if self.dice.random() < 0.95:  # else it will be told twice
            self.held.remove((member, wants))
        self._finish(member, wants, self._report(wants), self.dice.random())

    def _finish(self, member: str, wants: tuple[Want, ...], report: Report, jitter: float) -> None:
        names = [want.resource for want in wants]
        about = names.index(report.resource) + 1 if report.resource else 1
        task = member.rpartition(":")[0]
        args = [repr(self.now_s), member, task, scripts.report(report, about=about, jitter=jitter)]
        rest = [config(self.lives[name], None, (report.tokens or {}).get(name, -1)) for name in names]
        assert self.run("finish", names, [*args, *rest]) == self.book.finish(
            member, report, self.lives, self.now_s, jitter
        )

    def give_up(self) -> None:
        asks = [*self.waiting]
        if not asks:
            return
        ask = self.dice.choice(asks)
        self.waiting.remove(ask)
        names = [want.resource for want in ask.wants]
        args = [repr(self.now_s), ask.member, ask.task, self.process]
        found = self.run("give_up", names, [*args, *(config(self.lives[name]) for name in names)])
        assert found == self.book.give_up(ask, self.process, self.lives, self.now_s)

    def end(self) -> None:
        if not self.held:
            return
        task = self.dice.choice(self.held)[0].rpartition(":")[0]
        self.held = [(member, wants) for member, wants in self.held if member.rpartition(":")[0] != task]
        args = [repr(self.now_s), task, *map(config, self.lives.values())]
        assert self.run("ended", list(self.lives), args) == self.book.ended(task, self.lives, self.now_s)

    def read(self) -> None:
        rows = self.run("read", list(self.lives), [repr(self.now_s), *map(config, self.lives.values())])
        for row, live in zip(rows, self.lives.values(), strict=True):
            reading = self.book.read(live, self.now_s)
            assert [one.decode() if isinstance(one, bytes) else one for one in row] == [
                repr_of(getattr(reading, name)) for name in reading.__slots__
            ]

    def retry(self) -> None:
        live = self.dice.choice(list(self.lives.values()))
        found = self.run("retry", [live.resource.name], [repr(self.now_s), config(live)])
        assert float(found) == self.book.retry(live, self.now_s)

    def override(self) -> None:
        name = self.dice.choice(list(self.lives))
        live = self.lives[name]
        capacity = self.dice.choice((0, 2, 5, 12, 30))
        self.lives[name] = replace(
            live,
            resource=replace(live.resource, capacity=capacity, p0_reserve=min(live.resource.p0_reserve, capacity)),
        )

    def compare(self) -> None:
        for name, place in self.book.places.items():
            raw = self.client.get(scripts.key(name) + scripts.STATE)
            got = dict(zip(FIELDS, struct.unpack(f"<{len(FIELDS)}d", raw), strict=True))
            assert got.pop("waited") or not place.line, name
            assert got == state_of(place.desk, place.sweep_s), name
            assert dict(self.client.zrange(scripts.key(name) + ":held", 0, -1, withscores=True)) == encoded(place.held)
            assert dict(self.client.zrange(scripts.key(name) + ":line", 0, -1, withscores=True)) == encoded(place.line)

    def noted(self) -> list[tuple[str, float, int, int, str]]:
        rows = self.client.xrange(f"{PREFIX}changes")
        return [
            (row[b"r"].decode(), float(row[b"t"]), int(row[b"o"]), int(row[b"n"]), row[b"why"].decode())
            for _, row in rows
        ]

    def run(self, name: str, resources: list[str], args: list[Any]) -> Any:
        return self.scripts[name](keys=[scripts.key(resource) for resource in resources], args=args)

    def _new(self) -> Ask:
        self.asks += 1
        some = self.dice.sample(sorted(self.lives), self.dice.choice((1, 1, 1, 2)))
        return Ask(
            member=f"{self.asks // 3}:1:{self.asks}",
            tenant=self.dice.choice(TENANTS),
            priority=self.dice.choice((0, 1, 1, 2, 3)),
            calls_done=self.dice.choice((0, 0, 1, 5, 9999)),
            since_s=self.now_s,
            wants=tuple(Want(name, self.dice.choice((0, 10, 400, 5000))) for name in some),
            waits=self.dice.random() < 0.8,
            first=self.dice.random() < 0.8,
        )

    def _report(self, wants: tuple[Want, ...]) -> Report:
        kind = self.dice.choices(
            ("success", "full", "rate", "overload", "failure", "timeout", "ignore"), (60, 8, 4, 2, 8, 4, 4)
        )[0]
        tokens = {want.resource: self.dice.choice((0, 50, want.tokens)) for want in wants if self.dice.random() < 0.7}
        headers = None
        if self.dice.random() < 0.3:
            headers = RateHeaders(
                limit_requests=self.dice.choice((None, 30, 5000)),
                remaining_requests=self.dice.choice((None, 0, 7)),
                limit_tokens=self.dice.choice((None, 20000)),
                remaining_tokens=self.dice.choice((None, 0, 900)),
            )
        return Report(
            outcome="success"
            if kind == "success"
            else "ignore"
            if kind in ("failure", "timeout", "ignore")
            else "drop",
            resource=self.dice.choice(("", wants[-1].resource)),
            tokens=tokens,
            retry_after_s=self.dice.choice((0.0, 0.0, 2.0, 20.0, 45.0)),
            rate=kind == "rate",
            overload=kind == "overload",
            failure=kind in ("failure", "timeout", "overload"),
            timed_out=kind == "timeout",
            latency_s=self.dice.choice((0.0, 0.2, 5.0)),
            headers=headers,
        )


def state_of(desk: Desk, sweep_s: float) -> dict[str, float]:
    found: dict[str, float] = {
        "born_s": desk.born_s,
        "sweep_s": sweep_s,
        "door_s": desk.door_s,
        "door": desk.door,
        "head_s": desk.head_s,
        "head": float(desk.head == "tokens"),
        "stop_s": desk.stop_s,
    }
    found |= {name: getattr(desk.limiter, name) for name in desk.limiter.__slots__}
    breaker = desk.breaker
    found |= {f"b_{name}": getattr(breaker, name) for name in ("mode", "since_s", "until_s", "k", "streak")}
    found |= {f"b_probes_s{at or ''}": value for at, value in enumerate(breaker.probes_s)}
    found |= {"g_window_s": desk.guard.window_s, "g_calls": desk.guard.calls}
    now = breaker.bucket % BUCKETS
    found |= {"w_number": breaker.bucket, "w_calls": breaker.calls[now], "w_failures": breaker.failures[now]}
    found["w_calls_before"] = sum(breaker.calls) - breaker.calls[now]
    found["w_failures_before"] = sum(breaker.failures) - breaker.failures[now]
    for letter, part in (("r", desk.requests), ("t", desk.tokens), ("u", desk.budget)):
        found |= {f"{letter}_{name}": getattr(part, name) for name in part.__slots__}
    return found


def config(live: Live, cap: int | None = None, tokens: float = -1) -> bytes:
    return scripts.config(live) + scripts.asked_of(cap, tokens, 0.0)


def encoded(scores: dict[str, float]) -> dict[bytes, float]:
    return {member.encode(): value for member, value in scores.items()}


def repr_of(value: object) -> object:
    return f"{value:.17g}" if isinstance(value, float) else value


CASES: dict[str, dict[str, Any]] = {
    "csl": {"limiter": "csl", "capacity": 12},
    "csl at once from a start": {"limiter": "csl", "capacity": 30, "start": 20, "breaker": False, "p0_reserve": 1},
    "fixed": {"capacity": 6, "tenant_cap": 3},
    "fixed with rates": {"capacity": 20, "rpm": 60.0, "tpm": 30_000.0, "p0_reserve": 2},
    "csl with tokens": {"limiter": "csl", "capacity": 10, "tpm": 9_000.0},
    "csl with requests": {"limiter": "csl", "capacity": 10, "rpm": 90.0, "retry_per_s": 0.1},
    "aimd": {"limiter": "aimd", "capacity": 15, "floor": 2},
    "gradient": {"limiter": "gradient", "capacity": 15},
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", CASES)
def test_redis_and_the_pure_policy_give_the_same_permits(client: Any, case: str, seed: int) -> None:
    values = CASES[case]
    lives = {
        "a": Live(resource=Resource(name="a", held="call", timeout_s=20.0, **values)),
        "b": Live(resource=Resource(name="b", held="call", capacity=8, limiter="csl"), proven=seed * 6 or None),
    }
    played = Played(client, Random(f"{case}{seed}"), lives)
    played.play()
    assert played.noted() == played.book.changes


def test_the_latency_guard_is_the_same_over_its_windows(client: Any) -> None:
    lives = {"a": Live(resource=Resource(name="a", held="call", capacity=40, limiter="csl", start=40), proven=40)}
    played = Played(client, Random(7), lives)
    trims = []
    for window in range(40):
        for _ in range(70):
            played.now_s += 0.5
            played.ask_of("a")
            played.now_s += 0.001
            played.succeed(
                latency_s=(1.0 if window < 14 or window > 24 else 2.4) * played.dice.lognormvariate(0.0, 0.2)
            )
        played.read()
        played.compare()
        trims.append(played.book.places["a"].desk.limiter.trim)
    assert played.noted() == played.book.changes
    assert {reason for *_, reason in played.book.changes} >= {"slow", "recovered"} and max(trims) > min(trims) == 0


def test_a_permit_that_nobody_renews_expires_and_one_that_is_renewed_does_not(client: Any) -> None:
    lives = {"a": Live(resource=Resource(name="a", held="call", capacity=1, timeout_s=20.0))}
    played = Played(client, Random(1), lives)
    played.ask_of("a")
    for wait_s, renewed in ((24.9, True), (24.9, False)):
        played.now_s += wait_s
        played.read()
        assert played.book.read(lives["a"], played.now_s).in_flight == 1
        if renewed:
            member = played.held[0][0]
            assert played.run("renew", [], [repr(played.now_s), member, member.rpartition(":")[0], 25.0]) == []
            played.book.places["a"].held[member] = played.now_s + 25.0
            assert played.run("renew", [], [repr(played.now_s), "8:1:1", "8:1", 25.0]) == [
                1
            ]  # it doesn't know that one
    played.now_s += 0.2
    played.compare()
    played.ask_of("a")
    assert len(played.held) == 2

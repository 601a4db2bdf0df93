"""What happens when: the work that clients bring and the faults that hit it, both made from the seed alone.

Faults are dealt from a deck that holds each kind as often as its weight, shuffled anew each time it is used up: so
every kind of process is hit in every few minutes, in an order that the seed decides. Connections are cut at statements
beside that, at a rate of their own. No I/O, no clock.
"""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from benchmarks.chaos import sabotage
from benchmarks.chaos.births import FAMILY, QUESTION, TALK
from harness.policy.scopes import Scope

TENANTS = {"alpha": 8, "beta": 1000, "gamma": 3}  # caps: tasks in flight
SHARES = {"alpha": 5, "beta": 4, "gamma": 1}  # of the work: what a small cap lets through must end within the run
QUOTAS = {("beta", "tool_read"): 4}  # most in flight of a tenant in a pool
# How often the executions of a piece of work fail on purpose: of 1 in 20. With 2 in 5 they were a retry storm (186 of
# 970 attempts in ten minutes), for which pressure paused P3 a minute at a time: what was measured then was that.
FAILS = (*(0,) * 38, 1, 2)
FAULT_EVERY_S = 4.0
CUT_EVERY_S = 18.0
ARRIVALS_PER_S = 1.5  # of single tasks, bursts and runs
QUIET_START_S = 8.0  # work is under way before the first fault
STOP_S = (1.0, 26.0)  # how long a SIGSTOP lasts: shorter and longer than the fence (15 s) and a session's death (20 s)
PAUSE_S = (2.0, 6.0)
PAUSED: tuple[tuple[Scope, str], ...] = (
    ("pool", "tool_write"),
    ("pool", "cpu"),
    ("priority", "p3"),
    ("pool_priority", "llm.p2"),
    ("tenant", "beta"),
)

# What a fault hits, by the name of the program in the Procfile; "child": any prefork child.
KILLED = {
    "child": 5,
    "worker_net": 2,
    "worker_db": 2,
    "worker_cpu": 2,
    "worker_quarantine": 1,
    "worker_system": 1,
    "dispatcher": 3,
    "beat": 3,
    "web": 2,
}
STOPPED = {"child": 1, "worker_net": 1, "worker_db": 1, "worker_cpu": 1, "dispatcher": 2, "beat": 1, "web": 1}
SERVERS = {"redis_flush": 1, "redis_restart": 1, "postgres_fast": 1, "postgres_immediate": 1}
ORDER_SHARES = 3  # a deck holds so great a part of the orders to exit: all are dealt in three
MESSAGES = {"duplicate": 1, "replay": 1, "delay": 2}

What = Literal["kill", "stop", "server", "messages", "sabotage"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A fault to carry out. `role`: whom it hits, or what is done; `for_s`: how long it lasts; `dice` in [0, 1)."""

    at_s: float
    what: What
    role: str
    for_s: float
    dice: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One piece of work to submit, under key `i`. `twice`: a double click; `verbs`: what is done to it, how long after.

    `cancelled`: one of these is cancel. `later`: it isn't due in this run, and still waits at its end. `run`: goes in
    the same run as others of that number; `after`: the places there of what it depends on. `ttl_s`: it expires if it
    hasn't started by then. `more`: what its input has beside. `followed`: a client watches its stream.
    """

    at_s: float
    i: int
    tenant: str
    kind: str
    priority: int
    hold_s: float
    effects: int
    fails: int
    how: str
    twice: bool = False
    cancelled: bool = False
    verbs: tuple[tuple[str, float], ...] = ()
    later: bool = False
    run: int = 0
    ttl_s: float | None = None
    after: tuple[int, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()
    followed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Pausing:
    """A pause of a scope, and how long it lasts."""

    at_s: float
    scope: Scope
    key: str
    for_s: float


def faults(seed: int, length_s: float) -> list[Plan]:
    """Return the faults of a run, in order of time."""
    dice = random.Random(f"faults {seed}")
    plans: list[Plan] = []
    at_s = QUIET_START_S
    for what, role in _deal(dice):
        if at_s > length_s:
            return sorted((*plans, *_cuts(seed, length_s)), key=lambda plan: plan.at_s)
        for_s = round(dice.uniform(*STOP_S), 1) if what == "stop" else round(dice.uniform(2.0, 14.0), 1)
        plans.append(Plan(at_s=round(at_s, 2), what=what, role=role, for_s=for_s, dice=dice.random()))
        at_s += FAULT_EVERY_S * dice.uniform(0.4, 1.6)
    raise AssertionError("the deck never ends")


def _cuts(seed: int, length_s: float) -> Iterator[Plan]:
    """Cut connections at statements: whom it hits tries again, so they cost a run little."""
    dice = random.Random(f"cuts {seed}")
    at_s = QUIET_START_S
    while True:
        for name in dice.sample(cuts := _orders("cut"), len(cuts)):
            if at_s > length_s:
                return
            yield Plan(at_s=round(at_s, 2), what="sabotage", role=name, for_s=0.0, dice=0.0)
            at_s += CUT_EVERY_S


def _orders(how: str) -> list[str]:
    return [name for name in sabotage.orders() if name.endswith(f".{how}")]


def _deal(dice: random.Random) -> Iterator[tuple[What, str]]:
    cards: list[tuple[What, str]] = []
    weights: tuple[tuple[What, dict[str, int]], ...] = (
        ("kill", KILLED),
        ("stop", STOPPED),
        ("server", SERVERS),
        ("messages", MESSAGES),
    )
    for what, roles in weights:
        cards += [(what, role) for role, weight in roles.items() for _ in range(weight)]
    orders = _orders("exit")
    share = -(-len(orders) // ORDER_SHARES)
    turn = 0
    while True:
        if turn % ORDER_SHARES == 0:
            dice.shuffle(orders)
        deck = cards + [("sabotage", name) for name in orders[share * (turn % ORDER_SHARES) :][:share]]
        dice.shuffle(deck)
        yield from deck
        turn += 1


def work(seed: int, length_s: float, *, verbs: Collection[str]) -> list[Work]:
    """Return the work of a run, in order of time. `verbs`: what people can do to a task in this version."""
    dice = random.Random(f"work {seed}")
    found: list[Work] = []
    at_s = 0.5
    run = 0
    while at_s < length_s:
        shape = dice.random()
        if shape < 0.05:  # a burst of short work, which shares slots
            found += [_work(dice, at_s, len(found) + n, "bench.brief", 0.0) for n in range(12)]
        elif shape < 0.10:  # a run of nodes under a fan-out cap, or of those that depend on each other
            run += 1
            found += _nodes(dice, at_s, len(found), run, ((),) * 6 if shape < 0.07 else GRAPH)
        elif shape < 0.15:
            found.append(_family(dice, at_s, len(found)))
        elif shape < 0.20:
            found.append(_question(dice, at_s, len(found)))
        elif shape < 0.24:
            found.append(_talk(dice, at_s, len(found)))
        elif shape < 0.37:
            found.append(_work(dice, at_s, len(found), dice.choice(_LONG), dice.uniform(3.0, 9.0)))
        elif shape < 0.385:
            found.append(_work(dice, at_s, len(found), "bench.deaf", 12.0, how="deaf"))
        elif shape < 0.41:
            found.append(_work(dice, at_s, len(found), dice.choice(_SHORT), 0.2, how="permanent"))
        elif shape < 0.43:
            found.append(_work(dice, at_s, len(found), dice.choice(_SHORT), 0.2, later=True))
        elif shape < 0.48:
            found.append(_work(dice, at_s, len(found), CHAT, 0.0))
        else:
            found.append(_work(dice, at_s, len(found), dice.choice(_SHORT), dice.uniform(0.05, 1.5)))
        at_s += dice.expovariate(ARRIVALS_PER_S)
    return [_in_steps(replace(one, verbs=one.verbs or _verbs(dice, one, verbs))) for one in found]


def _nodes(dice: random.Random, at_s: float, i: int, run: int, graph: Sequence[tuple[int, ...]]) -> list[Work]:
    """Make the nodes of a run. Of one whose nodes depend on each other a node at times fails, and cancels others."""
    tenant = _tenant(dice)
    failing = dice.randrange(4 * len(graph)) if any(graph) else -1
    return [
        replace(
            _work(dice, at_s, i + n, "bench.effect.tool_read", 0.5, tenant=tenant, run=run),
            after=after,
            how="permanent" if n == failing else "transient",
        )
        for n, after in enumerate(graph)
    ]


def _family(dice: random.Random, at_s: float, i: int) -> Work:
    """Make a parent: most gather all of their children; some have children that have children, some that fail."""
    one = _work(dice, at_s, i, FAMILY, dice.uniform(0.2, 1.5))
    shape = dice.random()
    more = {
        "children": dice.randint(2, 4),
        "families": dice.randint(1, 2) if shape < 0.4 else 0,
        "depth": 2 if shape < 0.1 else 1 if shape < 0.4 else 0,
        "failing": 1 if 0.4 <= shape < 0.55 else 0,
        "policy": "any" if shape >= 0.85 else "all",
    }
    return replace(one, effects=2, ttl_s=None, more=tuple(more.items()), followed=dice.random() < 0.3)


def _question(dice: random.Random, at_s: float, i: int) -> Work:
    """Make a question, or two: of those that may run out some are asked again (People leave a part unanswered)."""
    one = _work(dice, at_s, i, QUESTION, dice.uniform(0.2, 1.5))
    timed = dice.random() < 0.4
    pauses = dice.random() < 0.6
    again_s = round(dice.uniform(12.0, 20.0), 2)
    more = {
        "asks": 1 if dice.random() < 0.7 else 2,
        "timeout_s": round(dice.uniform(2.0, 6.0), 1) if timed else None,
        "on_timeout": "pause" if pauses else "cancel",
        "deny": "answer" if dice.random() < 0.6 else "cancel",
    }
    verbs = (("reask", again_s),) if timed and pauses and not one.cancelled else ()
    return replace(one, effects=2, ttl_s=None, more=tuple(more.items()), verbs=verbs, followed=dice.random() < 0.3)


def _talk(dice: random.Random, at_s: float, i: int) -> Work:
    one = _work(dice, at_s, i, TALK, dice.uniform(3.0, 12.0))
    return replace(one, effects=1, fails=0, ttl_s=None, more=(("lines", dice.randint(10, 60)),), followed=True)


def _in_steps(one: Work) -> Work:
    """Let three of four single pieces of work do their effects in steps. Not by the dice: other work stays itself."""
    if one.i % 4 == 0 or one.run or one.how != "transient" or not one.kind.startswith(EFFECT):
        return one
    return replace(one, kind=one.kind.replace(EFFECT, STEPS), effects=3 + one.i // 2 % 2)


GRAPH = ((), (0,), (0,), (1, 2), ())  # of a run: the places that each node depends on
CHAT = "llm.chat"
EFFECT, STEPS = "bench.effect.", "bench.steps."
# As often as their pools have slots for: what waits long in line would hide how soon a task comes back after a kill.
_SHORT = (*("bench.effect.tool_write", "bench.effect.tool_read", "bench.effect.llm") * 2, "bench.effect.cpu")
_LONG = (*("bench.effect.tool_write", "bench.effect.llm") * 2, "bench.effect.cpu", "bench.effect.ingest")


def _work(
    dice: random.Random,
    at_s: float,
    i: int,
    kind: str,
    hold_s: float,
    *,
    how: str = "transient",
    tenant: str | None = None,
    later: bool = False,
    run: int = 0,
) -> Work:
    plain = not (later or run or how != "transient" or kind in (CHAT, "bench.brief"))
    cancelled = plain and dice.random() < 0.12
    return Work(
        at_s=round(at_s, 2),
        i=i,
        tenant=tenant or _tenant(dice),
        kind=kind,
        priority=3 if later or kind == "bench.brief" else dice.randint(1, 3),
        hold_s=round(hold_s, 2),
        effects=0 if kind == CHAT else 1 if kind == "bench.brief" else dice.randint(1, 2),
        fails=dice.choice(FAILS) if plain and not cancelled else 0,
        how=how,
        twice=not run and dice.random() < 0.1,
        cancelled=cancelled,
        later=later,
        run=run,
        # Not by the dice, so that a seed's other work stays what it was.
        ttl_s=2.0 + i % 4 if plain and not cancelled and i % 9 == 0 else None,
    )


def _verbs(dice: random.Random, one: Work, known: Collection[str]) -> tuple[tuple[str, float], ...]:
    """Choose what is done to a task: a cancel that it was made for; a redrive of what ended badly; or another verb."""
    after_s = round(dice.uniform(0.0, 2.5), 2)
    later_s = round(after_s + dice.uniform(1.0, 8.0), 2)
    chosen: tuple[tuple[str, float], ...] = ()
    if one.cancelled:
        chosen = (("cancel", after_s), *((("redrive", later_s),) if dice.random() < 0.3 else ()))
    elif one.how == "permanent":
        chosen = (("redrive", later_s),) if dice.random() < 0.3 else ()
    elif not (one.later or one.run or one.kind == "bench.brief") and dice.random() < 0.25:
        chosen = dice.choice(
            ((("priority", after_s),), (("pause", after_s), ("resume", later_s)), (("requeue", after_s),))
        )
    return tuple((verb, at_s) for verb, at_s in chosen if verb in known)


def _tenant(dice: random.Random) -> str:
    (name,) = dice.choices(tuple(SHARES), weights=tuple(SHARES.values()))
    return name


def pauses(seed: int, length_s: float) -> list[Pausing]:
    """Return the pauses of scopes in a run, in order of time; all end with the run."""
    dice = random.Random(f"pauses {seed}")
    found = []
    at_s = 15.0
    while at_s < length_s - PAUSE_S[1]:
        scope, key = dice.choice(PAUSED)
        found.append(Pausing(at_s=round(at_s, 2), scope=scope, key=key, for_s=round(dice.uniform(*PAUSE_S), 1)))
        at_s += dice.uniform(15.0, 30.0)
    return found

"""From facts to readings: one number a signal. Pure; the store's facts and the simulator's are read by these functions.

A place is where work happens in so many slots: a pool, or a resource as wide as its limit (over phi, where calls hold
it: the share of a task's life that is spent in them, rule R2). Waits and demand are those of the worst place.

Invariants: nothing to measure is 0, never None; None is what couldn't be read; every signal of the table is measured.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.policy.errors import ErrorClass
from harness.policy.flow import needs
from harness.policy.lifecycle import Event
from harness.policy.pressure.facts import ARRIVED_S, BIN_S, WINDOW_S, Ended, Facts, Limit

TICK_S = 0.25  # the longest time until the dispatcher looks
TARGET_S = 60.0  # that a P1 task may wait
SHARES = (0.5, 0.27, 0.15, 0.05)  # of a place, that each class has for certain (rule R6)
DEPTH_S = 600.0  # a backlog of so much work is a wait of ten minutes
LEAST = 20  # calls or attempts, below which a share says nothing
PHI_LEAST = 0.1
MEAN_S = 1.0  # that a task holds a slot, where nothing has ended and nothing runs
S_LEAST = 0.01  # seconds; a shorter service time is one that nobody measured
MOST = 99.0  # of a ratio, where what it is over is nothing
ENOUGH = 100  # arrivals a minute; of fewer, five minutes are looked at
SILENT_S = 60.0  # demand says nothing so long after the first look
DAY_S = 86_400.0
FAILED = (ErrorClass.TIMEOUT, ErrorClass.SERVER_ERROR, ErrorClass.NETWORK)
DONE = (Event.SUCCEED, Event.FAIL, Event.BURY)  # attempts that tell of their work: the others were cut short
COUNT_LEAST, COUNT_MOST = 5_000, 100_000  # waiting tasks that are counted
KINDS_MOST = 500  # whose baselines are kept


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """What is known from earlier looks. `since_s`: for how long there have been looks.

    `a_second`: tasks that got done a second, at the last. `usual_s`: the 95th percentile of each kind's times over the
    last day, with how long it has been known.
    """

    since_s: float = 0.0
    a_second: float = 0.0
    usual_s: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(slots=True)
class Place:
    """A pool or resource. `waiting`: tasks by class; `bins`: arrivals, the newest first; `mean_s`: of a task's hold."""

    slots: float
    in_use: int = 0
    waiting: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    bins: list[list[int]] = field(default_factory=lambda: [[0] * int(ARRIVED_S / BIN_S) for _ in range(4)])
    done: int = 0
    done_s: float = 0.0
    held_s: float = 0.0  # sum of the estimates of what is held

    def mean_s(self) -> float:
        """Return how long a task holds it, as far as is known."""
        return mean_hold_s(self.done, self.done_s, in_use=self.in_use, held_s=self.held_s)


@dataclass(frozen=True, slots=True)
class _Look:
    facts: Facts
    memory: Memory
    places: Mapping[str, Place]


def measure(facts: Facts, memory: Memory) -> dict[str, float | None]:
    """Return each signal's reading. None: what it is measured from couldn't be read."""
    look = _Look(facts, memory, places(facts))
    return {name: read(look) for name, read in READS.items()}


def learn(memory: Memory, facts: Facts, passed_s: float) -> Memory:
    """Return the memory after a look. `passed_s`: since the last one."""
    usual = dict(memory.usual_s)
    for kind, times in _times(facts.ended).items():
        before, known_s = usual.get(kind, (0.0, 0.0))
        # A mean over what is known, and then over the last day: the first look is its own baseline.
        weight = min(1.0, passed_s / min(known_s + passed_s, DAY_S)) if known_s + passed_s > 0 else 1.0
        usual[kind] = (before + (_p95(times) - before) * weight, min(known_s + passed_s, DAY_S))
    while len(usual) > KINDS_MOST:
        usual.pop(min(usual, key=lambda kind: usual[kind][1]))
    a_second = _a_second(facts, places(facts))
    return Memory(since_s=min(memory.since_s + passed_s, DAY_S), a_second=a_second, usual_s=usual)


def depth_told(memory: Memory, critical: float) -> int:
    """Return how many waiting tasks have to be counted to tell a depth of `critical`: more are no worse.

    >>> depth_told(Memory(a_second=10.0), 3.0), depth_told(Memory(), 3.0), depth_told(Memory(a_second=1e6), 3.0)
    (21600, 5000, 100000)
    """
    return int(min(COUNT_MOST, max(COUNT_LEAST, 1.2 * critical * DEPTH_S * memory.a_second)))


def places(facts: Facts) -> dict[str, Place]:
    """Return the places with what is in them, pools and resources by their names."""
    found = {pool: Place(float(n)) for pool, n in facts.slots.items()}
    limits = facts.limits or {}
    leases: dict[str, int] = defaultdict(int)
    for held in facts.held:
        for name, n in needs(held.signature):
            leases[name] += n * held.leases
    for name, limit in limits.items():
        if limit.limit > 0:  # one that somebody has closed isn't a place where work waits for capacity
            found[name] = Place(limit.limit / phi(limit, leases[name]))

    def whose(pool: str, signature: str) -> Iterator[tuple[Place, int]]:
        for name, n in ((pool, 1), *needs(signature)):
            if name in found:
                yield found[name], n

    for held in facts.held:
        for place, n in whose(held.pool, held.signature):
            place.in_use += n * held.leases
            place.held_s += n * held.leases * held.est_s
    for waits in facts.waiting:
        for place, n in whose(waits.pool, waits.signature):
            place.waiting[waits.priority] += n * waits.number
    for arrived in facts.arrived:
        for place, n in whose(arrived.pool, arrived.signature):
            if 0 <= arrived.bin < len(place.bins[0]):
                place.bins[arrived.priority][arrived.bin] += n * arrived.number
    for ended in facts.ended:
        for place, _ in whose(ended.pool, ended.signature):
            place.done += 1
            place.done_s += ended.slot_s
    return found


def phi(limit: Limit, leases: float) -> float:
    """Return the share of a task's life in its slot that it spends in calls (rule R2). `leases`: tasks that need it.

    >>> phi(Limit(limit=10, in_use=5, calls=True), 10), phi(Limit(limit=10, in_use=0, calls=False), 10)
    (0.5, 1.0)
    """
    if not limit.calls or not leases:
        return 1.0
    return min(1.0, max(PHI_LEAST, limit.in_use / leases))


def mean_hold_s(done: float, done_s: float, *, in_use: float, held_s: float) -> float:
    """Return how long a task holds a slot: by what has ended, else by the estimates of what holds one, else 1 s.

    >>> mean_hold_s(4, 10.0, in_use=2, held_s=60.0), mean_hold_s(0, 0.0, in_use=2, held_s=60.0)
    (2.5, 30.0)
    """
    if done:
        return max(S_LEAST, done_s / done)
    return max(S_LEAST, held_s / in_use) if in_use else MEAN_S


def _queue_depth(look: _Look) -> float:
    waiting = sum(waits.number for waits in look.facts.waiting)
    if not waiting:
        return 0.0
    return _over(waiting, _a_second(look.facts, look.places) * DEPTH_S)


def _a_second(facts: Facts, found: Mapping[str, Place]) -> float:
    """Return tasks that get done a second; of those that take longer than the window none may have ended in it."""
    pools = [found[pool] for pool in facts.slots if pool in found]
    return max(len(facts.ended) / facts.ended_s, sum(one.in_use / one.mean_s() for one in pools))


def _oldest_age(look: _Look) -> float:
    return max((head.age_s for head in look.facts.heads if head.priority == 1), default=0.0)


def _p1_wait(look: _Look) -> float:
    return max((_wait_s(place) / TARGET_S for place in look.places.values()), default=0.0)


def _wait_s(place: Place) -> float:
    """Return how long a new P1 task would wait here (rule R6); 0 while none does."""
    if not place.waiting[1]:
        return 0.0
    if place.slots <= 0:
        return MOST * TARGET_S
    each_s = place.mean_s() / place.slots
    urgent = sum(place.bins[0][: int(WINDOW_S / BIN_S)]) / WINDOW_S
    lanes = sum(SHARES[p] for p in (2, 3) if place.waiting[p])
    free = max(SHARES[1] / each_s, 1.0 / each_s - urgent - lanes / each_s)
    return min(MOST * TARGET_S, TICK_S + each_s + place.waiting[1] / free)


def _demand(look: _Look) -> float:
    if look.memory.since_s < SILENT_S:
        return 0.0
    return max(
        (_over(_rate(place, look.facts.arrived_s) * place.mean_s(), place.slots) for place in look.places.values()),
        default=0.0,
    )


def _rate(place: Place, covered_s: float) -> float:
    """Return tasks a second that come to a place, as a load that lasts; of few, over some minutes."""
    bins: list[int] = [sum(column) for column in zip(*place.bins, strict=True)]
    minute = int(WINDOW_S / BIN_S)
    last = bins[:minute]
    if covered_s < WINDOW_S or sum(last) >= ENOUGH:
        return lasting(last, covered_s)
    minutes = [sum(bins[at : at + minute]) for at in range(0, int(min(covered_s, ARRIVED_S) / BIN_S), minute)]
    if len(minutes) < 2:
        return sum(last) / WINDOW_S
    return (sum(minutes) - max(minutes)) / (WINDOW_S * (len(minutes) - 1))


def lasting(last: Sequence[int], covered_s: float) -> float:
    """Return tasks a second as a load that lasts: without the bin that has most, of those of the last minute.

    So one run, submitted at once, is a queue and no demand, however many nodes it has. `covered_s` below a minute:
    more came than is looked at, by one run of ten thousand or by a flood, which fills the bin before, too.

    >>> lasting([0, 1000, 0, 0, 0, 0], 300.0), lasting([10_000], 4.0), lasting([4000, 4000, 2000, 0, 0, 0], 25.0)
    (0.0, 0.0, 400.0)
    """
    if covered_s >= WINDOW_S:
        return (sum(last) - max(last)) / (WINDOW_S - BIN_S)
    seen = last[: 1 + int(covered_s / BIN_S)]
    return (sum(seen) - max(seen)) / max(BIN_S, covered_s - BIN_S)


def _worker_busy_ratio(look: _Look) -> float:
    behind = [place for pool in look.facts.slots if (place := look.places.get(pool)) is not None and any(place.waiting)]
    return _over(sum(place.in_use for place in behind), sum(place.slots for place in behind))


def _llm_rate_limit(look: _Look) -> float | None:
    if look.facts.limits is None:
        return None
    calls = {name for name, limit in look.facts.limits.items() if limit.calls}
    of_calls = [one for one in look.facts.ended if any(name in calls for name, _ in needs(one.signature))]
    return _share(of_calls, lambda one: one.error == ErrorClass.RATE_LIMIT)


def _llm_in_use(look: _Look) -> float | None:
    if look.facts.limits is None:
        return None
    behind = [(look.places[name], one) for name, one in look.facts.limits.items() if one.calls and one.limit > 0]
    return max((_over(one.in_use, one.limit) for place, one in behind if any(place.waiting)), default=0.0)


def _tool_error_rate(look: _Look) -> float:
    return _share([one for one in look.facts.ended if one.verdict in DONE], lambda one: one.error in FAILED)


def _retry_storm(look: _Look) -> float:
    done = [one for one in look.facts.ended if one.verdict in DONE]
    again = sum(one.verdict == Event.FAIL for one in done)
    return _over(again, len(done) - again) if len(done) >= LEAST else 0.0


def _db_connection_usage(look: _Look) -> float | None:
    return look.facts.connections_busy_ratio


def _db_pool_wait(look: _Look) -> float | None:
    return _worst_wait(look.facts, of_databases=True)


def _http_pool_wait(look: _Look) -> float | None:
    return _worst_wait(look.facts, of_databases=False)


def _worst_wait(facts: Facts, *, of_databases: bool) -> float | None:
    if facts.waits_s is None:
        return None
    return max((s for name, s in facts.waits_s.items() if (name in facts.databases) == of_databases), default=0.0)


def _p95_task_latency(look: _Look) -> float:
    times = _times(look.facts.ended)
    usual = look.memory.usual_s
    known = {kind: sum(found) for kind, found in times.items() if usual.get(kind, (0.0, 0.0))[0] > 0}
    total_s = sum(known.values())
    if not total_s:
        return 0.0
    return min(MOST, sum(s * _p95(times[kind]) / usual[kind][0] for kind, s in known.items()) / total_s)


def _tenant_fairness(look: _Look) -> float:
    """Return the worst of any pool and class: of tenants who waited there all the time, by service and weight."""
    behind: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for head in look.facts.heads:
        if head.age_s >= WINDOW_S:
            behind[head.pool, head.priority][head.tenant] = head.weight
    if not behind:
        return 0.0
    served: dict[tuple[str, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    numbers: dict[tuple[str, int], int] = defaultdict(int)
    for one in look.facts.ended:
        tenants = behind.get((one.pool, one.priority), {})
        if one.tenant in tenants:
            served[one.pool, one.priority][one.tenant] += min(one.slot_s, WINDOW_S) / tenants[one.tenant]
            numbers[one.pool, one.priority] += 1
    return max(
        (
            1.0 - _jain([served[where][tenant] for tenant in tenants])
            for where, tenants in behind.items()
            if len(tenants) > 1 and numbers[where] >= LEAST * len(tenants)
        ),
        default=0.0,
    )


def _jain(values: Sequence[float]) -> float:
    squares = sum(value * value for value in values)
    return 1.0 if not squares else sum(values) ** 2 / (len(values) * squares)


def _times(ended: Sequence[Ended]) -> dict[str, list[float]]:
    """Return what tasks took, by kind, where enough of them ended to say."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in ended:
        if one.verdict in DONE:
            found[one.kind].append(one.slot_s)
    return {kind: sorted(times) for kind, times in found.items() if len(times) >= LEAST}


def _p95(ordered: Sequence[float]) -> float:
    """Return the value that 95 of 100 don't exceed.

    >>> _p95([1.0] * 19 + [9.0]), _p95([1.0] * 18 + [9.0, 9.0])
    (1.0, 9.0)
    """
    return ordered[-(-95 * len(ordered) // 100) - 1]


def _share(ended: Sequence[Ended], is_one: Callable[[Ended], bool]) -> float:
    return sum(map(is_one, ended)) / len(ended) if len(ended) >= LEAST else 0.0


def _over(part: float, whole: float) -> float:
    """Return a ratio; of nothing, as much as can be said."""
    if part <= 0:
        return 0.0
    return min(MOST, part / whole) if whole > 0 else MOST


READS: Mapping[str, Callable[[_Look], float | None]] = {
    "queue_depth": _queue_depth,
    "oldest_age": _oldest_age,
    "p1_wait": _p1_wait,
    "demand": _demand,
    "worker_busy_ratio": _worker_busy_ratio,
    "llm_rate_limit": _llm_rate_limit,
    "llm_in_use": _llm_in_use,
    "tool_error_rate": _tool_error_rate,
    "retry_storm": _retry_storm,
    "db_connection_usage": _db_connection_usage,
    "db_pool_wait": _db_pool_wait,
    "http_pool_wait": _http_pool_wait,
    "p95_task_latency": _p95_task_latency,
    "tenant_fairness": _tenant_fairness,
}

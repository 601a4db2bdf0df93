"""What one door knows: how long its tenants' next tasks would wait, and what it has refused and not yet told.

One statement a second at most for each tenant and class (store.door); what this process has let in since is added, so
that a burst through one door doesn't outrun its figures. Bound: a door doesn't know what others let in within a second,
and the leader's row is up to two seconds old. Safe to share between threads. Nothing here decides (policy.admission).
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from harness.policy import prospect
from harness.policy.admission import Wanted
from harness.policy.predicted import Place
from harness.policy.pressure import Level
from harness.policy.prospect import Mine
from harness.store import door
from harness.store.database import Connection
from harness.store.door import Answer, Asked, OwnLine, Seen
from harness.store.transitions import NewTask

SEEN_S = 1.0
STALE_S = 30.0  # a row of the leader's side that is older tells no waits
BIN_S = 0.5  # in which what this process let in is counted
TELL_EVERY_S = 1.0
KEYS_S = 60.0  # a key that was refused so lately is the same submission
KEYS_MOST = 20_000
SEEN_MOST = 4_096

Alike = tuple[str, int, str, str, datetime | None]  # pool, priority, signature, kind, not_before


@dataclass(frozen=True, slots=True)
class _Known:
    """A look of this process for one tenant and class."""

    read_s: float
    seen: Seen
    own: OwnLine


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What the door knows of one submission. `wanted`: its tasks, grouped; `of`: the number of each task's group."""

    level: Level
    wanted: Sequence[Wanted]
    of: Sequence[int]

    @property
    def wait_s(self) -> float | None:
        """When the first of them would start, in seconds from now. None: nobody can say."""
        known = [max(one.wait_s, one.starts_s) for one in self.wanted if one.wait_s is not None]
        return min(known) if known else None


@dataclass(slots=True)
class _Tally:
    """Answers not yet told: tasks, and those counted once, by all that makes them alike."""

    pending: dict[tuple[int, int, str, int, str, str, str], list[int]] = field(default_factory=dict)
    told_s: float = 0.0
    keys: OrderedDict[tuple[int, str], float] = field(default_factory=OrderedDict)


class Doorway:
    """One a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: Mapping[str, Place] = {}
        self._service_s: Mapping[str, float] = {}
        self._at_s: float | None = None
        self._seen_s = 0.0  # when the row was what it is, by this process's clock
        self._known: dict[tuple[int, Asked], _Known] = {}
        self._added: dict[int, Counter[tuple[str, int, str, int]]] = {}
        self._tally = _Tally()

    def predict(
        self, connection: Connection, tenant: int, tasks: Sequence[NewTask], *, now: datetime, now_s: float
    ) -> Prediction:
        """Return how long tasks would wait. In the tenant's transaction; `now`: the database's, `now_s`: monotonic."""
        groups: dict[Alike, list[int]] = {}
        for at, task in enumerate(tasks):
            groups.setdefault((task.pool, task.priority, task.signature, task.kind, task.not_before), []).append(at)
        asked: list[Asked] = list(dict.fromkeys((pool, priority, text) for pool, priority, text, _, _ in groups))
        level = self._look(connection, tenant, asked, now_s)
        counts = Counter(dict.fromkeys(asked, 0))
        for (pool, priority, text, _, _), those in groups.items():
            counts[pool, priority, text] += len(those)
        with self._lock:
            waits_s = {one: self._waits_s(tenant, one, counts[one], now_s) for one in asked}
        of = [0] * len(tasks)
        wanted = []
        for number, ((pool, priority, text, kind, not_before), those) in enumerate(groups.items()):
            first_s, last_s = waits_s[pool, priority, text]
            for at in those:
                of[at] = number
            wanted.append(
                Wanted(
                    priority=priority,
                    count=len(those),
                    wait_s=first_s,
                    last_s=last_s,
                    service_s=self._service_s.get(kind, 0.0),
                    deadline_s=_left_s([tasks[at].deadline for at in those], now),
                    start_by_s=_left_s([tasks[at].start_by for at in those], now),
                    starts_s=0.0 if not_before is None else max(0.0, (not_before - now).total_seconds()),
                )
            )
        return Prediction(level=level, wanted=wanted, of=of)

    def let_in(self, tenant: int, tasks: Sequence[NewTask], key: str | None, *, now: datetime, now_s: float) -> None:
        """Tasks were inserted: those that are ready count as waiting until the next look."""
        ready = [task for task in tasks if task.not_before is None or task.not_before <= now]
        counts = Counter((task.pool, task.priority, task.signature) for task in ready)
        with self._lock:
            added = self._added.setdefault(int(now_s / BIN_S), Counter())
            for (pool, priority, text), n in counts.items():
                added[pool, priority, text, tenant] += n
            for at in [at for at in self._added if (at + 1) * BIN_S < min(self._seen_s, now_s - SEEN_S)]:
                del self._added[at]
            if key is not None and self._tally.keys.pop((tenant, key), 0.0) > now_s:
                # It came again and is a task now, which counts by itself.
                for (pool, priority, text), n in Counter((t.pool, t.priority, t.signature) for t in tasks).items():
                    self._count(tenant, (pool, priority, text), "accepted", "", now_s, tasks=0, once=-n)

    def answered(
        self,
        tenant: int,
        tasks: Sequence[NewTask],
        code: str,
        reason: str,
        key: str | None,
        *,
        now_s: float,
        demands: bool,
    ) -> None:
        """Tasks were refused, or deferred. `demands`: they count as demand, those with one `key` once."""
        counts = Counter((task.pool, task.priority, task.signature) for task in tasks)
        with self._lock:
            again = demands and key is not None and self._again(tenant, key, now_s)
            for asked, n in counts.items():
                self._count(tenant, asked, code, reason, now_s, tasks=n, once=n if demands and not again else 0)

    def tell(self, connection: Connection, *, now_s: float, at_once: bool = False) -> None:
        """Write down what was answered, a second after the last time. Outside a transaction. Raises: psycopg.Error."""
        with self._lock:
            pending = self._tally.pending
            if not pending or not (at_once or now_s - self._tally.told_s >= TELL_EVERY_S):
                return
            self._tally.pending, self._tally.told_s = {}, now_s
        try:
            door.tell(
                connection,
                [
                    Answer(
                        age_s=max(0.0, now_s - at_s),
                        tenant=tenant,
                        pool=pool,
                        priority=priority,
                        signature=text,
                        code=code,
                        reason=reason,
                        tasks=tasks,
                        once=once,
                    )
                    for (at_s, tenant, pool, priority, text, code, reason), (tasks, once) in pending.items()
                ],
            )
        except BaseException:
            with self._lock:
                for name, (tasks, once) in pending.items():
                    found = self._tally.pending.setdefault(name, [0, 0])
                    found[0], found[1] = found[0] + tasks, found[1] + once
            raise

    def _look(self, connection: Connection, tenant: int, asked: Sequence[Asked], now_s: float) -> Level:
        """Read what isn't known or too old. Returns the level."""
        with self._lock:
            known = [self._known.get((tenant, one)) for one in asked]
            missing = [
                one for one, found in zip(asked, known, strict=True) if found is None or now_s - found.read_s >= SEEN_S
            ]
            known_s = self._at_s
        if missing:
            seen = door.seen(connection, tenant, missing, known_s=known_s)
            if seen is not None:
                self._learn(tenant, missing, seen, now_s)
        with self._lock:
            levels = [found.seen.level for one in asked if (found := self._known.get((tenant, one))) is not None]
        return max(levels, default=Level.NORMAL)

    def _learn(self, tenant: int, asked: Sequence[Asked], seen: Seen, now_s: float) -> None:
        with self._lock:
            if seen.places is not None and (self._at_s is None or (seen.at_s or 0.0) != self._at_s):
                self._places, self._service_s, self._at_s = seen.places, seen.service_s, seen.at_s
            if seen.at_s is not None and seen.at_s == self._at_s:
                self._seen_s = now_s - max(0.0, seen.age_s)
            if len(self._known) >= SEEN_MOST:
                self._known = {key: one for key, one in self._known.items() if now_s - one.read_s < SEEN_S}
            for one, own in zip(asked, seen.own, strict=True):
                self._known[tenant, one] = _Known(now_s, seen, own)

    def _waits_s(self, tenant: int, asked: Asked, count: int, now_s: float) -> tuple[float | None, float | None]:
        """How long the first and the last of `count` tasks would wait. Under the lock."""
        known = self._known.get((tenant, asked))
        if known is None or self._at_s is None or now_s - self._seen_s > STALE_S:
            return None, None
        since, alike, others = self._since(tenant, asked, known.read_s)
        mine = Mine(
            tasks=known.own.tasks + since,
            alike=known.own.alike + alike,
            fresh=known.own.fresh + since + others,
            weight=known.seen.weight,
            in_flight=known.seen.in_flight,
            cap=known.seen.cap,
        )
        return prospect.waits_s(self._places, *asked, mine, count)

    def _since(self, tenant: int, asked: Asked, read_s: float) -> tuple[int, int, int]:
        """What this process let in of the class: own tasks since a look, those alike, and others' since the row."""
        pool, priority, text = asked
        mine = alike = others = 0
        for at, added in self._added.items():
            for (its_pool, its_priority, its_text, its_tenant), n in added.items():
                if its_pool != pool or its_priority != priority:
                    continue
                if its_tenant != tenant:
                    others += n if (at + 1) * BIN_S >= self._seen_s else 0
                elif (at + 1) * BIN_S >= read_s:
                    mine += n
                    alike += n if its_text == text else 0
        return mine, alike, others

    def _again(self, tenant: int, key: str, now_s: float) -> bool:
        """Whether a key was refused a moment ago; from now on it was. Under the lock."""
        keys = self._tally.keys
        again = keys.pop((tenant, key), 0.0) > now_s
        keys[tenant, key] = now_s + KEYS_S
        while len(keys) > KEYS_MOST or (keys and next(iter(keys.values())) <= now_s):
            keys.popitem(last=False)
        return again

    def _count(self, tenant: int, asked: Asked, code: str, reason: str, now_s: float, *, tasks: int, once: int) -> None:
        found = self._tally.pending.setdefault((int(now_s), tenant, *asked, code, reason), [0, 0])
        found[0], found[1] = found[0] + tasks, found[1] + once


def _left_s(moments: Sequence[datetime | None], now: datetime) -> float | None:
    there = [moment for moment in moments if moment is not None]
    return (min(there) - now).total_seconds() if there else None

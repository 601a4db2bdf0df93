"""Permits: one call of a task to a downstream, now. Given and taken back in Redis for all processes, by atomic scripts.

A call gets a permit of each resource that it needs, or none. In flight is what has not expired, never a counter; a
worker that dies frees its permits by `ended` (the sweep) or by their time. Redis holds nothing that can't be lost: a
process remembers what it was given and tells an empty Redis again (`renew`); while Redis is away it goes on alone.

Decides nothing itself: policy.desk does, in Lua where it is shared. Raises nothing but Invalid; for all threads of one
process. Make it after a fork.
"""

import contextlib
import random
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError

from harness.policy.errors import Invalid
from harness.policy.permits import PREFIX, Ask, Change, Granted, Reading, Refused, Report, check_ask
from harness.policy.resources import Live
from harness.store.permits import scripts
from harness.store.permits.bell import Bell
from harness.store.permits.link import Link
from harness.store.permits.local import Local

__all__ = ["Permits"]

REBIRTHS = 3  # times that one question is asked anew because Redis was emptied meanwhile
LATE_MOST = 1_000  # ends of calls that wait for Redis to come back
CHANGES_AT_ONCE = 1_000

Effective = Callable[[], Mapping[str, Live]]


class Permits:
    """The permits of one process.

    `url`: of a Redis, "" when there is none; `effective`: the resources as they are now, asked at each call, so it must
    be cheap; `processes`: how many processes share the limits while Redis is away.
    """

    def __init__(self, url: str, effective: Effective, processes: Callable[[], int] = lambda: 1) -> None:
        self._effective = effective
        self._processes = processes
        self._name = secrets.token_hex(4)
        self._local = Local()
        self._link = Link(url, self._back) if url else None
        self._bell = Bell(self._link.client, PREFIX, self._name, self._relive) if self._link else None
        self._held: dict[str, Granted] = {}
        self._late: deque[tuple[Granted, Report]] = deque(maxlen=LATE_MOST)
        self._births: dict[str, float] = {}
        self._configs: dict[str, tuple[Live, bytes]] = {}
        self._lock = threading.Lock()
        self._ending = threading.Condition(self._lock)
        self._registering = False
        self._telling = threading.Lock()
        self._told: dict[str, float] = {}

    # Calls

    def acquire(self, ask: Ask) -> Granted | Refused:
        """Ask for all permits of a call; asking again with the same member is harmless. Raises: Invalid."""
        check_ask(ask)
        lives = self._lives([want.resource for want in ask.wants])
        if ask.waits and self._bell is not None:
            self._bell.expect(ask.member)
        found = self._asked(ask, lives) if self._link is not None else None
        if found is None:
            with self._lock:
                found = self._local.acquire(ask, lives, self._held.values(), self._processes())
                if isinstance(found, Granted):
                    self._held[found.member] = found
        if self._bell is not None:
            if isinstance(found, Granted):
                self._bell.forget(ask.member)
            else:
                self._bell.remember(ask.member, found.wait_s)
        return found

    def finish(self, granted: Granted, report: Report) -> None:
        """Say how a call ended and give its permits back. Once counts; again is harmless."""
        with self._lock:
            while self._registering:  # else a permit that is given back just now would be told as running
                self._ending.wait(timeout=1.0)
            known = self._held.pop(granted.member, None) is not None
        if known and (self._link is None or granted.local or self._link.away):
            self._local.finish(granted, report, self._effective(), self._processes())
        if self._link is not None and not self._finished(granted, report):
            self._late.append((granted, report))

    def renew(self) -> None:
        """Tell Redis what runs; every RENEW_S, from a thread of the process."""
        held = self._snapshot()
        if self._link is None or not held:
            return
        args: list[scripts.Argument] = [""]
        for one in held:
            args += [one.member, one.member.rpartition(":")[0], self._ttl_s(one)]
        missing = self._link.call("renew", [], args)
        if missing:
            self._register(only={held[int(number) - 1].member for number in missing})

    def give_up(self, ask: Ask) -> None:
        """Wait no longer. A permit that was given but whose answer was lost is given back."""
        if self._bell is not None:
            self._bell.forget(ask.member)
        with self._lock:
            self._held.pop(ask.member, None)
        if self._link is not None:
            names, configs = self._known(want.resource for want in ask.wants)
            self._link.call("give_up", names, ["", ask.member, ask.task, self._name, *configs])

    def wait(self, ask: Ask, timeout_s: float) -> bool:
        """Wait until it is this call's turn, or makes sense to ask again, or so long. Returns whether it was woken."""
        if self._bell is None:
            time.sleep(min(timeout_s, random.uniform(0.05, 0.1)))
            return False
        return self._bell.wait(ask.member, timeout_s)

    def ended(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Attempts (task, release_no) are over: they ask no more, and what they still hold is free. One trip."""
        over = {f"{task}:{release_no}" for task, release_no in attempts}
        with self._lock:
            for member in [one for one in self._held if one.rpartition(":")[0] in over]:
                del self._held[member]
        if self._link is not None and over:
            names, configs = self._known(self._effective())
            self._link.several("ended", [(names, ["", attempt, *configs]) for attempt in sorted(over)])

    # Resources

    def read(self, names: Iterable[str]) -> dict[str, Reading] | None:
        """Return how resources stand. None: Redis is away, nobody knows."""
        if self._link is None:
            return None
        wanted = [name for name in names if name in self._effective()]
        keys, configs = self._known(wanted)
        rows = self._link.call("read", keys, ["", *configs])
        return None if rows is None else {name: _reading(row) for name, row in zip(wanted, rows, strict=True)}

    def take_retry(self, resource: str) -> float:
        """Take one retry from a resource's budget, as a debt when it is empty. Returns seconds that it must wait."""
        live = self._lives([resource])[resource]
        if self._link is not None:
            wait_s = self._link.call("retry", [scripts.key(resource)], ["", self._config(live) + scripts.NOTHING_ASKED])
            if wait_s is not None:
                return float(wait_s)
        return self._local.retry(live, self._processes())

    def changes(self) -> Sequence[Change]:
        """Return the oldest changes of limits that aren't kept yet; `kept` says so when they are."""
        if self._link is None or self._link.away:
            return ()
        try:
            found = self._link.client.xrange(f"{PREFIX}changes", count=CHANGES_AT_ONCE)
        except (RedisError, OSError):
            return ()
        return [_change(row_id, fields) for row_id, fields in found]

    def kept(self, last_id: str) -> None:
        """The changes up to this one are kept elsewhere."""
        number, _, step = last_id.partition("-")
        if self._link is not None:
            with contextlib.suppress(RedisError, OSError):
                self._link.client.xtrim(f"{PREFIX}changes", minid=f"{number}-{int(step) + 1}", approximate=False)

    def close(self) -> None:
        """Stop listening and drop the connections."""
        if self._bell is not None:
            self._bell.close()
        if self._link is not None:
            self._link.close()

    # How

    def _asked(self, ask: Ask, lives: Mapping[str, Live]) -> Granted | Refused | None:
        assert self._link is not None
        names = list(lives)
        keys = [scripts.key(name) for name in names]
        known = ask.member in self._held
        for _ in range(REBIRTHS):
            rest = [
                self._config(live)
                + scripts.asked_of(live.tenant_cap(ask.tenant), want.tokens, self._births.get(name, 0.0))
                for want, (name, live) in zip(ask.wants, lives.items(), strict=True)
            ]
            head: list[scripts.Argument] = ["", ask.member, ask.task, self._name, ask.tenant]
            again = scripts.question(ask, again=True)
            first = again if known else scripts.question(ask, again=False)
            answer = self._link.call("acquire", keys, [*head, first, *rest], [*head, again, *rest])
            if answer is None:
                return None
            if answer[0] != b"2":
                return self._answer(ask, names, answer)
            births = self._born(names, answer[1:])
            self._register(births=births)
            self._births |= births
        return None

    def _answer(self, ask: Ask, names: Sequence[str], answer: Sequence[Any]) -> Granted | Refused:
        if answer[0] == b"0":
            self._births |= self._born(names, answer[8:])
            return Refused(
                resource=names[int(answer[2]) - 1],
                limit=answer[3].decode(),
                wait_s=float(answer[4]),
                until_s=float(answer[5]),
                ahead=int(answer[6]),
                limit_now=int(answer[7]),
            )
        self._births |= self._born(names, answer[2::2])
        granted = Granted(
            member=ask.member,
            tenant=ask.tenant,
            wants=ask.wants,
            sent=dict(zip(names, answer[3::2], strict=True)),
            sent_s=scripts.moment(answer[1]),
        )
        with self._lock:
            self._held[ask.member] = granted
        return granted

    def _born(self, names: Sequence[str], births: Sequence[bytes]) -> dict[str, float]:
        """Return the births that the process doesn't know yet: an empty one is as it said."""
        return {name: float(birth) for name, birth in zip(names, births, strict=True) if birth}

    def _finished(self, granted: Granted, report: Report) -> bool:
        assert self._link is not None
        names = [want.resource for want in granted.wants]
        lives = self._effective()
        if any(name not in lives for name in names):
            return True  # a resource that is gone from the configuration: its permit goes by its time
        about = names.index(report.resource) + 1 if report.resource in names else 1
        task = granted.member.rpartition(":")[0]
        args: list[scripts.Argument] = ["", granted.member, task]
        args.append(scripts.report(report, about=about, jitter=random.random()))
        used = report.tokens or {}
        args += [self._config(lives[name]) + scripts.asked_of(None, used.get(name, -1), 0.0) for name in names]
        return self._link.call("finish", [scripts.key(name) for name in names], args) is not None

    def _register(self, births: Mapping[str, float] | None = None, only: Collection[str] | None = None) -> None:
        """Tell Redis of calls that run and that it doesn't know; `births`: of the states that it began anew.

        One thread tells; who asks meanwhile waits until it has, and then knows that these births have been told.
        """
        assert self._link is not None
        with self._telling:
            if births is not None and all(self._told.get(name) == birth for name, birth in births.items()):
                return
            with self._lock:  # what ends from now on is told by `finish`, after this
                self._registering = True
                running = [one for one in self._held.values() if only is None or one.member in only]
            try:
                lives = self._effective()
                calls = [self._running(one, lives) for one in running if all(w.resource in lives for w in one.wants)]
                if calls:
                    self._link.several("register", calls)
                self._told |= births or {}
            finally:
                with self._lock:
                    self._registering = False
                    self._ending.notify_all()

    def _running(self, granted: Granted, lives: Mapping[str, Live]) -> tuple[list[str], list[scripts.Argument]]:
        member = granted.member
        args: list[scripts.Argument] = ["", member, member.rpartition(":")[0], granted.tenant]
        args.append("" if granted.local else granted.sent_s)  # by another clock
        for want in granted.wants:
            live = lives[want.resource]
            birth = self._births.get(want.resource, 0.0)
            asked = scripts.asked_of(live.tenant_cap(granted.tenant), want.tokens, birth)
            args += [self._config(live) + asked, granted.sent.get(want.resource, 0)]
        return [scripts.key(want.resource) for want in granted.wants], args

    def _relive(self) -> None:
        """Redis was emptied, says the channel."""
        self._register()

    def _back(self) -> None:
        """Redis answers again: tell it what runs, and what has ended meanwhile."""
        self._local.forget()
        self.renew()
        while self._late:
            granted, report = self._late.popleft()
            if not self._finished(granted, report):
                self._late.appendleft((granted, report))
                return

    def _snapshot(self) -> list[Granted]:
        with self._lock:
            return list(self._held.values())

    def _lives(self, names: Sequence[str]) -> dict[str, Live]:
        lives = self._effective()
        for name in names:
            if name not in lives:
                raise Invalid(f"there is no resource {name!r}; there is {', '.join(lives)}", field="resource")
        return {name: lives[name] for name in names}

    def _known(self, names: Iterable[str]) -> tuple[list[str], list[bytes]]:
        lives = self._effective()
        found = [name for name in names if name in lives and lives[name].resource.held == "call"]
        return [scripts.key(name) for name in found], [
            self._config(lives[name]) + scripts.NOTHING_ASKED for name in found
        ]

    def _config(self, live: Live) -> bytes:
        name = live.resource.name
        found = self._configs.get(name)
        if found is None or found[0] is not live:
            found = self._configs[name] = (live, scripts.config(live))
        return found[1]

    def _ttl_s(self, granted: Granted) -> float:
        lives = self._effective()
        return max(
            (lives[w.resource].resource.permit_ttl_s for w in granted.wants if w.resource in lives), default=60.0
        )


def _reading(row: Sequence[Any]) -> Reading:
    return Reading(
        at_s=float(row[0]),
        limit=int(row[1]),
        proven=int(row[2]),
        ceiling=int(row[3]),
        in_flight=int(row[4]),
        waiting=int(row[5]),
        waiting_p0=int(row[6]),
        asked=int(row[7]),
        mode=row[8].decode(),
        blocked_until_s=float(row[9]),
        breaker=row[10].decode(),
        breaker_until_s=float(row[11]),
        rate_wait_s=float(row[12]),
    )


def _change(row_id: bytes, fields: Mapping[bytes, bytes]) -> Change:
    return Change(
        id=row_id.decode(),
        resource=fields[b"r"].decode(),
        at_s=float(fields[b"t"]),
        old=int(fields[b"o"]),
        new=int(fields[b"n"]),
        reason=fields[b"why"].decode(),
        mode=fields[b"m"].decode(),
    )

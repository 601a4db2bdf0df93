"""Permits of a process that Redis has left alone: careful limits of its own, by the same rules (policy.desk).

The limit is half of what was proven, divided by the processes that live, at least 1; rates are the same share. The
breaker is taken as closed. What runs with a permit from Redis counts too. Nothing here is shared with other processes.
"""

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from harness.policy import desk
from harness.policy.desk import Desk, Sent
from harness.policy.permits import Ask, Granted, Limit, Refused, Report, Want
from harness.policy.resources import Live

SHARE = 0.5  # of what was proven, for all processes together: nobody sees the whole


class Local:
    """The limits of one process while Redis is away; for all its threads."""

    def __init__(self) -> None:
        self._here: dict[str, Desk] = {}
        self._lock = threading.Lock()
        self._epoch_s = time.time() - time.monotonic()  # once: a clock that is put right moves nothing here

    def acquire(
        self, ask: Ask, lives: Mapping[str, Live], running: Collection[Granted], processes: int
    ) -> Granted | Refused:
        """Give permits of all resources or refuse; `running`: what this process holds of whatever origin."""
        with self._lock:
            now_s = self._now_s()
            worst: Refused | None = None
            for want in ask.wants:
                refused = self._refused(ask, want, _share(lives[want.resource], processes), running, now_s)
                if refused is not None and (worst is None or refused.wait_s > worst.wait_s):
                    worst = refused
            if worst is not None:
                return worst
            sent = {}
            for want in ask.wants:
                live = _share(lives[want.resource], processes)
                here = self._at(want.resource, live, now_s)
                n = _running(want.resource, running)
                desk.let_in(here, live, now_s, in_flight=n, tokens=want.tokens, first=ask.first)
                sent[want.resource] = n
            return Granted(member=ask.member, tenant=ask.tenant, wants=ask.wants, sent=sent, sent_s=now_s, local=True)

    def finish(self, granted: Granted, report: Report, lives: Mapping[str, Live], processes: int) -> None:
        """Take over what a call used and whether its resource refused it for rate or is blocked."""
        with self._lock:
            now_s = self._now_s()
            about = report.resource or granted.wants[0].resource
            for want in granted.wants:
                if want.resource not in lives:
                    continue
                live = _share(lives[want.resource], processes)
                here = self._at(want.resource, live, now_s)
                sent = Sent(granted.sent.get(want.resource, 0), granted.sent_s, float(want.tokens), float(want.tokens))
                tokens = (report.tokens or {}).get(want.resource)
                if tokens is not None:
                    desk.used(here, live, now_s, sent, tokens)
                if want.resource == about:
                    for _ in desk.told(here, live, now_s, sent, report, in_flight=0, jitter=0.0):
                        pass

    def retry(self, live: Live, processes: int) -> float:
        """Take one retry from the process's share of the budget. Returns the seconds that it must wait."""
        with self._lock:
            now_s = self._now_s()
            shared = _share(live, processes)
            return desk.retry(self._at(live.resource.name, shared, now_s), shared, now_s)

    def forget(self) -> None:
        """Redis is back: what was learned here is of no use there."""
        with self._lock:
            self._here.clear()

    def _now_s(self) -> float:
        return self._epoch_s + time.monotonic()

    def _refused(self, ask: Ask, want: Want, live: Live, running: Collection[Granted], now_s: float) -> Refused | None:
        here = self._at(want.resource, live, now_s)
        n = _running(want.resource, running)
        for _ in desk.step(here, live, now_s, in_flight=n, waiting=0, priority=ask.priority):
            pass
        found = desk.binding(
            here,
            live,
            now_s,
            in_flight=n,
            ahead=0,
            priority=ask.priority,
            tenant_used=sum(1 for one in running if one.tenant == ask.tenant and _uses(one, want.resource)),
            tenant_cap=live.tenant_cap(ask.tenant),
            tokens=want.tokens,
        )
        if found is None:
            return None
        limit: Limit = "redis" if found[0] == "concurrency" else found[0]
        return Refused(
            resource=want.resource,
            limit=limit,
            wait_s=found[1],
            until_s=now_s + found[1] if found[1] > 0 else 0.0,
            ahead=0,
            limit_now=desk.limit_now(here, live),
        )

    def _at(self, name: str, live: Live, now_s: float) -> Desk:
        found = self._here.get(name)
        if found is None:
            found = self._here[name] = desk.opened(live, now_s, reborn=False)
            found.door_s = 0.0  # nobody else is counted here
        return found


def _share(live: Live, processes: int) -> Live:
    """Return the resource as this process alone may use it."""
    one = live.resource
    share = SHARE / max(1, processes)
    known = min(live.proven or one.capacity, one.capacity) if one.capacity else 0
    capacity = max(1, int(known * share)) if one.capacity else 0
    shared = replace(
        one,
        capacity=capacity,
        limiter="fixed",
        floor=1,
        start=None,
        p0_reserve=0,
        breaker=False,
        rpm=one.rpm * share if one.rpm else None,
        tpm=one.tpm * share if one.tpm else None,
        retry_ratio=one.retry_ratio * share,
        retry_per_s=one.retry_per_s * share,
    )
    return replace(live, resource=shared, proven=None)


def _running(resource: str, running: Collection[Granted]) -> int:
    return sum(1 for one in running if _uses(one, resource))


def _uses(granted: Granted, resource: str) -> bool:
    return any(want.resource == resource for want in granted.wants)

"""The tables of the operations page: pools, resources, tenants. Pure: a look in, rows of words and bars out.

Order is fixed, by configuration or name: nothing moves under a finger.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString

from harness.policy.holds import PRESSURE
from harness.policy.pressure import course
from harness.policy.pressure.course import OTHERS
from harness.policy.resources import Live
from harness.policy.settings import QUARANTINE, SYSTEM
from harness.store.autoscale import Standing
from harness.store.pauses import PauseRow
from harness.store.pressure import STALE_S
from harness.web.pages import marks, times, words
from harness.web.pages.operations.banner import clock
from harness.web.pages.operations.seen import Seen
from harness.web.pages.words import NB

TENANTS_SHOWN = 8
AT_SHARE = 0.9  # of what it is due, from which a waiting tenant is at its share
ROOM = 1.1  # right of the longest bar


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """A row of the pools. `waiting`: P0 to P3; `calm`: what the last column says needs nobody."""

    name: str
    bar: SafeString
    used: str
    zombies: int
    sessions: int
    waiting: tuple[int, ...]
    oldest: str
    says: str
    why: str
    calm: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """A row of the resources. `hits`: its 429s, "" for none; `odd`: the breaker is not closed."""

    name: str
    bar: SafeString
    used: str
    hits: str
    breaker: str
    odd: bool
    now: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Tenant:
    """A row of the tenants. `name` "": several together."""

    name: str
    number: int
    bar: SafeString
    used: str
    waiting: int
    refused: int
    now: str
    calm: bool


def pools(seen: Seen, names: Sequence[str]) -> list[Pool]:
    """Return the pools by configuration. `names`: those there are; system and quarantine only while they hold work."""
    slots: dict[str, int] = defaultdict(int)
    sessions: dict[str, int] = defaultdict(int)
    for one in seen.now.sessions:
        for name, n in one.pools.items():
            sessions[name] += 1
            slots[name] += 0 if one.draining else n
    waiting: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    oldest_s: dict[str, float] = defaultdict(float)
    for line in seen.waiting:
        waiting[line.pool][line.priority] += line.n
        oldest_s[line.pool] = max(oldest_s[line.pool], line.age_s)
    found = []
    for name in names:
        if name in (SYSTEM, QUARANTINE) and not seen.now.in_use.get(name):
            continue
        in_use = seen.now.in_use.get(name, 0)
        behind = any(waiting[name])
        says, why, calm = _says(seen, name, sessions=sessions[name], behind=behind)
        used = f"{in_use:,} of {slots[name]:,}"
        found.append(
            Pool(
                name=name,
                bar=marks.used(in_use / slots[name] if slots[name] else float(in_use > 0), f"{name}: {used} slots"),
                used=used,
                zombies=seen.now.zombies.get(name, 0),
                sessions=sessions[name],
                waiting=tuple(waiting[name]),
                oldest=times.lasted(oldest_s[name]) if behind else "none",
                says=says,
                why=why,
                calm=calm,
            )
        )
    return found


def others(seen: Seen, *, but: str) -> list[Resource]:
    """Return the resources by configuration, without the one whose chart stands first."""
    stood = seen.hour[-1].resources if seen.hour else {}
    found = []
    for name, live in seen.live.items():
        if name == but:
            continue
        now = seen.kept.get(name)
        last = stood.get(name)
        in_use = last.in_use if last else 0
        if now is not None and live.resource.held == "call":
            in_use = now.in_flight
        share = in_use / live.limit if live.limit else 0.0
        hits = last.refused / last.tried if last and last.tried else 0.0
        breaker = (now.breaker if now else "") or ("closed" if live.resource.breaker else "")
        found.append(
            Resource(
                name=name,
                bar=marks.used(share, f"{name}: {in_use:,} of {live.limit:,} in use"),
                used=f"{in_use:,} of {live.limit:,}",
                hits=f"{100 * hits:.2g}{NB}%" if hits else "",
                breaker=breaker.replace("_", " "),
                odd=breaker not in ("", "closed"),
                now="; ".join(notes(live, seen)),
            )
        )
    return found


def notes(live: Live, seen: Seen) -> list[str]:
    """Return what of a resource is out of the ordinary, in words."""
    found = []
    one, now = live.resource, seen.kept.get(live.resource.name)
    if one.capacity == 0:
        found.append("closed by an operator: nothing uses it")
    for field, override in sorted(live.overrides.items()):
        until = "" if override.until_s is None else f" until {clock(override.until_s, seen.at_s)}"
        found.append(f"{field} set by {words.person(override.author)}{until}: “{override.reason}”")
    if now is None:
        return found
    if now.breaker == "open":
        again = now.breaker_until_s
        found.append(f"out of order{f'; next try at {clock(again, seen.at_s, seconds=True)}' if again else ''}")
    if now.breaker == "half_open":
        found.append("a few probes are let through to see whether it answers")
    if now.blocked_until_s and now.blocked_until_s > seen.at_s:
        found.append(f"it asked for a rest until {clock(now.blocked_until_s, seen.at_s, seconds=True)}")
    if one.adaptive and one.capacity and live.limit < one.capacity:
        found.append(f"limited to {live.limit:,} of {one.capacity:,}; this eases by itself")
    if now.waiting:
        found.append(f"{words.counted(now.waiting, 'call')} waiting for a place")
    if now.seen_s is not None and one.held == "call" and seen.at_s - now.seen_s > STALE_S:
        found.append(f"last seen at {clock(now.seen_s, seen.at_s, seconds=True)}")
    return found


def tenants(seen: Seen) -> tuple[list[Tenant], int]:
    """Return who uses the slots, waits or was refused, by name, the rest as one row; and how many there are."""
    used = {one.tenant: one.used for one in seen.used}
    names = {one.tenant: one.name for one in seen.used if one.tenant != OTHERS}
    names |= {one.tenant: one.name for one in seen.refused} | {
        tenant: name for tenant, (name, _) in seen.tenants.items()
    }
    waiting: dict[int, int] = defaultdict(int)
    for line in seen.waiting:
        waiting[line.tenant] += line.n
    refused = {one.tenant: one.refused for one in seen.refused}
    due = course.due(used, {tenant: seen.tenants[tenant][1] for tenant in waiting if tenant in seen.tenants})
    total = sum(used.values())
    share = {tenant: used.get(tenant, 0.0) / total if total else 0.0 for tenant in names}
    busiest = sorted(names, key=lambda one: (-share[one], -waiting[one], -refused.get(one, 0), names[one]))
    first, rest = busiest[:TENANTS_SHOWN], busiest[TENANTS_SHOWN:]
    scale = max(0.01, *(share[one] for one in names), *due.values()) * ROOM if names else 1.0
    found = [
        _tenant(names[one], one, share[one], due.get(one), waiting[one], refused.get(one, 0), scale)
        for one in sorted(first, key=lambda one: (names[one], one))
    ]
    if rest or used.get(OTHERS):
        more = sum(share[one] for one in rest) + (used.get(OTHERS, 0.0) / total if total else 0.0)
        some = sum(waiting[one] for one in rest)
        found.append(
            _tenant("", 0, more, None, some, sum(refused.get(one, 0) for one in rest), max(scale, more * ROOM))
        )
    return found, len(names)


def _tenant(
    name: str, number: int, share: float, due: float | None, waiting: int, refused: int, scale: float
) -> Tenant:
    used = f"{100 * share:.0f}{NB}%"
    said = f"{name or 'the others'}: {used} of the service" + (f", due {100 * due:.0f}{NB}%" if due else "")
    now = "asks for no more"
    if waiting:
        now = "waits" if due is None else _stands(share, due)
    if refused:
        now += ", refused at the door"
    return Tenant(
        name=name,
        number=number,
        bar=marks.used(share / scale, said, due=due / scale if due else None),
        used=used,
        waiting=waiting,
        refused=refused,
        now=now,
        calm=not waiting and not refused,
    )


def _stands(share: float, due: float) -> str:
    if share < AT_SHARE * due:
        return "below its share"
    return "at its share" if share * AT_SHARE <= due else "above its share"


def _says(seen: Seen, pool: str, *, sessions: int, behind: bool) -> tuple[str, str, bool]:
    """Return what the last column says of a pool, its reason, and whether it needs nobody."""
    paused = [_paused(one, pool, seen.at_s) for one in seen.pauses if _concerns(one, pool)]
    if paused:
        return "; ".join(paused), "", False
    advised = seen.advice.get(pool)
    if not sessions:
        return "No worker runs", "", pool in (SYSTEM, QUARANTINE) or (not behind and not _wants(advised))
    if advised is None:
        return "", "", True
    if advised.stale:
        return "Not judged lately", "", True
    one = advised.advice
    if one.desired > one.workers:
        return f"Add {one.desired - one.workers}: {one.binds} binds", one.reason, False
    if one.desired < one.workers:
        return f"Let {one.workers - one.desired} go", one.reason, True
    held = one.holds or (one.wanted > one.desired and behind)
    return f"Keep {one.desired}" + (f": {one.binds} binds" if held else ""), one.reason, not held


def _wants(advised: Standing | None) -> bool:
    return advised is not None and not advised.stale and advised.advice.wanted > 0 and advised.advice.binds != "work"


def _concerns(one: PauseRow, pool: str) -> bool:
    if one.scope == "pool":
        return one.key == pool
    return one.scope == "pool_priority" and one.key.rpartition(".")[0] == pool


def _paused(one: PauseRow, pool: str, now_s: float) -> str:
    what = one.key.rpartition(".")[2].upper() if one.scope == "pool_priority" else "All"
    until = f" until {clock(one.until.timestamp(), now_s)}" if one.until else ""
    who = "pressure" if one.source == PRESSURE else words.person(one.author)
    return f"{what} paused by {who}{until}"

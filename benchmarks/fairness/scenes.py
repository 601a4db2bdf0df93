"""The scenes: who submits what in each, and when to look. The same for every arm; `quick` is the form for CI.

C is 10 in the pool tool_read and 2 in the pool browser, both at once: a pool is planned by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.fairness.score import Arrival, Part, TenantPlan, fan_out, now_and_then, waiting

POOLS: Mapping[int, str] = {10: "tool_read", 2: "browser"}
CALLING = "llm"  # the pool whose kind calls the emulator; 10 slots, so that the caps bind and not the slots
SLOTS: Mapping[str, int] = {"tool_read": 10, "browser": 2, CALLING: 10}

ELEPHANT, VICTIMS = "elephant", tuple(f"victim-{k:02d}" for k in range(20))
WEIGHTS: Mapping[str, tuple[float, float]] = {  # weight, and seconds that a task of it takes
    "heavy": (4.0, 0.25),
    "middle": (2.0, 0.5),
    "light": (1.0, 1.0),
    "light-brief": (1.0, 0.5),
}
MORE_THAN_FAIR = 2.2  # times the work of its fair share that each has, so that none is ever out of work
CLASSES = ("class-a", "class-b")
WAITING_SHARE = {1: 1.25, 2: 0.6, 3: 0.35}  # work of each priority, in units of the whole pool's time
P0_LOAD = 0.05
GATED_S = 3.0
CALL_S, CHAT_TAG = 0.4, "chat"
# (scope, name, cap) of each tenant that calls the provider, None: its own cap; and how many calls it asks for.
CAPPED: Mapping[str, tuple[tuple[str, str] | None, int, int]] = {
    "capped-resource": (("resource", "llm:default"), 3, 18),
    "capped-tenant": (None, 2, 14),
    "capped-pool": (("pool", CALLING), 1, 8),
}
RUN_CAP = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Arrivals, the tenants that must be there, and the span (s after the beginning) that is judged.

    `to_the_end`: wait until everything has run; else what still waits after `until_s` is cancelled.
    """

    name: str
    arrivals: tuple[Arrival, ...]
    tenants: Mapping[str, TenantPlan] = field(default_factory=dict)
    since_s: float = 0.0
    until_s: float = 0.0
    to_the_end: bool = False

    def tasks(self) -> dict[str, int]:
        """Return how many tasks there are of each tag."""
        found: dict[str, int] = {}
        for arrival in self.arrivals:
            for part in arrival.parts:
                found[part.tag] = found.get(part.tag, 0) + part.n
        return found


def elephant(quick: bool) -> Scene:
    """One tenant fans out 1,000 tasks of 1 s (200 where C = 2); twenty others submit now and then: a tenth of it."""
    length_s, duration_s = (3.0, 0.3) if quick else (100.0, 1.0)
    arrivals: list[Arrival] = []
    for slots, pool in POOLS.items():
        n = round(slots * length_s / duration_s)
        arrivals.append(fan_out(ELEPHANT, f"elephant{slots}", n, duration_s, pool))
        every_s = min(10 * duration_s / slots, length_s / 4)
        arrivals += now_and_then(
            VICTIMS,
            f"victims{slots}",
            pool,
            duration_s=duration_s,
            first_s=0.1 * duration_s,
            until_s=0.95 * length_s,
            every_s=every_s,
        )
    return Scene(name="elephant", arrivals=tuple(arrivals), to_the_end=True)


def alone(quick: bool) -> Scene:
    """The same tenant with three tenths of those tasks and nobody else: on a fresh database, where nobody ever was."""
    length_s, duration_s = (1.2, 0.3) if quick else (30.0, 1.0)
    return Scene(
        name="alone",
        tenants={ELEPHANT: TenantPlan()},
        arrivals=tuple(
            fan_out(ELEPHANT, f"alone{slots}", round(slots * length_s / duration_s), duration_s, pool)
            for slots, pool in POOLS.items()
        ),
        to_the_end=True,
    )


def acquainted() -> Scene:
    """Each of the twenty has had a task a moment ago, as who submits now and then has."""
    arrivals = tuple(
        Arrival(
            at_s=0.0,
            tenant=name,
            parts=(Part(tag=f"acquainted{slots}", n=1, first=k, duration_s=0.01, kind=waiting(pool)),),
        )
        for slots, pool in POOLS.items()
        for k, name in enumerate(VICTIMS)
    )
    return Scene(name="acquainted", tenants=dict.fromkeys(VICTIMS, TenantPlan()), arrivals=arrivals, to_the_end=True)


def neighbour(quick: bool) -> Scene:
    """../shared/peerbench (e): A's 2,000 tasks of 50 ms, right after them B's 20; C = 10."""
    n, few = (200, 5) if quick else (2000, 20)
    parts = {tag: Part(tag=tag, n=k, duration_s=0.05, kind=waiting(POOLS[10])) for tag, k in (("A", n), ("B", few))}
    return Scene(
        name="neighbour",
        tenants={"a": TenantPlan(), "b": TenantPlan()},
        arrivals=(
            Arrival(at_s=0.0, tenant="a", parts=(parts["A"],)),
            Arrival(at_s=0.0, tenant="b", parts=(parts["B"],)),
        ),
        to_the_end=True,
    )


def weights(quick: bool) -> Scene:
    """Four tenants of unequal weight whose tasks take unequally long, none of them ever out of work."""
    length_s = 3.0 if quick else 50.0
    total = sum(weight for weight, _ in WEIGHTS.values())
    arrivals = [
        Arrival(
            at_s=0.0,
            tenant=name,
            parts=(
                Part(
                    tag=f"{name}{slots}",
                    n=round(MORE_THAN_FAIR * slots * weight / total * length_s / cost_s) + slots,
                    duration_s=cost_s,
                    kind=waiting(pool),
                ),
            ),
        )
        for slots, pool in POOLS.items()
        for name, (weight, cost_s) in WEIGHTS.items()
    ]
    return Scene(
        name="weights",
        tenants={name: TenantPlan(weight=weight) for name, (weight, _) in WEIGHTS.items()},
        arrivals=tuple(arrivals),
        since_s=0.5 if quick else 3.0,
        until_s=length_s,
    )


def classes(quick: bool, *, with_p0: bool) -> Scene:
    """P1, P2 and P3 with more work than time, of two tenants each; `with_p0`: and P0 with a twentieth of the load."""
    duration_s = 0.2
    length_s = (1.5 if quick else 20.0) if with_p0 else (2.5 if quick else 35.0)
    name = "urgent" if with_p0 else "classes"
    arrivals: list[Arrival] = []
    for slots, pool in POOLS.items():
        full = slots * length_s / duration_s
        for priority, share in WAITING_SHARE.items():
            for half, tenant in enumerate(CLASSES):
                n = round(share * full / 2) + slots
                tag = f"{name}{slots}-p{priority}"
                part = Part(tag=tag, n=n, first=half * n, duration_s=duration_s, kind=waiting(pool))
                arrivals.append(Arrival(at_s=0.0, tenant=tenant, priority=priority, parts=(part,)))
        every_s = duration_s / (P0_LOAD * slots)
        for k in range(int((length_s - 1.0) / every_s) if with_p0 else 0):
            part = Part(tag=f"{name}{slots}-p0", n=1, first=k, duration_s=duration_s, kind=waiting(pool))
            at_s = round(0.5 + every_s * (k + 0.8 * (k * 0.618 % 1.0)), 3)
            arrivals.append(Arrival(at_s=at_s, tenant=CLASSES[k % 2], priority=0, parts=(part,)))
    return Scene(
        name=name,
        tenants={} if with_p0 else dict.fromkeys(CLASSES, TenantPlan()),
        arrivals=tuple(arrivals),
        since_s=0.5 if quick else 3.0,
        until_s=length_s,
    )


def singles(quick: bool) -> Scene:
    """A run of one tenant, and single tasks of the same tenant beside it; C = 10."""
    length_s, duration_s = (2.0, 0.2) if quick else (30.0, 1.0)
    kind = waiting(POOLS[10])
    nodes = 1000 if not quick else 150
    run = Part(tag="nodes", n=nodes, duration_s=duration_s, jitter=0.5, kind=kind)
    several = [
        Arrival(
            at_s=round(0.3 + duration_s * (k + 0.8 * (k * 0.618 % 1.0)), 3),
            tenant="both",
            parts=(Part(tag="singles", n=1, first=k, duration_s=duration_s, jitter=0.5, kind=kind),),
        )
        for k in range(int((length_s - 1.0) / duration_s))
    ]
    return Scene(
        name="singles",
        tenants={"both": TenantPlan()},
        arrivals=(Arrival(at_s=0.0, tenant="both", run=True, parts=(run,)), *several),
        until_s=length_s,
    )


def blocked(quick: bool, *, gate: bool) -> Scene:
    """One run of one tenant: short work that needs nothing and, with `gate`, before it, work for a resource of two."""
    length_s = 2.0 if quick else 9.0
    tag = "beside" if gate else "open"
    free = Part(tag=tag, n=round(1.3 * 10 * length_s / 0.25), duration_s=0.25, kind=waiting(POOLS[10]))
    held = Part(tag="gated", n=40, duration_s=1.0 if quick else GATED_S, kind="bench.gated")
    return Scene(
        name="blocked" if gate else "open",
        tenants={} if gate else {"mixed": TenantPlan()},
        arrivals=(Arrival(at_s=0.0, tenant="mixed", run=True, parts=(held, free) if gate else (free,)),),
        since_s=0.5 if quick else 1.0,
        until_s=length_s,
    )


def capped() -> Scene:
    """Tenants with caps of every kind call the emulator; a run has a fan-out cap. Everything runs to its end."""
    arrivals: list[Arrival] = []
    first = 0
    for name, (_, _, n) in CAPPED.items():
        calls = Part(tag=CHAT_TAG, n=n, first=first, duration_s=CALL_S, kind="llm.chat")
        arrivals.append(Arrival(at_s=0.0, tenant=name, parts=(calls,)))
        first += n
    nodes = Part(tag="capped-run", n=16, duration_s=0.2, kind=waiting(POOLS[10]))
    arrivals.append(Arrival(at_s=0.0, tenant="capped-run", run=True, fanout_cap=RUN_CAP, parts=(nodes,)))
    plans = {
        name: TenantPlan(cap=cap) if on is None else TenantPlan(quotas=((*on, cap),))
        for name, (on, cap, _) in CAPPED.items()
    }
    return Scene(name="capped", tenants=plans | {"capped-run": TenantPlan()}, arrivals=tuple(arrivals), to_the_end=True)


def programme(quick: bool) -> tuple[Scene, ...]:
    """Return all scenes in their order; the first wants to be alone on a fresh database."""
    return (
        alone(quick),
        acquainted(),
        elephant(quick),
        neighbour(quick),
        weights(quick),
        classes(quick, with_p0=False),
        classes(quick, with_p0=True),
        singles(quick),
        blocked(quick, gate=False),
        blocked(quick, gate=True),
        capped(),
    )

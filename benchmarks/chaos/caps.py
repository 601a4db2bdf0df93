"""Was a cap exceeded? Asked of the samples of leases, and, apart from them, of what the receiver saw."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from benchmarks.chaos.history import Caps, Finding, LeaseSeen, Sample
from benchmarks.chaos.view import CLOCK_S, View

Key = tuple[str, str]


def by_lease(seen: View) -> Iterator[Finding]:
    """In no sample are there more members or leases than a cap, and none is released beyond the slots.

    A zombie (a lease without members) counts as one. Slots may go while their leases last, so what is compared with
    them are samples in which a new lease appeared.
    """
    limits = _limits(seen.history.caps)
    before: Sample | None = None
    for sample in seen.history.samples:
        used = _used(sample)
        for key, n in used.items():
            if key[0] != "slots" and n > limits.get(key, n):
                yield _finding(key, f"{n} leased at {sample.at_s:.3f}, of {limits[key]}")
        if before is not None:
            for pool in _pools_with_news(sample, before):
                most = max(sample.slots.get(pool, 0), before.slots.get(pool, 0))
                if used["slots", pool] > most:
                    yield _finding(("slots", pool), f"{used['slots', pool]} leased at {sample.at_s:.3f}, of {most}")
        before = sample


def by_visit(seen: View) -> Iterator[Finding]:
    """At no instant does the receiver see more executions of a tenant, or of a pool, than there may be."""
    limits = _limits(seen.history.caps)
    steps: list[tuple[float, int, Key]] = []
    for visit in seen.visits():
        row = seen.rows.get(visit.token)
        tenant = row.tenant if row else ""
        for key in (("slots", visit.pool), ("tenants", tenant), ("tenants", f"{tenant}/{visit.pool}")):
            steps += [(visit.began_s, 1, key), (max(visit.began_s, visit.ended_s - CLOCK_S), -1, key)]
    times = [sample.at_s for sample in seen.history.samples]
    now: Counter[Key] = Counter()
    for at_s, step, key in sorted(steps):
        now[key] += step
        if step < 0:
            continue
        most = limits.get(key, now[key])
        if key[0] == "slots":
            at = bisect_right(times, at_s)
            near = seen.history.samples[max(0, at - 1) : at + 1]
            most = max((sample.slots.get(key[1], 0) for sample in near), default=now[key])
        if now[key] > most:
            yield _finding(key, f"{now[key]} executed at {at_s:.3f}, of {most}")


def _used(sample: Sample) -> Counter[Key]:
    used: Counter[Key] = Counter()
    for lease in sample.leases:
        members = max(1, len(lease.tasks))
        for pool in _pools(lease):
            used["slots", pool] += 1
        used["tenants", lease.tenant] += members
        used["tenants", f"{lease.tenant}/{lease.pool}"] += members
        used["runs", str(lease.run)] += members
        for part in filter(None, lease.signature.split(",")):
            name, _, n = part.rpartition("=")
            used["resources", name] += int(n)
    return used


def _pools(lease: LeaseSeen) -> set[str]:
    return {lease.pool, lease.via or lease.pool}


def _pools_with_news(sample: Sample, before: Sample) -> set[str]:
    known = {lease.id for lease in before.leases}
    return {pool for lease in sample.leases if lease.id not in known for pool in _pools(lease)}


def _limits(caps: Caps) -> dict[Key, int]:
    return {
        **{("tenants", name): n for name, n in caps.tenants.items()},
        **{("runs", str(run)): n for run, n in caps.runs.items()},
        **{("resources", name): n for name, n in caps.resources.items()},
    }


def _finding(key: Key, what: str) -> Finding:
    return Finding(column="caps_exceeded", subject=f"{key[0]} {key[1]}", what=what)

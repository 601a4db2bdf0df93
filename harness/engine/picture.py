"""The line as a replay needs it (sim.forecast.Picture), read from the tables in one snapshot; and what was left out.

Reads only, and only so much: the tasks nearest to their flows' heads, and how many stand behind them. What may be
in use of a resource is what was kept of it last, as a dispatcher begins with.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from harness.engine.readings import as_kept
from harness.kinds import registry
from harness.policy import outlook
from harness.policy.accounts import ClockRow, CreditRow
from harness.policy.outlook import Course
from harness.policy.reasons import Code
from harness.policy.settings import Topology
from harness.sim.forecast import Behind, Held, Picture, Stream, Waiting, Whose
from harness.store import forecasts, money, resources, snapshot
from harness.store.database import Connection

CAME_LEAST_S = 60.0  # no rate is of less: one batch a second ago is no stream
AGAIN_S = 5.0  # until an attempt that comes back may run again: between the first back-off and the longest
# Bound by one of these, a flow has no start that anybody could tell: a person or a downstream would free it.
SHUT = frozenset({Code.PAUSED, Code.NO_WORKER, Code.TOO_LARGE, Code.BREAKER, Code.BLOCKED, Code.BUDGET})
STEP = 1.25  # of a limit: what moves by less happens all the time, and is no event


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A picture and what stands beside it.

    `shut`: by task, what holds its whole flow (code, subject); `fresh`: tasks that never began; `unfinished`: by run,
    its tasks, as far as they are counted; `waits`: tasks that wait in all, likewise; `rates`: by pool, starts a second;
    `led`: a dispatcher leads; `under`: what the forecasts are made under.
    """

    picture: Picture
    shut: Mapping[int, tuple[str, str]]
    fresh: frozenset[int]
    unfinished: Mapping[int, int]
    waits: int
    rates: Mapping[str, float]
    led: bool
    under: Mapping[str, Any]


def see(connection: Connection, topology: Topology, *, most: int) -> Seen:
    """Look at the line, at `most` tasks of it. Raises: psycopg.Error."""
    with forecasts.reading(connection):
        in_use = snapshot.in_use(connection, charged=2**62)
        scopes = snapshot.scopes(connection)
        line = forecasts.waiting(connection, most=most)
        past = forecasts.past(connection)
        live = resources.effective(connection, topology.resources)
        kept = resources.kept(connection)
        beyond = money.beyond(connection)
        flows = [Whose(pool=f[0], priority=f[1], tenant=f[2], run=f[3], signature=f[4]) for f in line["flows"]]
        held = _held(past["held"])
        planned = [_planned(one) for one in line["planned"]]
        every = [*flows, *(one.whose for one in planned), *(one.whose for one in held)]
        standing = forecasts.standing(
            connection, tenants={one.tenant for one in every}, runs={one.run for one in every if one.run}
        )
    course = Course()
    course.follow(
        outlook.of(live, as_kept(live, kept), at_s=in_use.now_s, taken_s=0.0), in_use.flight
    )  # by the database's clock, which is near enough to Redis's: what is shut is shut for seconds
    capacities, _ = course.capacities(0.0)
    tasks = [
        Waiting(task=t[0], whose=flows[t[1]], kind=t[2], since_s=t[3], single=t[4], lost_starts=t[5])
        for t in line["tasks"]
    ]
    slots = {pool: in_use.slots.get(pool, 0) for pool in topology.pools}
    picture = Picture(
        now_s=in_use.now_s,
        slots=slots,
        kinds=registry.all_kinds(),
        waiting=[*tasks, *planned],
        behind=list(_behind(flows, line, tasks)),
        held=held,
        capacities=capacities,
        quotas=scopes.quotas,
        pauses=scopes.pauses,
        beyond=sorted(beyond),
        tenants={number: (one.cap, one.weight, one.degrade) for number, one in scopes.tenants.items()},
        run_caps={run: cap for run, cap, _ in standing["runs"]},
        estimates=scopes.estimates,
        services={kind: took for kind, took, _ in past["took"]},
        again={kind: (share, AGAIN_S) for kind, _, share in past["took"]},
        streams=_streams(past),
        clocks=_clocks(standing["clocks"]),
        credits=_credits(standing["credits"]),
        level=in_use.level,
    )
    return Seen(
        picture=picture,
        shut={
            task: (flow[6], flow[7])
            for task, number in ((t[0], t[1]) for t in line["tasks"])
            if (flow := line["flows"][number])[6] in SHUT
        },
        fresh=frozenset([t[0] for t in line["tasks"] if not t[6]] + [t[0] for t in line["planned"] if not t[10]]),
        unfinished={run: n for run, _, n in standing["runs"]},
        waits=sum(flow[5] for flow in line["flows"]) + len(planned),
        rates=dict(past["rates"]),
        led=past["led"],
        under={
            "slots": {pool: n for pool, n in slots.items() if n},
            "paused": sorted(f"{scope}:{key}" for scope, key, _, _ in scopes.pauses),
            "level": int(in_use.level),
            "limits": {name: round(log(max(1, n)) / log(STEP)) for name, n in capacities.items() if n < outlook.NO_CAP},
        },
    )


def _held(rows: Iterable[Sequence[Any]]) -> list[Held]:
    return [
        Held(
            whose=Whose(pool=pool, priority=priority, tenant=tenant, run=run, signature=signature),
            via=via,
            members=tuple([(task, kind) for task, kind, _ in members]) if not zombie else (),
            n=n,
            lane=lane,
            est_s=est_s * n,
            cost=cost,
            released_s=released_s,
            claimed_s=claimed_s,
        )
        for (
            pool, via, priority, tenant, run, signature, lane, est_s, cost, n, released_s, claimed_s, zombie, members
        ) in rows
    ]  # fmt: skip


def _planned(row: Sequence[Any]) -> Waiting:
    task, pool, priority, tenant, run, signature, kind, since_s, single, lost_starts, _ = row
    whose = Whose(pool=pool, priority=priority, tenant=tenant, run=run, signature=signature)
    return Waiting(task=task, kind=kind, whose=whose, since_s=since_s, single=single, lost_starts=lost_starts)


def _behind(flows: Sequence[Whose], line: Mapping[str, Any], tasks: Sequence[Waiting]) -> Iterable[Behind]:
    """Yield what stands behind the tasks that are told, as tasks of the kind of the last one that is."""
    last: dict[Whose, Waiting] = {}
    told: dict[Whose, int] = {}
    for one in tasks:
        last[one.whose] = one
        told[one.whose] = told.get(one.whose, 0) + 1
    for whose, flow in zip(flows, line["flows"], strict=True):
        n = flow[5] - told.get(whose, 0)
        if n > 0 and whose in last:
            yield Behind(whose=whose, kind=last[whose].kind, n=n, since_s=last[whose].since_s)


def _streams(past: Mapping[str, Any]) -> list[Stream]:
    span_s = max(CAME_LEAST_S, past["came_s"] or 0.0)
    return [
        Stream(
            whose=Whose(pool=pool, priority=priority, tenant=tenant, signature=signature),
            kind=kind,
            rate_per_s=len(sizes) / span_s,
            sizes=tuple(sizes),
            as_run=as_run,
            fanout_cap=cap,
        )
        for pool, priority, tenant, signature, kind, cap, as_run, sizes in past["came"]
    ]


def _clocks(rows: Iterable[Sequence[Any]]) -> dict[str, list[ClockRow]]:
    found: dict[str, list[ClockRow]] = {}
    for pool, *rest in rows:
        found.setdefault(pool, []).append(ClockRow(*rest))
    return found


def _credits(rows: Iterable[Sequence[Any]]) -> dict[str, list[CreditRow]]:
    found: dict[str, list[CreditRow]] = {}
    for pool, *rest in rows:
        found.setdefault(pool, []).append(CreditRow(*rest))
    return found

"""What a simulation came to: figures by name, the ranges that were missed, and both as text.

`figures` is a tree of numbers; a scenario names one by its path ("waits.victims.p2.p99_s"). Everything but what
it cost (`cost`, the ticks of `by_cell`) follows from scenario and seed.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.policy.lifecycle import Event
from harness.policy.pressure import Level
from harness.sim.foresight import figures as _borne
from harness.sim.meter import Use, quantile
from harness.sim.run import COST_EVERY, Played, play
from harness.sim.scenario import Expect, Scenario
from harness.sim.track import Track

CLASSES = ("p0", "p1", "p2", "p3")
EVENTS = (Event.BURY, Event.FAIL, Event.LOSE, Event.POSTPONE, Event.SUCCEED)
COUNTS = {str(event) for event in EVENTS} | {
    "deferred",
    "expire",
    "handed_back",
    "in_time",
    "late",
    "let_in_early",
    "refused_backlog",
    "refused_deadline",
    "refused_pressure",
    "refused_priority",
    "starts_lost",
    "submitted",
    "withdrawn",
    "workers_lost",
    "zombies",
}
Tree = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The figures, and for each asserted range that was missed a sentence that says which and by what.

    `track`: of the first cell, over time, if it was asked for.
    """

    figures: Tree
    missed: tuple[str, ...]
    track: Track | None = None


def simulate(scenario: Scenario, *, seed: int | None = None, alike: bool = False, tracked: bool = False) -> Report:
    """Play a scenario and report. `seed`: other dice than its own; `alike`, `tracked`: see `play`."""
    seed = scenario.seed if seed is None else seed
    cells = [
        play(scenario, seed=seed, cell=cell, alike=alike, tracked=tracked and not cell)
        for cell in range(scenario.cells_run)
    ]
    figures: Tree = {
        "title": scenario.title,
        "seed": seed,
        "plan": scenario.plan,
        "cells": len(cells),
        "counts": _counts(cells),
        "simulated_s": max(cell.end_s for cell in cells),
        "makespan_s": max(cell.last_s - cell.first_s for cell in cells),
        "waits": _waits(cells),
        "kinds": _kinds(cells),
        "tenants": _by_tenant(cells),
        "groups": _groups(cells),
        "classes": _classes(cells, cells[0].meter.pools),
        "pools": _uses([cell.meter.pools for cell in cells]),
        "resources": _uses([cell.meter.resources for cell in cells]),
        "phases": _phases(cells),
        "starvation": _starvation(cells),
        "pressure": _pressure(cells),
        "eta": _eta(cells, scenario.measure.from_s),
        "calls": _calls(cells),
        "caps_exceeded": sum(_exceeded(cell) for cell in cells),
        "cost": _cost(cells),
    }
    _add_shares(figures["pools"], cells)
    if scenario.cells > 1:
        figures["by_cell"] = [_cell(cell) for cell in cells]
        figures["worst_cell"] = {"p0_p99_s": max(one["p0_p99_s"] for one in figures["by_cell"])}
    return Report(figures=figures, missed=tuple(_missed(figures, scenario.expect)), track=cells[0].track)


def _counts(cells: Sequence[Played]) -> dict[str, int]:
    """What happened how often; what can happen and didn't is 0, so that it can be asserted."""
    total = Counter[str]()
    for cell in cells:
        total.update(cell.counts)
    return {name: total[name] for name in sorted(COUNTS | total.keys())}


def _pressure(cells: Sequence[Played]) -> Tree:
    """The level over time, where it was evaluated: of several cells the worst. Levels are numbers: 0 is normal."""
    found = [cell.pressure for cell in cells if cell.pressure is not None]
    if not found:
        return {}
    changes = [turn for one in found for turn in one.changes]
    return {
        "changes": max(len(one.changes) for one in found),
        "worst": max((int(change.after) for _, change in changes), default=0),
        "last": max(int(one.state.level) for one in found),
        "first_up_s": min((at_s for at_s, _ in changes), default=0.0),
        "last_down_s": max((at_s for at_s, _ in changes), default=0.0),
        "lasted_s": {level.word: max(one.lasted_s[level] for one in found) for level in Level},
        "story": [
            {"at_s": at_s, "to": change.after.word, "by": {name: one.value for name, one in change.signals.items()}}
            for at_s, change in found[0].changes
        ],
    }


def _eta(cells: Sequence[Played], from_s: float) -> Tree:
    """How forecasts were borne out that were made since `from_s`, where any were: of all cells together."""
    found = [one for cell in cells if cell.foresight for one in cell.foresight.made.values() if one.at_s >= from_s]
    return dict(_borne(found)) if found else {}


def _calls(cells: Sequence[Played]) -> Tree:
    """What providers saw while it was measured. `use`, `goodput`: of their quotas; of tasks done in time."""
    found: Tree = {}
    for cell in cells:
        for name, place in cell.downstreams.places.items() if cell.downstreams else ():
            counts, sent = place.counts, max(1, place.counts["sent"])
            place.pass_time(cell.end_s)
            found[name] = {
                "sent": counts["sent"],
                "rate_429": counts["refused"] / sent,
                "failed": counts["failed"],
                "given_back": counts["given_back"],
                "use": place.used_s / place.quota_s if place.quota_s else 0.0,
                "goodput": place.useful_s / place.quota_s if place.quota_s else 0.0,
                "most_in_flight": place.most,
            }
    return found


def find(figures: Mapping[str, Any], path: str) -> float | None:
    """Return the figure of a dotted path, if there is one.

    >>> find({"pools": {"llm": {"use": 0.5}}}, "pools.llm.use"), find({}, "pools.llm.use")
    (0.5, None)
    """
    at: Any = figures
    while path:
        if not isinstance(at, Mapping):
            return None
        # A name may have dots or colons in it (a resource's): the longest that fits.
        name = max((key for key in at if path == key or path.startswith(f"{key}.")), key=len, default=None)
        if name is None:
            return None
        at, path = at[name], path[len(name) + 1 :]
    return float(at) if isinstance(at, int | float) and not isinstance(at, bool) else None


def _missed(figures: Tree, expected: Iterable[Expect]) -> Iterable[str]:
    for one in expected:
        value = find(figures, one.figure)
        if value is None:
            yield f"{one.figure}: the report has no such figure; `simulate --json` shows what it has"
        elif not one.least <= value <= one.most:
            yield f"{one.figure}: {value:g} is not in [{one.least:g}, {one.most:g}]"


def _spread(waits: "Iterable[array[float]]") -> Tree:
    every = array("d")
    for one in waits:
        every.extend(one)
    ordered = sorted(every)
    return {
        "n": len(ordered),
        "mean_s": sum(ordered) / len(ordered) if ordered else 0.0,
        "p50_s": quantile(ordered, 0.50),
        "p95_s": quantile(ordered, 0.95),
        "p99_s": quantile(ordered, 0.99),
        "max_s": ordered[-1] if ordered else 0.0,
    }


def _waits(cells: Sequence[Played]) -> Tree:
    found: dict[str, dict[str, list[array[float]]]] = {"all": {}}
    for cell in cells:
        for (group, _, _, priority, _), waits in cell.meter.waits.items():
            for whose in (group, "all"):
                for which in (CLASSES[priority], "all"):
                    found.setdefault(whose, {}).setdefault(which, []).append(waits)
    return {whose: {which: _spread(waits) for which, waits in sorted(of.items())} for whose, of in found.items()}


def _kinds(cells: Sequence[Played]) -> Tree:
    found: dict[str, list[array[float]]] = {}
    gaps: dict[str, float] = {}
    for cell in cells:
        for (_, _, _, _, kind), waits in cell.meter.waits.items():
            found.setdefault(kind, []).append(waits)
        for kind, line in cell.meter.kinds.items():
            gaps[kind] = max(gaps.get(kind, 0.0), line.gap_s)
    return {kind: _spread(found.get(kind, ())) | {"longest_gap_s": gap_s} for kind, gap_s in sorted(gaps.items())}


def _by_tenant(cells: Sequence[Played]) -> Tree:
    found: dict[str, dict[str, list[array[float]]]] = {}
    for cell in cells:
        for (_, tenant, _, priority, _), waits in sorted(cell.meter.waits.items()):
            if tenant:
                found.setdefault(tenant, {}).setdefault(CLASSES[priority], []).append(waits)
    return {tenant: {which: _spread(waits) for which, waits in of.items()} for tenant, of in found.items()}


def _groups(cells: Sequence[Played]) -> Tree:
    found: Tree = {}
    for cell in cells:
        for tenant in cell.world.tenants.values():
            one = found.setdefault(tenant.group, {"tenants": 0, "most_in_flight": 0, "unfinished": 0})
            one["tenants"] += 1
            one["most_in_flight"] = max(one["most_in_flight"], tenant.most_in_flight)
            one["unfinished"] += tenant.live
        for run in cell.world.runs.values():
            one = found[run.tenant.group]
            one["most_in_flight_of_a_run"] = max(one.get("most_in_flight_of_a_run", 0), run.most_in_flight)
    _add_uses(found, cells)
    return found


def _add_uses(groups: Tree, cells: Sequence[Played]) -> None:
    """What a group used of each pool and resource in the measured time; the largest is its dominant share."""
    capacities: dict[tuple[str, str], float] = {}
    used: dict[tuple[str, str, str], float] = {}
    for cell in cells:
        for what, uses in (("pool", cell.meter.pools), ("resource", cell.meter.resources)):
            for name, use in uses.items():
                capacities[what, name] = capacities.get((what, name), 0.0) + use.capacity_s
        for (what, name, group, _), seconds in cell.meter.used.items():
            used[group, what, name] = used.get((group, what, name), 0.0) + seconds
    for (group, what, name), seconds in used.items():
        if what == "cost":
            continue
        capacity_s = capacities[what, name]
        share = groups[group].setdefault(f"{what}s", {})[name] = seconds / capacity_s if capacity_s else 0.0
        groups[group]["dominant_share"] = max(groups[group].get("dominant_share", 0.0), share)


def _phases(cells: Sequence[Played]) -> Tree:
    """Of each phase: who had the slot-seconds of each pool, by class and by group."""
    found: Tree = {}
    for cell in cells:
        for phase, reading in cell.phases.items():
            pools = found.setdefault(phase, {"pools": {}})["pools"]
            for (what, name, group, priority), seconds in reading.items():
                if what == "pool":
                    pool = pools.setdefault(name, {"classes": dict.fromkeys(CLASSES, 0.0), "groups": {}})
                    pool["classes"][CLASSES[priority]] += seconds
                    pool["groups"][group] = pool["groups"].get(group, 0.0) + seconds
    for phase in found.values():
        for pool in phase["pools"].values():
            for by, seconds in pool.items():
                total_s = sum(seconds.values())
                pool[by] = {
                    name: {"slot_s": one, "share_of_slot_s": one / total_s if total_s else 0.0}
                    for name, one in seconds.items()
                }
    return found


def _classes(cells: Sequence[Played], pools: Iterable[str]) -> Tree:
    names = list(pools)
    starts = [sum(cell.meter.starts[pool][p] for cell in cells for pool in names) for p in range(4)]
    slot_s = [sum(cell.meter.slot_s[pool][p] for cell in cells for pool in names) for p in range(4)]
    return {
        name: {
            "starts": starts[p],
            "slot_s": slot_s[p],
            "share_of_starts": starts[p] / max(1, sum(starts)),
            "share_of_slot_s": slot_s[p] / sum(slot_s) if any(slot_s) else 0.0,
        }
        for p, name in enumerate(CLASSES)
    }


def _uses(cells: Sequence[Mapping[str, Use]]) -> Tree:
    found: Tree = {}
    for name in cells[0]:
        uses = [cell[name] for cell in cells]
        capacity_s = sum(use.capacity_s for use in uses)
        wanted_s = sum(use.wanted_capacity_s for use in uses)
        found[name] = {
            "use": sum(use.used_s for use in uses) / capacity_s if capacity_s else 0.0,
            "use_while_wanted": sum(use.wanted_used_s for use in uses) / wanted_s if wanted_s else 0.0,
        }
    return found


def _add_shares(pools: Tree, cells: Sequence[Played]) -> None:
    for name, pool in pools.items():
        pool["classes"] = _classes(cells, [name])
        capacity_s = sum(cell.meter.pools[name].capacity_s for cell in cells)
        for p, which in enumerate(CLASSES):
            costs = (
                seconds
                for cell in cells
                for (what, whose, _, priority), seconds in cell.meter.used.items()
                if (what, whose, priority) == ("cost", name, p)
            )
            pool["classes"][which]["cost_of_capacity"] = sum(costs) / capacity_s if capacity_s else 0.0
        pool["waits"] = {
            CLASSES[p]: _spread(
                [
                    waits
                    for cell in cells
                    for (_, _, where, priority, _), waits in cell.meter.waits.items()
                    if (where, priority) == (name, p)
                ]
            )
            for p in sorted({key[3] for cell in cells for key in cell.meter.waits if key[2] == name})
        }
        for what in ("slot_seconds", "satisfaction"):
            values = [value for cell in cells for value in getattr(cell.meter.windows[name], what)]
            if values:
                pool[f"jain_{what}"] = {
                    "windows": len(values),
                    "min": min(values),
                    "mean": sum(values) / len(values),
                }


def _starvation(cells: Sequence[Played]) -> Tree:
    longest = {name: max(cell.meter.longest_wait_s[p] for cell in cells) for p, name in enumerate(CLASSES)}
    return {"longest_wait_s": max(longest.values()), **longest}


def _exceeded(cell: Played) -> int:
    tenants = sum(1 for tenant in cell.world.tenants.values() if tenant.exceeded)
    return tenants + sum(1 for run in cell.world.runs.values() if run.exceeded)


def _cost(cells: Sequence[Played]) -> Tree:
    cpu_s = sum(cell.cost.cpu_s for cell in cells)
    starts = sum(cell.counts["starts"] for cell in cells)
    ticks = array("d")
    for cell in cells:
        ticks.extend(cell.cost.ticks_s)
    ordered = sorted(ticks)
    return {
        "cpu_s": cpu_s,
        "tasks_per_s": starts / cpu_s if cpu_s else 0.0,
        "tick_mean_ms": 1000 * sum(ordered) / len(ordered) if ordered else 0.0,
        "tick_p99_ms": 1000 * quantile(ordered, 0.99),
    }


def _cell(cell: Played) -> Tree:
    p0 = [waits for (_, _, _, priority, _), waits in cell.meter.waits.items() if priority == 0]
    cost = _cost([cell])
    return {
        "starts": cell.counts["starts"],
        "p0_p99_s": _spread(p0)["p99_s"],
        "ticks_per_s": cell.counts["ticks"] / cell.end_s if cell.end_s else 0.0,
        "tick_mean_ms": cost["tick_mean_ms"],
        "tick_p99_ms": cost["tick_p99_ms"],
        "planning_share_of_a_core": COST_EVERY * sum(cell.cost.ticks_s) / cell.end_s if cell.end_s else 0.0,
    }

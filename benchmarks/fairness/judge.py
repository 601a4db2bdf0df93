"""What a scene showed: figures from the effect log alone. `began_s` is when its play began (epoch seconds)."""

from collections.abc import Mapping
from typing import Any

from benchmarks.effects import EffectLog
from benchmarks.fairness import measure
from benchmarks.fairness.scenes import POOLS, WEIGHTS, Scene
from benchmarks.statistics_of_runs import quantile

WINDOW_S, STEP_S = 60, 1  # of Jain's index, in units of the mean task


def waits(log: EffectLog, tag: str) -> dict[str, Any]:
    """Return how many tasks of a tag there were and how long they waited, in seconds."""
    found = measure.waits_s(log.read(tag))
    if not found:
        return {"n": 0, "p50_s": None, "p95_s": None, "p99_s": None, "max_s": None}
    quantiles = {f"p{round(100 * q)}_s": round(quantile(found, q), 4) for q in (0.5, 0.95, 0.99)}
    return {"n": len(found), **quantiles, "max_s": round(max(found), 4)}


def elephant(log: EffectLog, slots: int) -> dict[str, Any]:
    """Judge one pool of the scene `elephant`, for any arm."""
    mine, others = log.read(f"elephant{slots}"), log.read(f"victims{slots}")
    return {
        "victims": waits(log, f"victims{slots}"),
        "elephant_tasks": len(mine),
        "makespan_s": round(measure.makespan_s(mine, others), 3),
        "elephant_makespan_s": round(measure.makespan_s(mine), 3),
        "at_once_max": measure.at_once([*mine, *others]),
    }


def weights(log: EffectLog, scene: Scene, began_s: float, slots: int) -> dict[str, Any]:
    """Judge one pool of the scene `weights`. `dry`: tenants that ran out of work, which voids the figure."""
    by_tenant = {name: log.read(f"{name}{slots}") for name in WEIGHTS}
    since_s, until_s = began_s + scene.since_s, began_s + scene.until_s
    inside = [one for effects in by_tenant.values() for one in effects if since_s <= one.ended_s <= until_s]
    used_s = sum(measure.busy_s(effects, since_s, until_s) for effects in by_tenant.values())
    mean_s = used_s / max(1, len(inside))
    window_s = min(WINDOW_S * mean_s, until_s - since_s)
    found = measure.jain_windows(
        by_tenant,
        {name: weight for name, (weight, _) in WEIGHTS.items()},
        since_s=since_s,
        until_s=until_s,
        window_s=window_s,
        step_s=max(STEP_S * mean_s, 0.05),
    )
    submitted = scene.tasks()
    return {
        "jain_min_window": round(min(found), 4) if found else None,
        "jain_whole": round(
            measure.jain([measure.busy_s(by_tenant[n], since_s, until_s) / WEIGHTS[n][0] for n in WEIGHTS]), 4
        ),
        "windows": len(found),
        "window_s": round(window_s, 2),
        "mean_task_s": round(mean_s, 3),
        "starts": len(inside),
        "shares": measure.shares(by_tenant, since_s, until_s),
        "slots_used": round(used_s / (until_s - since_s), 3),
        "dry": [
            name
            for name, effects in by_tenant.items()
            if sum(one.started_s < until_s for one in effects) >= submitted[f"{name}{slots}"]
        ],
    }


def classes(log: EffectLog, scene: Scene, began_s: float, slots: int) -> dict[str, Any]:
    """Judge one pool of the scenes `classes` and `urgent`: shares of P1 to P3 among themselves, and P0's wait."""
    since_s, until_s = began_s + scene.since_s, began_s + scene.until_s
    by_priority = {f"p{number}": log.read(f"{scene.name}{slots}-p{number}") for number in (1, 2, 3)}
    used_s = sum(measure.busy_s(effects, since_s, until_s) for effects in by_priority.values())
    return {
        "shares": measure.shares(by_priority, since_s, until_s),
        "slots_used": round(used_s / (until_s - since_s), 3),
        "starts": sum(since_s <= one.started_s < until_s for effects in by_priority.values() for one in effects),
        "p0": waits(log, f"{scene.name}{slots}-p0"),
    }


def busy(log: EffectLog, scene: Scene, began_s: float) -> dict[str, float]:
    """Return the mean number of slots that each tag of a scene used in its span."""
    since_s, until_s = began_s + scene.since_s, began_s + scene.until_s
    return {
        tag: round(measure.busy_s(log.read(tag), since_s, until_s) / (until_s - since_s), 3) for tag in scene.tasks()
    }


def alone_ratio(log: EffectLog, slots: int, beside: Mapping[str, Any]) -> float | None:
    """Return the elephant's makespan a task beside the others over that alone. 1.1: the others took their tenth."""
    mine = log.read(f"alone{slots}")
    if not mine or not beside["elephant_tasks"]:
        return None
    alone_s = measure.makespan_s(mine) / len(mine)
    return round(float(beside["elephant_makespan_s"]) / int(beside["elephant_tasks"]) / alone_s, 3)


def at_once(log: EffectLog, scene: Scene) -> dict[int, int]:
    """Return how many bodies of a scene ran at once in each pool, at most."""
    by_pool = {}
    for slots, pool in POOLS.items():
        tags = {part.tag for one in scene.arrivals for part in one.parts if _pool_of(part.kind) == pool}
        by_pool[slots] = measure.at_once([effect for tag in sorted(tags) for effect in log.read(tag)])
    return by_pool


def _pool_of(kind: str) -> str:
    return POOLS[10] if kind == "bench.gated" else kind.removeprefix("bench.wait.")

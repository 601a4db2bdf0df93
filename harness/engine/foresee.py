"""Forecasts: a pass looks at the line, replays the real plan 19 times, and keeps what is expected of each task.

load (the last pass and what became of its forecasts; the line) -> decide (sim.forecast, policy.eta) -> commit. A beat
brings it to the pool `system`, in a process of its own: never beside the leader's ticks. Two at once make one pass.

A pass costs what it may cost: it looks at as many tasks as the last one could replay in BUDGET_S of a core, and is
given up after GIVE_UP_S. What it didn't look at has no forecast, and what is old says how old it is.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from harness.engine.picture import Seen, see
from harness.policy import eta
from harness.policy.eta import Borne, Calibration, Range, Shown, Trust
from harness.policy.reasons import Code
from harness.policy.settings import Topology
from harness.sim.forecast import Replayed, Waiting, replay
from harness.store import forecasts
from harness.store.database import Connection
from harness.store.forecasts import First, RunRow, TaskRow
from harness.telemetry import logs

APART_S = 5.0  # two beats may come at different moments: passes closer than this are one
BUDGET_S = 0.6  # seconds of a core for the replays of one pass; a beat brings one every 10 s
GIVE_UP_S = 4.0
MOST_FIRST, MOST_LEAST, MOST = 150, 20, 1000  # tasks that a pass looks at
HORIZON_S = 24 * 3600.0  # who doesn't start by then is in nobody's sight
STEPS_FOR_EACH, STEPS_LEAST = 6, 600  # starts and arrivals of one replay, for each task that it is asked about
FAR, WITHDRAWN = "far", "withdrawn"  # reasons beside those of policy.reasons
OF_RUN = -1  # places of runs in what was shown: below zero, where no task has one

log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Foreseen:
    """What a pass came to. `skipped`: another made it, or just has; `given_up`: it took too long."""

    skipped: bool = False
    given_up: bool = False
    looked_at: int = 0
    took_s: float = 0.0
    calibration: Calibration = field(default_factory=Calibration)


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """What the last pass left. `shown`: by task (of runs: below 0), its start and its end."""

    now_s: float
    at_s: float | None
    most: int
    under: Mapping[str, Any]
    starts: Mapping[int, Range]
    ends: Mapping[int, Range]
    borne: Sequence[Borne]
    plain_s: Sequence[float]
    known: frozenset[int]


def foresee(connection: Connection, topology: Topology, dice: Random, *, again: bool = False) -> Foreseen:
    """Make one pass, if nobody else does or just did (`again`: whoever did). Raises: psycopg.Error."""
    if not forecasts.lock(connection):
        return Foreseen(skipped=True)
    try:
        # 1. Load
        before = _before(forecasts.last(connection))
        if not again and before.at_s is not None and 0.0 <= before.now_s - before.at_s < APART_S:
            return Foreseen(skipped=True)
        seen = see(connection, topology, most=before.most)
        # 2. Decide
        calibration = eta.calibrate(before.borne)
        began_s = time.thread_time()
        played = _play(seen, dice, began_s)
        took_s = time.thread_time() - began_s
        if played is None:
            forecasts.look_at_less(connection, most=max(MOST_LEAST, before.most // 2))
            log.warning("forecasts_given_up", looked_at=len(seen.picture.waiting), took_s=round(took_s, 3))
            return Foreseen(given_up=True, took_s=took_s)
        tasks, first = _of_tasks(seen, played, before, calibration)
        runs = _of_runs(seen, played, before, calibration)
        # 3. Commit
        forecasts.keep(
            connection,
            tasks,
            runs,
            first,
            at_s=seen.picture.now_s,
            took_s=took_s,
            waiting=seen.waits,
            most=_next_most(before.most, took_s, seen),
            trust=calibration.trust,
            calibration=_figures(calibration, before),
            under=seen.under,
        )
    finally:
        forecasts.unlock(connection)
    return Foreseen(looked_at=len(tasks), took_s=took_s, calibration=calibration)


def _before(last: Mapping[str, Any]) -> Before:
    at_s, most, under, _ = last["pass"] or (None, MOST_FIRST, {}, 0.0)
    starts = {task: _range(start_p50, start_p90) for task, start_p50, start_p90, _, _ in last["shown"]}
    ends = {task: _range(end_p50, end_p90) for task, _, _, end_p50, end_p90 in last["shown"]}
    ends |= {OF_RUN - run: _range(end_p50, end_p90) for run, end_p50, end_p90 in last["runs"]}
    borne = [
        Borne(priority, _kept(raw50, raw90), None if p50 is None else _kept(p50, p90), age_s, actual_s)
        for priority, age_s, raw50, raw90, p50, p90, actual_s, _ in last["borne"]
    ]
    return Before(
        now_s=last["now"],
        at_s=at_s,
        most=most,
        under=under,
        starts=starts,
        ends=ends,
        borne=borne,
        plain_s=[row[7] for row in last["borne"]],
        known=frozenset(last["known"]),
    )


def _range(p50_s: float | None, p90_s: float | None) -> Range:
    return Range(math.inf if p50_s is None else p50_s, math.inf if p90_s is None else p90_s)


def _kept(p50_s: float, p90_s: float) -> Range:
    """Return a range as it was before it was written down: what lay beyond the horizon was in nobody's sight."""
    return Range(*(value if value < HORIZON_S else math.inf for value in (p50_s, p90_s)))


def _play(seen: Seen, dice: Random, began_s: float) -> list[Replayed] | None:
    """Replay; None: it took too long."""
    waiting = len(seen.picture.waiting)
    steps_most = STEPS_FOR_EACH * waiting + STEPS_LEAST
    played: list[Replayed] = []
    while len(played) < eta.REPLAYS:
        if time.thread_time() - began_s > GIVE_UP_S:
            return None
        of_this = Random(dice.getrandbits(64))
        played.append(replay(seen.picture, of_this, horizon_s=HORIZON_S, steps_most=steps_most))
    return played


def _next_most(most: int, took_s: float, seen: Seen) -> int:
    """How many tasks the next pass looks at: so many as this one could have replayed in its time."""
    looked_at = len(seen.picture.waiting)
    if not looked_at or (took_s < BUDGET_S and looked_at < most):
        return most
    fits = round(looked_at * BUDGET_S / max(took_s, 1e-3))
    return max(MOST_LEAST, min(MOST, fits, 2 * most))


def _of_tasks(
    seen: Seen, played: Sequence[Replayed], before: Before, calibration: Calibration
) -> tuple[list[TaskRow], list[First]]:
    now_s = seen.picture.now_s
    raw = {one.task: _raw([p.starts_s for p in played], one.task) for one in seen.picture.waiting}
    places = _places(seen.picture.waiting, raw)
    plain_s = _plain(seen)
    rows, first = [], []
    for one in seen.picture.waiting:
        task, tenant = one.task, one.whose.tenant
        shown = eta.corrected(raw[task], eta.factors_of(calibration, one.whose.priority))
        reason, subject = _why_not(seen, calibration, task, shown)
        if reason in ("", FAR, WITHDRAWN) and task in seen.fresh and task not in before.known:
            said = None if calibration.trust is Trust.WITHDRAWN else shown
            first.append(_first(one, raw[task], said, plain_s[task]))
        if reason:
            place = places[task] if reason in (FAR, WITHDRAWN) else None
            rows.append(TaskRow(task=task, tenant=tenant, position=place, reason=reason, subject=subject))
            continue
        start, moved = _eased(before, before.starts.get(task), shown, seen)
        later_s = shown.p50_s - raw[task].p50_s
        ends = _raw([p.ends_s for p in played], task)
        end, _ = _eased(before, before.ends.get(task), Range(ends.p50_s + later_s, ends.p90_s + later_s), seen)
        rows.append(
            TaskRow(
                task=task,
                tenant=tenant,
                position=places[task],
                start_p50=start.p50_s,
                start_p90=_known(start.p90_s),
                end_p50=_known(max(end.p50_s, start.p50_s)),
                end_p90=_known(max(end.p90_s, start.p90_s)),
                moved=moved or "",
            )
        )
    for held in seen.picture.held:
        for task, _ in held.members:
            found = _raw([p.ends_s for p in played], task)
            if not math.isfinite(found.p50_s):
                continue
            end, moved = _eased(before, before.ends.get(task), found, seen)
            rows.append(
                TaskRow(
                    task=task,
                    tenant=held.whose.tenant,
                    end_p50=max(now_s, end.p50_s),
                    end_p90=_known(end.p90_s),
                    moved=moved or "",
                )
            )
    return rows, first


def _why_not(seen: Seen, calibration: Calibration, task: int, shown: Range) -> tuple[str, str]:
    """Why no range is shown; ("", ""): one is."""
    if not seen.led:
        return Code.NO_DISPATCHER, ""
    if task in seen.shut:
        return seen.shut[task]
    if not math.isfinite(shown.p50_s):
        return FAR, ""
    return (WITHDRAWN, "") if calibration.trust is Trust.WITHDRAWN else ("", "")


def _of_runs(seen: Seen, played: Sequence[Replayed], before: Before, calibration: Calibration) -> list[RunRow]:
    """When the last task of each run ends: of runs all of whose tasks were looked at."""
    told: dict[int, list[tuple[int, int]]] = {}
    for one in seen.picture.waiting:
        told.setdefault(one.whose.run, []).append((one.task, one.whose.tenant))
    for held in seen.picture.held:
        told.setdefault(held.whose.run, []).extend((task, held.whose.tenant) for task, _ in held.members)
    rows = []
    for run, tasks in told.items():
        if not run or not tasks:
            continue
        tenant = tasks[0][1]
        shut = next((seen.shut[task][0] for task, _ in tasks if task in seen.shut), "")
        ends = eta.of_replays([max(one.ends_s.get(task, math.inf) for task, _ in tasks) for one in played])
        whole = len(tasks) >= seen.unfinished.get(run, 0) and math.isfinite(ends.p50_s)
        reason = Code.NO_DISPATCHER if not seen.led else shut or ("" if whole else FAR)
        if not reason and calibration.trust is Trust.WITHDRAWN:
            reason = WITHDRAWN
        if reason:
            rows.append(RunRow(run=run, tenant=tenant, reason=reason))
            continue
        end, moved = _eased(before, before.ends.get(OF_RUN - run), ends, seen)
        rows.append(RunRow(run=run, tenant=tenant, end_p50=end.p50_s, end_p90=_known(end.p90_s), moved=moved or ""))
    return rows


def _eased(before: Before, last: Range | None, made: Range, seen: Seen) -> tuple[Range, str | None]:
    """Return the moments to show of a range in seconds from now."""
    now_s = seen.picture.now_s
    shown = None if last is None else Shown(last, before.under)
    return eta.smooth(shown, Shown(Range(now_s + made.p50_s, now_s + made.p90_s), seen.under), now_s)


def _raw(played: Sequence[Mapping[int, float]], task: int) -> Range:
    return eta.of_replays([one.get(task, math.inf) for one in played])


def _places(waiting: Sequence[Waiting], raw: Mapping[int, Range]) -> dict[int, int]:
    """Return the place of each task among those of its pool, in the order in which they are expected to start."""
    ordered = sorted(waiting, key=lambda one: (raw[one.task].p50_s, one.task))
    ahead: dict[str, int] = {}
    found = {}
    for one in ordered:
        found[one.task] = ahead[one.whose.pool] = ahead.get(one.whose.pool, 0) + 1
    return found


def _plain(seen: Seen) -> dict[int, float]:
    """Backlog over rate: who in the pool is more urgent, or as urgent and older, over starts a second."""
    ahead: dict[str, int] = {}
    found = {}
    for one in sorted(seen.picture.waiting, key=lambda one: (one.whose.priority, one.task)):
        pool = one.whose.pool
        ahead[pool] = ahead.get(pool, 0) + 1
        found[one.task] = min(HORIZON_S, ahead[pool] / max(seen.rates.get(pool, 0.0), 1e-4))
    return found


def _first(one: Waiting, raw: Range, shown: Range | None, plain_s: float) -> First:
    return First(
        task=one.task,
        priority=one.whose.priority,
        raw_p50_s=min(raw.p50_s, HORIZON_S),
        raw_p90_s=min(raw.p90_s, HORIZON_S),
        shown_p50_s=None if shown is None else min(shown.p50_s, HORIZON_S),
        shown_p90_s=None if shown is None else min(shown.p90_s, HORIZON_S),
        plain_s=plain_s,
    )


def _figures(calibration: Calibration, before: Before) -> dict[str, Any]:
    """What is published of how forecasts are borne out; `pinball_ratio`: the loss over that of backlog over rate."""
    known = [
        (one, plain_s)
        for one, plain_s in zip(before.borne, before.plain_s, strict=True)
        if one.actual_s is not None and one.shown is not None and math.isfinite(one.shown.p90_s)
    ][: eta.JUDGED]
    ours_s = sum(eta.pinball(one.actual_s, one.shown) for one, _ in known if one.actual_s is not None and one.shown)
    plain = sum(eta.pinball(one.actual_s, Range(p, p)) for one, p in known if one.actual_s is not None)
    found = asdict(calibration)
    del found["factors"], found["trust"]
    return found | {"pinball_ratio": ours_s / plain if plain > 0 else None}


def _known(at_s: float) -> float | None:
    return at_s if math.isfinite(at_s) else None

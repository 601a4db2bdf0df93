"""From what would be enough now to a number that somebody can act on. Pure; one evaluation after another.

S1  Up: to what is enough now, at most to the double or four more each UP_EVERY_S.
S2  Not up: while the downstream that binds refuses, or the pressure is high by what stands behind the workers.
S3  Down: to the most that was enough in the last WINDOW_S, a tenth (at least one) each DOWN_EVERY_S.
S4  Down at once: to what a limit that has been found for CAP_S keeps at work; who is beyond it has nothing to do.
S5  Never below what runs: tasks in slots are counted as processes full of them.
S6  Turning: COOL_S after the last change; a second turn within WINDOW_S needs a half more, and two.
S7  Times are those of the steps: what passed between two, 15 s at most, so a clock that steps changes nothing.

Invariants: at most one turn of direction in WINDOW_S under a load that comes and goes within it; no step beyond S1.
"""

from dataclasses import dataclass, replace
from math import ceil

from harness.policy.autoscale.size import Crew, Size

EVERY_S = 5.0  # between two evaluations
STEP_MOST_S = 15.0
UP_EVERY_S = 15.0
UP_LEAST = 4
DOWN_EVERY_S = 60.0
DOWN_RATIO = 0.1
WINDOW_S = 600.0
BUCKET_S = 60.0
CAP_S = 30.0
CAPS_LEAST = 3
COOL_S = 15.0
TURN_RATIO, TURN_LEAST = 1.5, 2
LONG_AGO_S = -1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """What is known of a pool from earlier steps. `now_s`: by the steps' own time; moments by the same.

    `desired` None: nobody has looked yet. `peaks`: (when it began, the most that was enough) of each BUCKET_S;
    `caps`: (when, processes beyond which nothing gets work), for CAP_S. `up`: which way it went last.
    """

    now_s: float = 0.0
    desired: int | None = None
    peaks: tuple[tuple[float, int], ...] = ()
    caps: tuple[tuple[float, int], ...] = ()
    up: bool | None = None
    up_s: float = LONG_AGO_S
    down_s: float = LONG_AGO_S
    turned_s: float = LONG_AGO_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """What a pool should have. `wanted`: what would be enough this moment; `holds`: nothing may be added now."""

    pool: str
    workers: int
    desired: int
    wanted: int
    binds: str
    reason: str
    holds: bool = False


def step(memory: Memory, crew: Crew, found: Size, passed_s: float) -> tuple[Memory, Advice]:
    """Evaluate once. `passed_s`: since the last time.

    >>> crew, enough = Crew(pool="llm", each=8, workers=1), Size(workers=9, binds="work", reason="")
    >>> _, advice = step(Memory(), crew, enough, 5.0)
    >>> advice.desired
    5
    """
    now_s = memory.now_s + min(max(passed_s, 0.0), STEP_MOST_S)
    before = crew.workers if memory.desired is None else memory.desired
    peaks = _peaks(memory.peaks, now_s, found.workers)
    if memory.desired is None:  # until a window has passed nobody knows what the others were for
        peaks = _peaks(peaks, now_s, crew.workers)
    # A limiter that has found its limit asks now and then for more, so a look between may find none.
    caps = tuple([one for one in memory.caps if one[0] >= now_s - CAP_S])
    caps = caps if found.cap is None else (*caps, (now_s, found.cap))
    memory = replace(memory, now_s=now_s, desired=before, peaks=peaks, caps=caps)
    after = _after(memory, crew, found, before)
    if after != before:
        memory = _turned(memory, after)
    told = after
    if found.holds:
        told = min(after, max(crew.workers, min(after, found.workers)))
    return memory, Advice(
        pool=crew.pool,
        workers=crew.workers,
        desired=told,
        wanted=found.workers,
        binds=found.binds,
        reason=found.reason,
        holds=found.holds,
    )


def _after(memory: Memory, crew: Crew, found: Size, before: int) -> int:
    now_s = memory.now_s
    wanted = found.workers
    if wanted > before:
        return min(wanted, max(2 * before, before + UP_LEAST)) if _may_rise(memory, found, before) else before
    cap = _cap(memory)
    target = max(most for _, most in memory.peaks)
    target = target if cap is None else min(target, cap)
    running = ceil(crew.in_use / crew.each - 1e-9)
    if target >= before or now_s - memory.up_s < COOL_S or running >= before:
        return before
    if cap is not None and cap < before and now_s - memory.down_s >= COOL_S:
        return max(cap, running)
    if now_s - memory.down_s < DOWN_EVERY_S:
        return before
    return max(target, running, before - max(1, int(DOWN_RATIO * before)))


def _may_rise(memory: Memory, found: Size, before: int) -> bool:
    if found.holds or memory.now_s - memory.up_s < UP_EVERY_S:
        return False
    if memory.up is not False:
        return True
    again = memory.now_s - memory.turned_s < WINDOW_S
    much = found.workers >= max(before + TURN_LEAST, TURN_RATIO * before)
    return memory.now_s - memory.down_s >= COOL_S and (not again or much)


def _cap(memory: Memory) -> int | None:
    """What all limits together have been found to keep at work, for long enough; None: not yet."""
    if len(memory.caps) < CAPS_LEAST:
        return None
    return max(cap for _, cap in memory.caps)


def _peaks(peaks: tuple[tuple[float, int], ...], now_s: float, wanted: int) -> tuple[tuple[float, int], ...]:
    kept = [one for one in peaks if one[0] > now_s - WINDOW_S - BUCKET_S]
    if kept and now_s - kept[-1][0] < BUCKET_S:
        return (*kept[:-1], (kept[-1][0], max(kept[-1][1], wanted)))
    return (*kept, (now_s, wanted))


def _turned(memory: Memory, after: int) -> Memory:
    assert memory.desired is not None
    up, now_s = after > memory.desired, memory.now_s
    turned_s = now_s if memory.up is not None and memory.up is not up else memory.turned_s
    moved = replace(memory, desired=after, up=up, turned_s=turned_s)
    return replace(moved, up_s=now_s) if up else replace(moved, down_s=now_s)

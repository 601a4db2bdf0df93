"""The level machine: from one evaluation of the signals to the next. Pure; rules of policy.md 6.2 with R7.

L1  What signals ask for: the worst hard one, or the second worst of all, or the worst less one; `alone` counts as hard.
    So one noisy soft signal never asks for its full level. What is capped counts no more than somebody waits.
L2  Up: to what two evaluations in a row ask for, at least; to critical at once when a hard signal is critical.
L3  Down: one step, after no evaluation has asked for the level at 0.8 of all thresholds for the dwell of that level.
L4  A level that is entered by the second reversal (up after down) in 10 minutes, or a later one, dwells twice as long.
L5  A reading that is missing stands for 30 s; from then on the level is held: it may rise by others, and never falls.
L6  Times are those of the machine: what passed between two evaluations, 15 s at most. So neither a clock that steps nor
    a beat that was away makes a level fall that nobody watched.

Invariants: any level may be left upwards, and downwards by one step; a level is left downwards no earlier than its
dwell after it was entered; with all signals at 0, normal is reached within the sum of the dwells and a minute.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from harness.policy.pressure.signals import SIGNALS, WAITS, Level, Signal

EVERY_S = 5.0  # between two evaluations
CALM_RATIO = 0.8  # of a threshold, under which it doesn't hold a level any more
DWELL_S = {Level.ELEVATED: 60.0, Level.HIGH: 90.0, Level.CRITICAL: 120.0}
MISSING_S = 30.0  # that a reading stands
STEP_MOST_S = 15.0  # of one evaluation: three beats
REVERSALS_S = 600.0
REVERSALS_MOST = 2
SAMPLES = 6  # of 5 s: the 30 s over which readings combine


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known of a signal: its last readings, the newest last, and when the last came, by the machine's time."""

    readings: tuple[float, ...]
    at_s: float

    def value(self, signal: Signal) -> float:
        """Return what the readings of the last 30 s come to."""
        match signal.over:
            case "least":
                return min(self.readings)
            case "mean":
                return sum(self.readings) / len(self.readings)
            case _:
                return self.readings[-1]


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What the machine knows. `now_s`: its time. `asked`: the level that the last evaluation asked for.

    `calm_s`: since when nothing asks for the level, None: something does. `turns`: (when, whether up) of the changes in
    the last 10 minutes; `restless`: the level that dwells twice as long.
    """

    level: Level = Level.NORMAL
    now_s: float = 0.0
    asked: Level = Level.NORMAL
    calm_s: float | None = None
    turns: tuple[tuple[float, bool], ...] = ()
    restless: Level | None = None
    known: Mapping[str, Known] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A signal as an evaluation saw it. `score`: 0 to 3; `missing`: nobody could read it for more than 30 s."""

    value: float
    score: int
    missing: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The level has changed. `signals`: those that asked for more than normal, the worst first."""

    before: Level
    after: Level
    signals: Mapping[str, Reading]


def step(
    state: State, readings: Mapping[str, float | None], passed_s: float, signals: Mapping[str, Signal] = SIGNALS
) -> tuple[State, Change | None]:
    """Evaluate once. `readings`: by signal, None: it couldn't be read; `passed_s`: since the last evaluation."""
    now_s = state.now_s + min(max(passed_s, 0.0), STEP_MOST_S)
    turns = tuple([turn for turn in state.turns if now_s - turn[0] <= REVERSALS_S])
    known = _learn(state.known, readings, now_s, signals)
    state = replace(state, now_s=now_s, known=known, turns=turns, restless=state.restless if turns else None)
    seen = read(state, signals)
    there = {name: one.value for name, one in seen.items() if not one.missing}
    asked = asks(scores(there, signals), signals)
    urgent = any(one.score == Level.CRITICAL and signals[name].hard for name, one in seen.items() if not one.missing)
    after = state.level
    if asked > state.level:
        after = Level.CRITICAL if urgent else Level(max(state.level, min(asked, state.asked)))
        state = replace(state, asked=asked, calm_s=None)
    elif (
        state.level is Level.NORMAL
        or any(one.missing for one in seen.values())
        or asks(scores(there, signals, CALM_RATIO), signals) >= state.level
    ):
        state = replace(state, asked=asked, calm_s=None)
    else:
        calm_s = now_s if state.calm_s is None else state.calm_s
        if now_s - calm_s >= dwell_s(state):
            after = Level(state.level - 1)
        state = replace(state, asked=asked, calm_s=calm_s)
    if after is state.level:
        return state, None
    change = Change(before=state.level, after=after, signals=worst_first(seen))
    return _turned(state, after), change


def read(state: State, signals: Mapping[str, Signal] = SIGNALS) -> dict[str, Reading]:
    """Return each signal that is known, with its score."""
    values = {name: one.value(signals[name]) for name, one in state.known.items() if name in signals}
    scored = scores(values, signals)
    return {
        name: Reading(value=value, score=scored[name], missing=state.now_s - state.known[name].at_s > MISSING_S)
        for name, value in values.items()
    }


def scores(values: Mapping[str, float], signals: Mapping[str, Signal], ratio: float = 1.0) -> dict[str, int]:
    """Return the score of each value; what is capped scores no more than somebody waits. `ratio`: of the thresholds."""
    found = {name: signals[name].score(value, ratio) for name, value in values.items()}
    waits = max((found.get(name, 0) for name in WAITS), default=0)
    return {name: min(score, waits) if signals[name].capped else score for name, score in found.items()}


def asks(scored: Mapping[str, int], signals: Mapping[str, Signal] = SIGNALS) -> Level:
    """Return the level that scores ask for (rule L1).

    >>> asks({"oldest_age": 3}), asks({"oldest_age": 3, "p1_wait": 3}), asks({"demand": 2}), asks({"retry_storm": 3})
    (<Level.HIGH: 2>, <Level.CRITICAL: 3>, <Level.HIGH: 2>, <Level.CRITICAL: 3>)
    """
    ordered = sorted(scored.values(), reverse=True)
    full = max((score for name, score in scored.items() if signals[name].hard or signals[name].alone), default=0)
    second = ordered[1] if len(ordered) > 1 else 0
    return Level(max(full, second, ordered[0] - 1 if ordered else 0))


def dwell_s(state: State) -> float:
    """Return how long nothing may ask for the level until it is left downwards (rules L3, L4)."""
    return DWELL_S[state.level] * (2.0 if state.restless is state.level else 1.0)


def worst_first(seen: Mapping[str, Reading]) -> dict[str, Reading]:
    """Return the signals that score, the worst first."""
    found = [(name, one) for name, one in seen.items() if one.score and not one.missing]
    return dict(sorted(found, key=lambda item: (-item[1].score, item[0])))


def _learn(
    known: Mapping[str, Known], readings: Mapping[str, float | None], now_s: float, signals: Mapping[str, Signal]
) -> dict[str, Known]:
    found = {name: one for name, one in known.items() if name in signals}
    for name, value in readings.items():
        if value is None or name not in signals:
            continue
        last = found.get(name)
        # Readings on both sides of a gap are not of the same 30 s.
        before = last.readings if last is not None and now_s - last.at_s <= MISSING_S else ()
        found[name] = Known(readings=(*before, value)[-SAMPLES:], at_s=now_s)
    return found


def _turned(state: State, after: Level) -> State:
    up = after > state.level
    again = up and bool(state.turns) and not state.turns[-1][1]
    turns = (*state.turns, (state.now_s, up))
    reversals = sum(now and not before for (_, before), (_, now) in pairwise(turns))
    restless = after if again and reversals >= REVERSALS_MOST else state.restless
    return replace(state, level=after, calm_s=None, turns=turns, restless=restless)

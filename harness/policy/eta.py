"""Expected starts and ends as ranges, how they were borne out, and what is shown of them (rule 15). Pure.

What is expected comes from replays of the plan: of 19 values the 10th is as likely too early as too late, and 9 of 10
truths lie below the 18th. Each is then corrected by what became of earlier ones (`corrected`): the ratio of actual to
expected, of which the same quantile is taken. What people see moves smoothly (`smooth`), unless something happened.

Invariants: P50 <= P90; no shown moment lies in the past; a range that isn't borne out widens, then is withdrawn; what
still waits beyond its P90 is counted as a miss at once, not when it ends.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

REPLAYS = 19
P50_AT, P90_AT = 9, 17  # places among the 19, from 0
RATIOS = 500  # of the last forecasts that were borne out or not
OF_CLASS_LEAST = 60  # ratios of one class from which on it is corrected by its own
JUDGED = 200  # the last of them say whether what is shown is right
JUDGED_LEAST, PASSES_LEAST = 40, 8  # fewer, or of fewer passes, say nothing: the replays' word alone is shown
SPARE_S = 1.0  # added to both sides of a ratio: a second more or less is no error of a wait that hardly was one
PASSES_HALF = 20  # forecasts of one pass err together: with so many passes a correction goes half the way
FACTOR_LEAST, FACTOR_MOST = 0.2, 5.0  # of a correction
WIDEN_BELOW, WITHDRAW_BELOW = 0.82, 0.6  # share of truths below the P90 that was shown
WIDER_AT = 0.95  # the quantile of the ratios that a widened range goes by
WEIGHT = 0.3  # of a new forecast in what is shown
JUMP_MOST = 0.25  # of what is left to wait
JUMP_FREE_S = 5.0  # a move that nobody would call a jump
TAUS = (0.5, 0.9)


class Trust(StrEnum):
    """What becomes of forecasts, by how the last were borne out. Names are wire values."""

    LEARNING = "learning"
    GOOD = "good"
    WIDENED = "widened"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Range:
    """A moment as a range: as likely before `p50_s` as after; 9 of 10 times before `p90_s`. inf: not in sight."""

    p50_s: float
    p90_s: float


@dataclass(frozen=True, slots=True)
class Shown:
    """What was shown last, and what it was made under (slots, pauses, limits, level: see `moved`)."""

    range: Range
    under: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Borne:
    """A forecast and the truth, in seconds from when it was made.

    `raw`: what the replays said; `shown`: after correction, None if it was withdrawn; `actual_s`: None, it still waits.
    `age_s`: how long ago it was made.
    """

    priority: int
    raw: Range
    shown: Range | None
    age_s: float
    actual_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """How forecasts were borne out: shares of truths below what was shown, and the mean pinball loss in seconds.

    `factors`: by class (None: of all), what P50 and P90 are multiplied by. `n`: forecasts judged.
    """

    trust: Trust = Trust.LEARNING
    n: int = 0
    p50_covers: float | None = None
    p90_covers: float | None = None
    pinball_s: float | None = None
    spread: float | None = None
    factors: Mapping[int | None, tuple[float, float]] = field(default_factory=dict)


def of_replays(values: Sequence[float]) -> Range:
    """Return the range of what the replays came to; inf where one didn't come to it.

    >>> of_replays([float(n) for n in range(1, 20)])
    Range(p50_s=10.0, p90_s=18.0)
    """
    if len(values) != REPLAYS:
        raise ValueError(f"a range is made of {REPLAYS} replays, not of {len(values)}")
    ordered = sorted(values)
    return Range(ordered[P50_AT], ordered[P90_AT])


def ratio(actual_s: float, expected_s: float) -> float:
    """Return how much longer it took than expected."""
    return (actual_s + SPARE_S) / (expected_s + SPARE_S)


def corrected(expected: Range, factors: tuple[float, float]) -> Range:
    """Return a range (seconds from now) corrected by what became of earlier ones."""
    p50_s = max(0.0, (expected.p50_s + SPARE_S) * factors[0] - SPARE_S)
    return Range(p50_s, max(p50_s, (expected.p90_s + SPARE_S) * factors[1] - SPARE_S))


def calibrate(borne: Iterable[Borne]) -> Calibration:
    """Judge the last forecasts, the newest first: correct the next ones by them, widen or withdraw those.

    One that still waits says something only once it has waited longer than was expected.
    """
    known = [one for one, _ in zip(_told(borne), range(RATIOS), strict=False)]
    shown = [(one, actual_s, one.shown) for one, actual_s in known if one.shown is not None][:JUDGED]
    if len(shown) < JUDGED_LEAST:
        # Withdrawn ones go on being made: they come back by what the replays alone would have shown.
        shown = [(one, actual_s, one.shown or one.raw) for one, actual_s in known][:JUDGED]
    n = len(shown)
    if n < JUDGED_LEAST or _passes(known) < PASSES_LEAST:
        return Calibration(n=n)
    p90_covers = sum(actual_s <= said.p90_s for _, actual_s, said in shown) / n
    trust = Trust.GOOD
    if p90_covers < WIDEN_BELOW:
        trust = Trust.WIDENED if p90_covers >= WITHDRAW_BELOW else Trust.WITHDRAWN
    wide = WIDER_AT if trust is not Trust.GOOD else TAUS[1]
    factors: dict[int | None, tuple[float, float]] = {None: _factors(known, wide)}
    for priority in {one.priority for one, _ in known}:
        own = [(one, actual_s) for one, actual_s in known if one.priority == priority]
        if len(own) >= OF_CLASS_LEAST:
            factors[priority] = _factors(own, wide)
    losses_s = [pinball(actual_s, said) for _, actual_s, said in shown if math.isfinite(said.p90_s)]
    spreads = sorted(said.p90_s / said.p50_s for _, _, said in shown if said.p50_s > 0 and math.isfinite(said.p90_s))
    return Calibration(
        trust=trust,
        n=n,
        p50_covers=sum(actual_s <= said.p50_s for _, actual_s, said in shown) / n,
        p90_covers=p90_covers,
        pinball_s=sum(losses_s) / len(losses_s) if losses_s else None,
        spread=spreads[len(spreads) // 2] if spreads else None,
        factors=factors,
    )


def factors_of(calibration: Calibration, priority: int) -> tuple[float, float]:
    """Return what the forecasts of a class are multiplied by."""
    found = calibration.factors
    return found.get(priority) or found.get(None) or (1.0, 1.0)


def pinball(actual_s: float, said: Range) -> float:
    """Return the loss of a range: the sum over its two quantiles.

    >>> pinball(10.0, Range(4.0, 20.0)), pinball(30.0, Range(4.0, 20.0))
    (4.0, 22.0)
    """
    return _loss(actual_s, said.p50_s, TAUS[0]) + _loss(actual_s, said.p90_s, TAUS[1])


def moved(before: Mapping[str, object], now: Mapping[str, object]) -> str | None:
    """Return what happened between two forecasts that lets the shown one jump: the first name whose value differs.

    >>> moved({"slots": 4, "level": 0}, {"slots": 4, "level": 2})
    'level'
    """
    return next((name for name in [*now, *before] if before.get(name) != now.get(name)), None)


def smooth(before: Shown | None, made: Shown, now_s: float) -> tuple[Range, str | None]:
    """Return the range to show (moments), and what happened if it jumped for that. `now_s`: when `made` was made."""
    new = _later(made.range, now_s)
    if before is None or not math.isfinite(before.range.p50_s) or not math.isfinite(new.p50_s):
        return new, None
    why = moved(before.under, made.under)
    if why is not None:
        return new, why
    p50_s = _eased(before.range.p50_s, new.p50_s, now_s)
    if not (math.isfinite(before.range.p90_s) and math.isfinite(new.p90_s)):
        return _later(Range(p50_s, new.p90_s), now_s), None
    return _later(Range(p50_s, _eased(before.range.p90_s, new.p90_s, now_s)), now_s), None


def _told(borne: Iterable[Borne]) -> Iterable[tuple[Borne, float]]:
    """Yield those that say something, with how long it took: at least, of what still waits."""
    for one in borne:
        if one.actual_s is not None:
            yield one, one.actual_s
        elif one.age_s > (one.shown or one.raw).p90_s:
            yield one, one.age_s


def _factors(known: Sequence[tuple[Borne, float]], wide: float) -> tuple[float, float]:
    passes = _passes(known)
    weight = passes / (passes + PASSES_HALF)
    found = []
    for tau, name in ((TAUS[0], "p50_s"), (wide, "p90_s")):
        ratios = sorted(
            ratio(actual_s, getattr(one.raw, name)) for one, actual_s in known if math.isfinite(getattr(one.raw, name))
        )
        factor: float = quantile(ratios, tau) ** weight if ratios else 1.0
        found.append(min(FACTOR_MOST, max(FACTOR_LEAST, factor)))
    return found[0], found[1]


def _passes(known: Sequence[tuple[Borne, float]]) -> int:
    return len({round(one.age_s, 3) for one, _ in known})


def quantile(ordered: Sequence[float], tau: float) -> float:
    """Return the value that a share `tau` of the next ones lies below, as far as these tell.

    >>> quantile([1.0, 2.0, 3.0], 0.5), quantile([1.0, 2.0, 3.0], 0.9)
    (2.0, 3.0)
    """
    return ordered[min(len(ordered), math.ceil((len(ordered) + 1) * tau)) - 1]


def _loss(actual_s: float, said_s: float, tau: float) -> float:
    return tau * (actual_s - said_s) if actual_s >= said_s else (1 - tau) * (said_s - actual_s)


def _eased(before_s: float, new_s: float, now_s: float) -> float:
    most_s = max(JUMP_FREE_S, JUMP_MOST * (before_s - now_s))
    step_s = WEIGHT * (new_s - before_s)
    return before_s + max(-most_s, min(most_s, step_s))


def _later(found: Range, now_s: float) -> Range:
    p50_s = max(now_s, found.p50_s)
    return Range(p50_s, max(p50_s, found.p90_s))

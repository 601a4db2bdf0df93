"""Charts as SVG: a line with its threshold, and a limit over time. Pure: numbers in, markup out.

Everything that depends on data is an attribute, so that the content security policy needs no exception. A picture is
named by a sentence where it is the only place of what it shows, and hidden where figures stand beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

WIDE, HIGH = 100.0, 26.0  # of a line, in its own units
PLOT = 150.0  # the height of a limit's plot
GAP_S = 120.0  # longer without an evaluation is drawn as a gap: nobody looked
HIT_LEAST, HIT_MOST = 3.0, 10.0
ROOM = 1.12  # above the highest value


@dataclass(frozen=True, slots=True)
class Point:
    """A limit at one moment. `hit`: the share of attempts that were refused by a 429."""

    at_s: float
    limit: int
    in_use: int
    hit: float


def line(values: Sequence[tuple[float, float]], *, from_s: float, to_s: float, threshold: float | None) -> SafeString:
    """Return a line of (moment, value) with a dotted threshold, hidden from screen readers.

    >>> line([], from_s=0.0, to_s=10.0, threshold=None)
    ''
    """
    if not values:
        return mark_safe("")
    most = max(*(value for _, value in values), threshold or 0.0) * ROOM or 1.0
    dotted = mark_safe("")
    if threshold is not None:
        dotted = format_html(
            '<line x1="0" x2="100" y1="{0}" y2="{0}" vector-effect="non-scaling-stroke"/>',
            _n(_y(threshold, most, HIGH)),
        )
    parts, before_s = [], None
    for at_s, value in values:
        pen = "L" if before_s is not None and at_s - before_s <= GAP_S else "M"
        parts.append(f"{pen}{_n(_x(at_s, from_s, to_s))} {_n(_y(value, most, HIGH))}")
        before_s = at_s
    return format_html(
        '<svg viewBox="0 0 100 26" preserveAspectRatio="none" aria-hidden="true">{}<path d="{}"/></svg>',
        dotted,
        "".join(parts),
    )


def limit_over_time(
    points: Sequence[Point], *, name: str, quota: int, from_s: float, to_s: float, by_day: bool = False
) -> SafeString:
    """Return the plot of a resource: its quota dashed, its limit as steps, what is in use as an area, 429s as ticks."""
    if len(points) < 2:
        return mark_safe("")
    most = max(quota, *(max(one.limit, one.in_use) for one in points)) * ROOM
    lowest = min(points, key=lambda one: (one.limit, one.at_s))
    last = points[-1]
    quota_y = _y(quota, most, PLOT)
    notes = [format_html('<text x="0" y="{}">quota {}</text>', _n(max(10.0, quota_y - 6)), quota)]
    notes.append(mark_safe('<text x="0" y="142">in use</text>'))
    if last.limit != quota:
        y = min(PLOT - 22, _y(last.limit, most, PLOT) - 8)
        notes.append(
            format_html('<text x="99.5%" y="{}" text-anchor="end" class="ann">limit {}</text>', _n(y), last.limit)
        )
    if lowest.limit < min(last.limit, quota):
        x, y = _x(lowest.at_s, from_s, to_s), min(PLOT - 22, _y(lowest.limit, most, PLOT) + 18)
        notes.append(
            format_html(
                '<text x="{}%" y="{}" text-anchor="middle" class="ann">{} at {}</text>',
                _n(min(90.0, max(10.0, x))),
                _n(y),
                lowest.limit,
                _clock(lowest.at_s),
            )
        )
    hits = format_html_join(
        "",
        '<rect x="{}%" y="152" width="5" height="{}" class="hit" transform="translate({} 0)"/>',
        (
            (
                _n(_x(one.at_s, from_s, to_s)),
                _n(HIT_LEAST + (HIT_MOST - HIT_LEAST) * min(1.0, one.hit * 5)),
                "-5" if _x(one.at_s, from_s, to_s) > 99 else "-2.5",
            )
            for one in points
            if one.hit > 0
        ),
    )
    return format_html(
        '<svg class="plot" role="img" aria-label="{}">'
        '<svg x="0" y="0" width="100%" height="150" viewBox="0 0 100 150" preserveAspectRatio="none">'
        '<path d="{}" class="area"/><path d="{}" class="lim"/></svg>'
        '<line x1="0" x2="100%" y1="{}" y2="{}" class="quota"/><line x1="0" x2="100%" y1="150" y2="150" class="ax"/>'
        '{}{}<text x="0" y="166">429s</text><text x="0" y="188">{}</text>'
        '<text x="50%" y="188" text-anchor="middle">{}</text><text x="100%" y="188" text-anchor="end">{}</text></svg>',
        _sentence(points, name=name, quota=quota, by_day=by_day),
        _area(points, most, from_s, to_s),
        _steps(points, most, from_s, to_s),
        _n(quota_y),
        _n(quota_y),
        mark_safe("".join(notes)),  # each made by format_html
        hits,
        _clock(from_s),
        _clock((from_s + to_s) / 2),
        _clock(to_s),
    )


def _sentence(points: Sequence[Point], *, name: str, quota: int, by_day: bool) -> str:
    """Return what the eye would see."""
    first, last = points[0], points[-1]
    lowest = min(points, key=lambda one: (one.limit, one.at_s))
    said = f"{name} in the last {'day' if by_day else 'hour'}: "
    if all(one.limit == first.limit for one in points):
        said += f"limit {first.limit} of {quota} throughout"
    else:
        said += f"limit {first.limit} at first, {last.limit} now, lowest {lowest.limit} at {_clock(lowest.at_s)}"
    refused = sum(one.hit > 0 for one in points)
    most = max(points, key=lambda one: one.in_use)
    said += f"; most in use {most.in_use} at {_clock(most.at_s)}, now {last.in_use}"
    return said + (f"; 429s in {refused} of {len(points)} looks" if refused else "; no 429s")


def _area(points: Sequence[Point], most: float, from_s: float, to_s: float) -> str:
    parts = []
    for run in _runs(points):
        x0, x1 = _n(_x(run[0].at_s, from_s, to_s)), _n(_x(run[-1].at_s, from_s, to_s))
        tops = "".join(f"L{_n(_x(one.at_s, from_s, to_s))} {_n(_y(one.in_use, most, PLOT))}" for one in run)
        parts.append(f"M{x0} 150{tops}L{x1} 150Z")
    return "".join(parts)


def _steps(points: Sequence[Point], most: float, from_s: float, to_s: float) -> str:
    parts = []
    for run in _runs(points):
        parts.append(f"M{_n(_x(run[0].at_s, from_s, to_s))} {_n(_y(run[0].limit, most, PLOT))}")
        parts += [f"H{_n(_x(one.at_s, from_s, to_s))}V{_n(_y(one.limit, most, PLOT))}" for one in run[1:]]
    return "".join(parts)


def _runs(points: Sequence[Point]) -> list[list[Point]]:
    """Split where nobody looked for long; of a chart whose points stand far apart, by that distance."""
    apart_s = sorted(after.at_s - one.at_s for one, after in pairwise(points))
    gap_s = max(GAP_S, 3 * apart_s[len(apart_s) // 2]) if apart_s else GAP_S
    found: list[list[Point]] = [[points[0]]]
    for one in points[1:]:
        if one.at_s - found[-1][-1].at_s > gap_s:
            found.append([])
        found[-1].append(one)
    return found


def _x(at_s: float, from_s: float, to_s: float) -> float:
    return WIDE * min(1.0, max(0.0, (at_s - from_s) / max(1.0, to_s - from_s)))


def _y(value: float, most: float, high: float) -> float:
    return high * (1.0 - min(1.0, max(0.0, value / most)))


def _n(value: float) -> str:
    return f"{value:.1f}"


def _clock(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%H:%M}"

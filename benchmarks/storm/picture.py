"""The picture of a storm as SVG: what the door said, the signals, the level, the pauses, and what the provider saw.

One axis of time for all of it, so that causes stand above their effects. No library, no network.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, GAP = 860, 176, 20, 30, 44
PANEL, ROW = 120, 16
INK, FAINT, GRID = "#1f2937", "#4b5563", "#e5e7eb"
DOOR = {"accepted": "#0b6e99", "deferred": "#d9a300", "rejected": "#c2410c"}
SCORES = ("#ffffff", "#f6d68a", "#ee9b4b", "#b91c1c")
LEVELS = dict(zip(("normal", "elevated", "high", "critical"), ("#dcefe3", *SCORES[1:]), strict=True))
_LOOK = 'font-family="system-ui, sans-serif" font-size="12" role="img"'


def chain(course: Mapping[str, Any], *, capacity_per_s: float, p0_allowed_s: float, title: str) -> str:
    """Return the picture of a course (benchmarks.storm.course.of)."""
    pen = _Pen(course["for_s"])
    pen.text(LEFT, 18, title, INK)
    pen.y = TOP + 22
    pen.heading("answers of the door a second", DOOR)
    _stack(pen, course["answers_by_s"], capacity_per_s)
    if course["signals"]:
        pen.heading("signals", dict(zip(("elevated", "high", "critical"), SCORES[1:], strict=True)))
        for name, found in course["signals"].items():
            pen.bars(name, [(since_s, until_s, SCORES[score]) for since_s, until_s, score in found])
        pen.y += GAP
    pen.heading("level, and what is paused", {})
    pen.bars("level", [(since_s, until_s, LEVELS[level]) for since_s, until_s, level in course["levels"]])
    for name, stretches in course["pauses"].items():
        pen.bars(name.rpartition("/")[0].partition("/")[2] or name, [(*one, FAINT) for one in stretches])
    pen.y += GAP
    pen.heading("calls in flight at the provider, and its quota", {"in flight": DOOR["accepted"], "quota": FAINT})
    most = max([*course["in_flight_by_s"], *course["quota_by_s"], 1.0])
    pen.panel(most)
    pen.line(_middles(course["quota_by_s"]), most, FAINT)
    pen.line(_middles(course["in_flight_by_s"]), most, DOOR["accepted"])
    pen.y += PANEL + GAP
    pen.heading("wait of P0, 95th of 100, s", {"wait": DOOR["accepted"], f"{p0_allowed_s:g} s": FAINT})
    most = max([2 * p0_allowed_s, *[wait_s for _, wait_s in course["p0_wait_p95"]]])
    pen.panel(most)
    pen.line([(0.0, p0_allowed_s), (course["for_s"], p0_allowed_s)], most, FAINT)
    pen.line(course["p0_wait_p95"], most, DOOR["accepted"])
    pen.y += PANEL
    pen.axis()
    return pen.done(title)


def _stack(pen: "_Pen", by_outcome: Mapping[str, Sequence[int]], capacity_per_s: float) -> None:
    sums = [sum(seconds) for seconds in zip(*by_outcome.values(), strict=True)]
    most = float(max([*sums, 1]))
    pen.panel(most)
    below = [0] * len(sums)
    for outcome, seconds in by_outcome.items():
        above = [one + more for one, more in zip(below, seconds, strict=True)]
        pen.area(_middles(below), _middles(above), most, DOOR[outcome])
        below = above
    pen.line([(0.0, capacity_per_s), (pen.for_s, capacity_per_s)], most, INK)
    pen.text(LEFT + WIDTH - 4, pen.of(capacity_per_s, most) - 4, "what the provider can do", INK, "end")
    pen.y += PANEL + GAP


def _middles(seconds: Sequence[float]) -> list[tuple[float, float]]:
    return [(n + 0.5, value) for n, value in enumerate(seconds)]


class _Pen:
    """Where the next panel begins, and what has been drawn."""

    def __init__(self, for_s: float) -> None:
        self.for_s = for_s
        self.y: float = 0.0
        self._parts: list[str] = []

    def x(self, at_s: float) -> float:
        return round(LEFT + WIDTH * min(max(at_s, 0.0), self.for_s) / self.for_s, 1)

    def of(self, value: float, most: float) -> float:
        return round(self.y + PANEL * (1 - min(value, most) / most), 1)

    def text(self, x: float, y: float, text: str, fill: str, anchor: str = "start") -> None:
        self._parts.append(f'<text x="{x}" y="{y}" fill="{fill}" text-anchor="{anchor}">{escape(text)}</text>')

    def heading(self, text: str, keys: Mapping[str, str]) -> None:
        self.text(LEFT, self.y - 8, text, INK)
        x = LEFT + WIDTH - sum(34 + 7 * len(key) for key in keys)
        for key, colour in keys.items():
            self._parts.append(f'<rect x="{x}" y="{self.y - 17}" width="12" height="10" fill="{colour}"/>')
            self.text(x + 16, self.y - 8, key, FAINT)
            x += 34 + 7 * len(key)

    def panel(self, most: float) -> None:
        for value in (0.0, most / 2, most):
            y = self.of(value, most)
            self._parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y}" y2="{y}" stroke="{GRID}"/>')
            self.text(LEFT - 8, y + 4, f"{value:.3g}", FAINT, "end")

    def bars(self, name: str, stretches: Iterable[tuple[float, float, str]]) -> None:
        self.text(LEFT - 8, self.y + ROW - 4, name, FAINT, "end")
        self._parts.append(f'<rect x="{LEFT}" y="{self.y}" width="{WIDTH}" height="{ROW - 3}" fill="#f9fafb"/>')
        for since_s, until_s, colour in stretches:
            width = max(0.5, round(self.x(until_s) - self.x(since_s), 1))
            self._parts.append(
                f'<rect x="{self.x(since_s)}" y="{self.y}" width="{width}" height="{ROW - 3}" fill="{colour}"/>'
            )
        self.y += ROW

    def line(self, points: Iterable[tuple[float, float]], most: float, colour: str) -> None:
        text = " ".join(f"{self.x(at_s)},{self.of(value, most)}" for at_s, value in points)
        self._parts.append(f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="1.5"/>')

    def area(
        self, below: Sequence[tuple[float, float]], above: Sequence[tuple[float, float]], most: float, colour: str
    ) -> None:
        edge = [*above, *reversed(below)]
        text = " ".join(f"{self.x(at_s)},{self.of(value, most)}" for at_s, value in edge)
        self._parts.append(f'<polygon points="{text}" fill="{colour}"/>')

    def axis(self) -> None:
        step_s = 60 if self.for_s > 120 else 5
        for at_s in range(0, int(self.for_s) + 1, step_s):
            self.text(self.x(at_s), self.y + 18, f"{at_s} s", FAINT, "middle")

    def done(self, title: str) -> str:
        width, height = LEFT + WIDTH + RIGHT, round(self.y + 30)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_LOOK}>',
                f"<title>{escape(title)}</title>",
                f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )

"""A chart of a sustained 429 as SVG: calls a second and calls in flight, one line an arm. No library, no network."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT, LEFT, GAP, TOP = 860, 210, 64, 46, 56
COLOURS = {"harness": "#0b6e99", "celery": "#c2410c"}
NAMES = {"harness": "Harness", "celery": "Celery, set up by an expert"}
_LOOK = (
    'font-family="system-ui, sans-serif" font-size="13" role="img" '
    'aria-label="Calls to a provider that answers 429 to everything for a while"'
)
_TICKS = (0, 1, 3, 10, 30, 100, 300, 1000, 3000)


def sustained(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the chart of what each arm did before, while and after every call was refused."""
    first = next(iter(found.values()))
    seconds = max(len(one["calls_by_s"]) for one in found.values())
    panels = (("calls_by_s", "calls a second"), ("in_flight_by_s", "calls in flight"))
    height = TOP + len(panels) * (HEIGHT + GAP) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" {_LOOK}>',
        f'<rect width="{LEFT + WIDTH + 20}" height="{height}" fill="#ffffff"/>',
    ]
    for n, who in enumerate(found):
        x = LEFT + n * 220
        parts.append(f'<rect x="{x}" y="12" width="18" height="4" fill="{COLOURS[who]}"/>')
        parts.append(f'<text x="{x + 24}" y="19" fill="#1f2937">{NAMES[who]}</text>')
    for n, (key, title) in enumerate(panels):
        y0 = TOP + n * (HEIGHT + GAP)
        lines = {who: one[key] for who, one in found.items()}
        parts += _panel(y0, title, lines, seconds, first["refused_at_s"])
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    y0: float, title: str, lines: Mapping[str, Sequence[float]], seconds: int, refused_s: Sequence[float]
) -> list[str]:
    most = max(max(line, default=0.0) for line in lines.values())
    top = next((tick for tick in _TICKS if tick >= most), _TICKS[-1])

    def x(at_s: float) -> float:
        return round(LEFT + WIDTH * at_s / seconds, 1)

    def y(value: float) -> float:  # by the logarithm of 1 + value, so that one call a second can be seen beside 100
        return round(y0 + HEIGHT * (1 - math.log1p(min(value, top)) / math.log1p(top)), 1)

    since_s, until_s = refused_s
    parts = [
        f'<rect x="{x(since_s)}" y="{y0}" width="{x(until_s) - x(since_s):.1f}" height="{HEIGHT}" fill="#f3f4f6"/>',
        f'<text x="{x(since_s) + 6}" y="{y0 + 16}" fill="#4b5563">429 to everything</text>',
        f'<text x="{LEFT}" y="{y0 - 8}" fill="#1f2937">{title}</text>',
    ]
    for tick in (tick for tick in _TICKS if tick <= top):
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y(tick)}" y2="{y(tick)}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4}" text-anchor="end" fill="#4b5563">{tick}</text>')
    parts += [
        f'<text x="{x(at_s)}" y="{y0 + HEIGHT + 16}" text-anchor="middle" fill="#4b5563">{at_s} s</text>'
        for at_s in range(0, seconds + 1, 30 if seconds > 60 else 5)
    ]
    for who, line in lines.items():
        points = " ".join(f"{x(n + 0.5)},{y(value)}" for n, value in enumerate(line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[who]}" stroke-width="1.6"/>')
    return parts

"""Charts of simulations as SVG, each panel over the same time; of two side by side, the other is dashed. No library.

Invariants: same tracks, same text; what a scenario or a tenant is called can't become markup.
"""

from collections.abc import Mapping, Sequence
from html import escape

from harness.sim.track import Track

WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 820, 130, 64, 20, 54, 44
COLOURS = ("#0b6e99", "#c2410c", "#4d7c0f", "#7e22ce", "#b45309", "#0f766e", "#be123c", "#475569")
DASHES = ("", ' stroke-dasharray="5 3"')
_TEXT, _GRID, _PALE = "#1f2937", "#e5e7eb", "#4b5563"
LEVELS = ("normal", "elevated", "high", "critical")
_STEPS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)


def chart(title: str, tracks: Mapping[str, Track]) -> str:
    """Return the chart of one simulation, or of two under their names: level, who waits, who works, limits, answers."""
    panels = _panels(tracks)
    height = TOP + len(panels) * (HEIGHT + GAP) + 10
    wide = LEFT + WIDTH + RIGHT
    seconds = max(track.every_s * len(track.series.get("level", ())) for track in tracks.values()) or 1.0
    look = f'role="img" aria-label="{escape(title, quote=True)}" font-family="system-ui, sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {height}" {look}>',
        f'<rect width="{wide}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-size="14" fill="{_TEXT}">{escape(title)}</text>',
    ]
    if len(tracks) > 1:
        for n, name in enumerate(tracks):
            x = LEFT + n * 300
            parts.append(f'<line x1="{x}" x2="{x + 26}" y1="32" y2="32" stroke="{_TEXT}"{DASHES[n % 2]}/>')
            parts.append(f'<text x="{x + 32}" y="36" fill="{_TEXT}">{escape(name)}</text>')
    for n, (told, names) in enumerate(panels):
        parts += _panel(TOP + 16 + n * (HEIGHT + GAP), told, names, tracks, seconds)
    return "\n".join([*parts, "</svg>", ""])


def _panels(tracks: Mapping[str, Track]) -> list[tuple[str, list[str]]]:
    """Return what is drawn together; a series that is 0 in all tracks isn't drawn."""
    every = dict.fromkeys(name for track in tracks.values() for name in track.series)
    there = [name for name in every if any(any(track.series.get(name, ())) for track in tracks.values())]
    groups = (("waiting", "waiting "), ("in flight", "in flight "))
    panels = [("level of pressure", ["level"])] if "level" in there else []
    panels += [(told, found) for told, begins in groups if (found := [one for one in there if one.startswith(begins)])]
    for one in there:
        if one.startswith("used "):
            name = one.removeprefix("used ")
            panels.append((f"{name}: used, and what there is", [one, f"limit {name}"]))
    rates = [one for one in there if one.endswith(" a second")]
    return panels + ([("tasks a second", rates)] if rates else [])


def _panel(y0: float, told: str, names: Sequence[str], tracks: Mapping[str, Track], seconds: float) -> list[str]:
    is_level = list(names) == ["level"]
    most = (
        3.0
        if is_level
        else max(max(track.series.get(one, (0.0,)), default=0.0) for track in tracks.values() for one in names)
    )
    top = 3.0 if is_level else _above(most)

    def x(at_s: float) -> float:
        return round(LEFT + WIDTH * at_s / seconds, 1)

    def y(value: float) -> float:
        return round(y0 + HEIGHT * (1 - value / top), 1)

    parts = [f'<text x="{LEFT}" y="{y0 - 8}" fill="{_TEXT}">{escape(told)}</text>']
    for tick in range(4) if is_level else (0, top / 2, top):
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y(tick)}" y2="{y(tick)}" stroke="{_GRID}"/>')
        word = LEVELS[int(tick)] if is_level else f"{tick:g}"
        parts.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4}" text-anchor="end" fill="{_PALE}">{word}</text>')
    step_s = next((one for one in _STEPS_S if seconds / one <= 10), _STEPS_S[-1])
    parts += [
        f'<text x="{x(at_s)}" y="{y0 + HEIGHT + 15}" text-anchor="middle" fill="{_PALE}">{_time(at_s)}</text>'
        for at_s in range(0, int(seconds) + 1, step_s)
    ]
    for n, one in enumerate(names):
        colour = COLOURS[n % len(COLOURS)]
        for m, track in enumerate(tracks.values()):
            line = track.series.get(one, ())
            points = " ".join(f"{x((at + 1) * track.every_s)},{y(value)}" for at, value in enumerate(line))
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.4"{DASHES[m % 2]}/>'
            )
        if len(names) > 1:
            place = LEFT + 190 + n * 120
            parts.append(f'<rect x="{place}" y="{y0 - 14}" width="12" height="4" fill="{colour}"/>')
            parts.append(f'<text x="{place + 16}" y="{y0 - 8}" fill="{_PALE}">{escape(one)}</text>')
    return parts


def _above(most: float) -> float:
    """Return a round number that is no smaller.

    >>> _above(0.0), _above(37.0), _above(4200.0), _above(0.3)
    (1.0, 50.0, 5000.0, 0.5)
    """
    if most <= 0:
        return 1.0
    power = 1.0
    while power > most:
        power /= 10
    while power * 10 < most:
        power *= 10
    return next(round(power * one, 9) for one in (1, 2, 5, 10) if power * one >= most)


def _time(at_s: float) -> str:
    """Return a moment.

    >>> _time(45), _time(600), _time(7200)
    ('45 s', '10 min', '2 h')
    """
    for unit_s, word in ((3600, "h"), (60, "min")):
        if at_s >= unit_s and at_s % unit_s == 0:
            return f"{at_s / unit_s:g} {word}"
    return f"{at_s:g} s"

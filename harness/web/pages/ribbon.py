"""The ribbon: a task's life on one axis, from its submission to the far end of what is expected. Pure; SVG in per cent.

What is past is a segment for each state, coloured by who could have ended it: work, its own line, the system, a person,
its children. Now is a rule; what is to come is a band from P50 to P90 on a dotted line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from harness.engine.expect import Foreseen
from harness.policy.reasons import Code, Who
from harness.store.queries import EventView
from harness.web.pages import words
from harness.web.pages.times import clock, lasted

SEGMENTS_MOST = 40
LEAST_PERCENT = 0.5  # narrower ones join their neighbour where there are many
LABEL_PERCENT = 11.0  # a label below this width would run into the next


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One stretch of the past. `kind`: its colour."""

    label: str
    kind: str
    since: datetime
    until: datetime


def parts(events: Sequence[EventView], *, created: datetime, until: datetime, own: bool) -> list[Part]:
    """Return the past. `events`: in order; `own`: what waited in line waited for its tenant's own tasks or caps."""
    stops: list[tuple[str, str, datetime]] = []
    for event in events:
        label, kind = _looks(event, own=own)
        if not stops or stops[-1][:2] != (label, kind):
            stops.append((label, kind, event.at))
    if not stops:
        return []
    stops[0] = (*stops[0][:2], min(stops[0][2], created))
    ends = [at for _, _, at in stops[1:]] + [until]
    found = [
        Part(label=label, kind=kind, since=since, until=max(since, end))
        for (label, kind, since), end in zip(stops, ends, strict=True)
        if not kind.startswith("end")
    ]
    return _merged(found)


def drawn(past: Sequence[Part], *, now: datetime, over: bool, eta: Foreseen | None) -> SafeString:
    """Return the ribbon. `over`: it has ended, so nothing is to come."""
    if not past:
        return SafeString("")
    begin = past[0].since
    bands = [] if over or eta is None else _bands(eta, now)
    last = max([past[-1].until if over else now, *(far for _, _, far in bands)])
    whole_s = max(1e-3, (last - begin).total_seconds())

    def x(at: datetime) -> float:
        return round(min(100.0, max(0.0, 100 * (at - begin).total_seconds() / whole_s)), 2)

    pieces: list[SafeString] = []
    if bands:
        pieces.append(_line(x(now), x(bands[-1][2]), "band-ln"))
    for _, near, far in bands:
        pieces.append(_rect(x(near), max(0.6, x(far) - x(near)), "band"))
    pieces += [_rect(x(part.since), max(0.15, x(part.until) - x(part.since)), part.kind) for part in past]
    pieces += [_gap(x(part.since)) for part in past[1:]]
    pieces += _labels([(x(part.since), x(part.until), part.label) for part in past])
    for label, near, far in bands:
        pieces.append(_text((x(near) + x(far)) / 2, 18, label, "t-ink", _anchor((x(near) + x(far)) / 2)))
    marks = [(x(begin), clock(begin, now), "")]
    end = past[-1].until if over else now
    marks.append((x(end), clock(end, now), "t-ink"))
    if bands:
        marks.append((100.0, clock(bands[-1][2], now), ""))
    pieces += _ticks(marks, at_now=None if over else x(now))
    return format_html(
        '<svg class="ribbon" role="img" aria-label="{}">{}</svg>',
        told(past, now=now, over=over, bands=bands),
        format_html_join("", "{}", ((piece,) for piece in pieces)),
    )


def told(
    past: Sequence[Part], *, now: datetime, over: bool, bands: Sequence[tuple[str, datetime, datetime]] = ()
) -> str:
    """Return what the eye would see."""
    said = ", ".join(
        f"{part.label} at {clock(part.since, now)} for {lasted((part.until - part.since).total_seconds())}"
        for part in past[-12:]
    )
    ahead = "".join(f"; {label} between {clock(near, now)} and {clock(far, now)}" for label, near, far in bands)
    return f"{said[:1].upper()}{said[1:]}{'' if over else ', until now'}{ahead}."


def kind_of(code: Code, who: Who) -> str:
    """Return the colour of a reason for waiting."""
    if code in (Code.CHILDREN, Code.DEPENDENCIES):
        return "child"
    return {Who.YOU: "own", Who.SYSTEM: "ours", Who.PERSON: "person"}[who]


def _looks(event: EventView, *, own: bool) -> tuple[str, str]:
    state = event.to_state
    match state:
        case "queued":
            return "queued", "own" if own else "ours"
        case "running":
            return "running", "work"
        case "waiting_approval":
            decided = event.event in ("approve", "deny", "ripen")
            return ("approved", "ours") if decided else ("waiting for a decision", "person")
        case "paused":
            return ("its children", "child") if event.event == "park" else ("paused", "person")
        case "failed_retryable":
            return "failed, to be tried again", "fail"
        case _:
            return words.STATES.get(state, state), "end"


def _merged(found: list[Part]) -> list[Part]:
    if len(found) <= SEGMENTS_MOST:
        return found
    whole_s = max(1e-3, (found[-1].until - found[0].since).total_seconds())
    merged: list[Part] = []
    for part in found:
        wide = 100 * (part.until - part.since).total_seconds() / whole_s >= LEAST_PERCENT
        if merged and not wide:
            last = merged.pop()
            merged.append(Part(label=last.label, kind=last.kind, since=last.since, until=part.until))
        else:
            merged.append(part)
    return merged


def _bands(eta: Foreseen, now: datetime) -> list[tuple[str, datetime, datetime]]:
    bands = []
    for label, span in (("starts", eta.start), ("ends", eta.end)):
        if span is not None:
            near = max(now, span.p50)
            bands.append((label, near, max(near + timedelta(seconds=1), span.p90 or span.p50)))
    if len(bands) == 2 and bands[1][2] <= bands[0][2]:
        return bands[:1]
    return bands


def _labels(spans: Sequence[tuple[float, float, str]]) -> list[SafeString]:
    pieces, free = [], -1.0
    for x, end, label in spans:
        width = max(LABEL_PERCENT, 1.1 * len(label))
        if end - x >= width * 0.55 and x >= free and x + width <= 100:
            pieces.append(_text(x, 18, label, "lw", "start"))
            free = x + width
    return pieces


def _ticks(marks: Sequence[tuple[float, str, str]], *, at_now: float | None) -> list[SafeString]:
    pieces = [_rule(x, 44, "tick") for x, _, _ in marks]
    taken: list[float] = []
    # Now and the end come first: a time that would run into another is left out.
    for x, text, look in sorted(marks, key=lambda mark: mark[2] != "t-ink"):
        if all(abs(x - other) >= LABEL_PERCENT for other in taken):
            said = format_html('<tspan class="lw">now </tspan>{}', text) if x == at_now and look else text
            pieces.append(_text(x, 66, said, look, _anchor(x)))
            taken.append(x)
    if at_now is not None:
        pieces.append(_rule(at_now, 22, "now"))
    return pieces


def _anchor(x: float) -> str:
    return "start" if x < 6 else "end" if x > 94 else "middle"


def _rect(x: float, width: float, kind: str) -> SafeString:
    paint = {"ours": 'fill="url(#hatch)"', "band": 'rx="2" class="band"'}.get(kind, f'class="seg-{kind}"')
    return format_html('<rect x="{}%" width="{}%" y="28" height="14" {}/>', x, round(width, 2), SafeString(paint))


def _gap(x: float) -> SafeString:
    return format_html('<rect x="{}%" width="1.5" y="28" height="14" class="seg-gap"/>', x)


def _line(x: float, end: float, look: str) -> SafeString:
    return format_html('<line x1="{}%" x2="{}%" y1="35" y2="35" class="{}"/>', x, end, look)


def _rule(x: float, top: int, look: str) -> SafeString:
    return format_html('<line x1="{0}%" x2="{0}%" y1="{1}" y2="50" class="{2}"/>', x, top, look)


def _text(x: float, y: int, text: str, look: str, anchor: str) -> SafeString:
    return format_html('<text x="{}%" y="{}" text-anchor="{}" class="{}">{}</text>', round(x, 2), y, anchor, look, text)

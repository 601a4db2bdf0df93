"""Drawings in the pages: a mark for each state and level, bars. Shapes differ, so none needs its colour.

Lengths that depend on data are attributes in per cent: no style, so that the content security policy holds.
"""

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

STATES: dict[str, str] = {
    "queued": '<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.8" '
    'stroke-dasharray="2.2 2.51"/>',
    "running": '<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.8"/>'
    '<path d="M8 4.2a3.8 3.8 0 0 1 0 7.6z" fill="currentColor"/>',
    "waiting_approval": '<path d="M8 1.2 14.8 8 8 14.8 1.2 8z" fill="none" stroke="currentColor" stroke-width="1.8" '
    'stroke-linejoin="round"/><circle cx="8" cy="8" r="1.7" fill="currentColor"/>',
    "paused": '<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.8"/>'
    '<path d="M6.4 5.6v4.8M9.6 5.6v4.8" stroke="currentColor" stroke-width="1.8" stroke-linecap="round"/>',
    "failed_retryable": '<path d="M13.2 6A5.6 5.6 0 1 0 13.6 9" fill="none" stroke="currentColor" stroke-width="1.8" '
    'stroke-linecap="round"/><path d="M14.2 2.4v4h-4" fill="none" stroke="currentColor" stroke-width="1.8" '
    'stroke-linecap="round" stroke-linejoin="round"/>',
    "succeeded": '<circle cx="8" cy="8" r="6.9" fill="currentColor"/><path d="m5 8.2 2.1 2.1L11.2 6" fill="none" '
    'class="ko" stroke="var(--bg)" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round"/>',
    "failed_terminal": '<rect x="1.6" y="1.6" width="12.8" height="12.8" rx="2.4" fill="currentColor"/>'
    '<path d="m5.4 5.4 5.2 5.2m0-5.2-5.2 5.2" stroke="var(--bg)" stroke-width="1.8" stroke-linecap="round"/>',
    "cancelled": '<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.8"/>'
    '<path d="m4 12 8-8" stroke="currentColor" stroke-width="1.8"/>',
}
LEVELS = ("normal", "elevated", "high", "critical")


def mark(state: str) -> SafeString:
    """Return the mark of a state; its name must stand beside it."""
    # Safe: the drawings stand above, and what isn't a state has none.
    drawing = STATES.get(state, STATES["queued"])
    return mark_safe(f'<svg viewBox="0 0 16 16" class="s-{_name(state)}" aria-hidden="true">{drawing}</svg>')


def gauge(level: str) -> SafeString:
    """Return a level's gauge of four steps; its name must stand beside it."""
    reached = LEVELS.index(level) if level in LEVELS else 0
    steps = "".join(
        f'<rect x="{1 + 8 * i}" y="{21 - 6 * i}" width="6" height="{8 + 6 * i}" rx="1.5" '
        + ('fill="currentColor"/>' if i <= reached else 'fill="none" stroke="currentColor" stroke-width="1.4"/>')
        for i in range(len(LEVELS))
    )
    return mark_safe(f'<svg viewBox="0 0 34 30" class="l-{_name(level)}" aria-hidden="true">{steps}</svg>')


def progress(share: float, label: str) -> SafeString:
    """Return a bar of how much is done (`share`: 0 to 1), named for screen readers."""
    percent = round(100 * min(1.0, max(0.0, share)))
    return format_html(
        '<svg class="bar" role="progressbar" aria-label="{}" aria-valuenow="{}" aria-valuemin="0" aria-valuemax="100">'
        '<rect class="rail" width="100%" height="6" rx="3"/><rect class="fill" width="{}%" height="6" rx="3"/></svg>',
        label,
        percent,
        percent,
    )


def used(share: float, label: str, *, due: float | None = None) -> SafeString:
    """Return a bar of how much of something is in use (`share`: 0 to 1), with a mark at what is due."""
    percent = 100 * min(1.0, max(0.0, share))
    look = "full" if share >= 1 else "fill"
    line = format_html('<line class="due" x1="{0}%" x2="{0}%" y1="0" y2="8"/>', f"{100 * due:.1f}") if due else ""
    return format_html(
        '<svg role="img" aria-label="{}"><rect class="rail" width="100%" height="8" rx="2"/>'
        '<rect class="{}" width="{}%" height="8" rx="2"/>{}</svg>',
        label,
        look,
        f"{percent:.1f}",
        line,
    )


def swatch(kind: str) -> SafeString:
    """Return the sample of a ribbon's colour for a table: work, own, ours, person, child, fail."""
    if kind == "ours":
        return mark_safe('<svg aria-hidden="true"><rect width="12" height="10" rx="1.5" fill="url(#hatch)"/></svg>')
    return format_html('<svg aria-hidden="true"><rect width="12" height="10" rx="1.5" class="seg-{}"/></svg>', kind)


def _name(text: str) -> str:
    return text if text in STATES or text in LEVELS else "queued"

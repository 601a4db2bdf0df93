"""States as people see them: a mark told apart by its shape, and a word. Shapes and colours are the look's (tokens)."""

from collections.abc import Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from harness.policy.holds import CHILDREN
from harness.policy.lifecycle import Event, State

_SHAPES = {
    "queued": (
        '<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.8" stroke-dasharray="2.2 2.51"/>'
    ),
    "running": (
        '<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.8"/>'
        '<path d="M8 4.2a3.8 3.8 0 0 1 0 7.6z" fill="currentColor"/>'
    ),
    "waiting_approval": (
        '<path d="M8 1.2 14.8 8 8 14.8 1.2 8z" fill="none" stroke="currentColor" stroke-width="1.8"'
        ' stroke-linejoin="round"/>'
        '<circle cx="8" cy="8" r="1.7" fill="currentColor"/>'
    ),
    "waiting_children": (
        '<circle cx="3.4" cy="8" r="1.9" fill="currentColor"/><circle cx="8" cy="8" r="1.9" fill="currentColor"/>'
        '<circle cx="12.6" cy="8" r="1.9" fill="currentColor"/>'
    ),
    "paused": (
        '<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.8"/>'
        '<path d="M6.4 5.6v4.8M9.6 5.6v4.8" stroke="currentColor" stroke-width="1.8" stroke-linecap="round"/>'
    ),
    "failed_retryable": (
        '<path d="M13.2 6A5.6 5.6 0 1 0 13.6 9" fill="none" stroke="currentColor" stroke-width="1.8"'
        ' stroke-linecap="round"/>'
        '<path d="M14.2 2.4v4h-4" fill="none" stroke="currentColor" stroke-width="1.8"'
        ' stroke-linecap="round" stroke-linejoin="round"/>'
    ),
    "succeeded": (
        '<circle cx="8" cy="8" r="6.9" fill="currentColor"/>'
        '<path d="m5 8.2 2.1 2.1L11.2 6" fill="none" stroke="var(--h-ground)" stroke-width="1.8"'
        ' stroke-linecap="round" stroke-linejoin="round"/>'
    ),
    "failed_terminal": (
        '<rect x="1.6" y="1.6" width="12.8" height="12.8" rx="2.4" fill="currentColor"/>'
        '<path d="m5.4 5.4 5.2 5.2m0-5.2-5.2 5.2" stroke="var(--h-ground)" stroke-width="1.8"'
        ' stroke-linecap="round"/>'
    ),
    "cancelled": (
        '<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.8"/>'
        '<path d="m4 12 8-8" stroke="currentColor" stroke-width="1.8"/>'
    ),
}


def shown(state: str, holds: Sequence[str] = (), event: str = "") -> str:
    """Return what a state is called: a parent that is parked isn't paused by anyone, it waits for its children.

    >>> shown("paused", ["children"]), shown("paused", ["children", "tenant"]), shown("paused", event="park")
    ('waiting_children', 'paused', 'waiting_children')
    """
    parked = state == State.PAUSED and (list(holds) == [CHILDREN] or event == Event.PARK)
    return "waiting_children" if parked else state


def mark(state: str) -> SafeString:
    """Return a state's mark; nothing for a word that is no state."""
    shape = _SHAPES.get(state, "")
    return format_html(
        '<svg class="h-mark h-s-{}" viewBox="0 0 16 16" aria-hidden="true">{}</svg>',
        state if shape else "none",
        mark_safe(shape),
    )


def labelled(state: str) -> SafeString:
    """Return a state's mark and name."""
    return format_html('<span class="h-state">{}<span>{}</span></span>', mark(state), state)

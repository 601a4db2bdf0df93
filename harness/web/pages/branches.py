"""A run's graph as rows of a page: each task's lines and mark as a small SVG, its name, and what it comes after."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from harness.store.runs import Node
from harness.web.pages import marks, times, words
from harness.web.pages.graph import Row, lay

HEIGHT = 44  # px of a row, as in pages.css: the lines of one go on in the next
PITCH = 18  # px between columns
NAMED_MOST = 2  # of those that a task comes after


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """A row: the drawing, the task's page and name, its state with what it comes after, and when or how long."""

    drawing: SafeString
    path: str
    name: str
    told: str
    time: str


def rows(nodes: Sequence[Node] | None, path_of: Callable[[UUID], str], *, now: datetime) -> list[Branch] | None:
    """Return the rows; None: nothing waits for anything here, or it is too much to be drawn."""
    if nodes is None:
        return None
    places = {node.id: at for at, node in enumerate(nodes)}
    waits_for = [
        sorted({places[on] for on in (*node.depends_on, node.parent) if on is not None and on in places})
        for node in nodes
    ]
    picture = lay(waits_for) if any(waits_for) else None
    if picture is None:
        return None
    return [
        Branch(
            drawing=_drawn(row, nodes[row.node].state, picture.columns),
            path=path_of(nodes[row.node].public_id),
            name=called(nodes[row.node].title, nodes[row.node].kind),
            told=_told(nodes, row.node, waits_for[row.node], places),
            time=spent(nodes[row.node].began_at, nodes[row.node].ended_at, now),
        )
        for row in picture.rows
    ]


def called(title: str | None, kind: str) -> str:
    """Return what a task is called."""
    return title or kind


def spent(began_at: datetime | None, ended_at: datetime | None, now: datetime) -> str:
    """Return how long something took or, while it goes on, since when: that doesn't change at each look."""
    if began_at is None:
        return ""
    if ended_at is None:
        return f"since {times.clock(began_at, now)}"
    return times.lasted((ended_at - began_at).total_seconds())


def _told(nodes: Sequence[Node], at: int, waits_for: Sequence[int], places: dict[int, int]) -> str:
    node = nodes[at]
    said = words.standing(node.state, parked=node.parked)
    if waits_for:
        names = [called(nodes[on].title, nodes[on].kind) for on in waits_for]
        more = len(names) - NAMED_MOST
        shown = names if more <= 1 else [*names[:NAMED_MOST], f"{more} more"]
        joined = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
        spawned = not node.depends_on and node.parent in places
        said += f", {'begun by' if spawned else 'after'} {joined}"
    return said


def _drawn(row: Row, state: str, columns: int) -> SafeString:
    middle, bottom = HEIGHT // 2, HEIGHT
    here = _x(row.column)
    lines = [f"M{_x(lane)} 0V{bottom}" for lane in row.passing]
    for lane in row.entering:
        at = _x(lane)
        lines.append(f"M{at} 0V{middle}" if at == here else f"M{at} 0Q{at} {middle} {here} {middle}")
    for lane in row.leaving:
        at = _x(lane)
        lines.append(f"M{here} {middle}V{bottom}" if at == here else f"M{here} {middle}Q{at} {middle} {at} {bottom}")
    return format_html(
        '<svg class="lanes" width="{}" height="{}" aria-hidden="true"><path d="{}"/>'
        '<circle cx="{}" cy="{}" r="10"/><svg x="{}" y="{}" width="16" height="16">{}</svg></svg>',
        columns * PITCH + 2,
        HEIGHT,
        # Safe: numbers and letters made here.
        mark_safe("".join(lines)),
        here,
        middle,
        here - 8,
        middle - 8,
        marks.mark(state),
    )


def _x(lane: int) -> int:
    return 10 + PITCH * lane

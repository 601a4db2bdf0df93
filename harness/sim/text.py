"""A report as text for people: the tables that answer who waited, who got what, and what stood idle."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.sim.compare import Difference

Tree = Mapping[str, Any]
_MAIN = re.compile(  # what is told of a comparison
    r"counts\..*|makespan_s|waits\..*\.(p50_s|p95_s|max_s)|classes\..*\.share_of_slot_s|groups\.[^.]*\.dominant_share"
    r"|pools\.[^.]*\.(use|use_while_wanted)|resources\..*|pressure\..*|caps_exceeded|goodput.*|calls\..*|done\..*"
)


def render(figures: Tree) -> str:
    """Return the figures as text."""
    counts = ", ".join(f"{n:,} {name}" for name, n in figures["counts"].items() if n)
    parts = [
        f"{figures['title']} (seed {figures['seed']}, plan {figures['plan']})",
        f"{counts}; makespan {figures['makespan_s']:,.1f} s",
        _waits(figures["waits"]),
        _classes(figures["classes"]),
        _uses("pool", figures["pools"]),
    ]
    if figures["resources"]:
        parts.append(_uses("resource", figures["resources"]))
    if figures["eta"].get("n"):
        parts.append(_eta(figures["eta"]))
    if figures["calls"]:
        parts.append(_calls(figures["calls"]))
    longest = figures["starvation"]["longest_wait_s"]
    parts.append(f"longest wait {longest:,.1f} s; caps exceeded: {figures['caps_exceeded']}")
    if "by_cell" in figures:
        parts.append(_cells(figures["by_cell"]))
    cost = figures["cost"]
    parts.append(
        f"simulated {cost['tasks_per_s']:,.0f} tasks/s of one core; a tick {cost['tick_mean_ms']:.3f} ms on average, "
        f"p99 {cost['tick_p99_ms']:.3f} ms"
    )
    return "\n\n".join(parts)


def render_differences(first: str, other: str, found: Sequence[Difference]) -> str:
    """Return what is different as text: the figures that people ask for; the others are only counted."""
    told = [one for one in found if not one.alike]
    main = [one for one in told if _MAIN.fullmatch(one.figure)]
    rows = [(one.figure, _number(one.first), _number(one.other), _change(one)) for one in main]
    head = (
        f"first: {first}\nother: {other}\n{len(found) - len(told)} figures are alike, {len(told)} are not; "
        f"{len(told) - len(main)} of them stand only in --json"
    )
    return f"{head}\n\n{_table(('figure', 'first', 'other', 'change'), rows)}" if rows else head


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.6g}"


def _change(one: Difference) -> str:
    if one.first is None or one.other is None:
        return ""
    return f"{one.other / one.first - 1:+.1%}" if one.first else "from 0"


def _waits(waits: Tree) -> str:
    rows = [
        (whose, which, f"{w['n']:,}", *(_seconds(w[key]) for key in ("mean_s", "p50_s", "p95_s", "p99_s", "max_s")))
        for whose, of in waits.items()
        for which, w in of.items()
    ]
    return _table(("wait of", "class", "n", "mean", "p50", "p95", "p99", "max"), rows)


def _eta(eta: Tree) -> str:
    return (
        f"forecasts: {eta['n']:,}; P50 covered {eta['p50_covers']:.1%} and P90 {eta['p90_covers']:.1%} of what came; "
        f"median P90/P50 {eta['spread']:.2f}; pinball loss {eta['pinball_ratio']:.2f} of that of backlog over rate"
    )


def _classes(classes: Tree) -> str:
    rows = [
        (name, f"{one['starts']:,}", f"{one['share_of_starts']:.1%}", f"{one['share_of_slot_s']:.1%}")
        for name, one in classes.items()
        if one["starts"]
    ]
    return _table(("class", "starts", "of starts", "of slot-seconds"), rows)


def _uses(what: str, uses: Tree) -> str:
    rows = []
    for name, one in uses.items():
        row = [name, f"{one['use']:.1%}", f"{one['use_while_wanted']:.1%}"]
        jains = (one.get("jain_slot_seconds"), one.get("jain_satisfaction"))
        row += [f"{jain['min']:.3f} / {jain['mean']:.3f}" if jain else "-" for jain in jains]
        rows.append(row)
    head = (what, "use", "while wanted", "Jain slot-s min/mean", "Jain satisfaction min/mean")
    return _table(head, rows)


def _calls(calls: Tree) -> str:
    rows = [
        (
            name,
            f"{one['sent']:,}",
            f"{one['rate_429']:.2%}",
            f"{one['use']:.1%}",
            f"{one['goodput']:.1%}",
            f"{one['given_back']:,}",
        )
        for name, one in calls.items()
    ]
    return _table(("provider", "calls", "429", "use of quota", "goodput", "given back"), rows)


def _cells(cells: Sequence[Tree]) -> str:
    rows = [
        (
            number,
            f"{one['starts']:,}",
            _seconds(one["p0_p99_s"]),
            f"{one['ticks_per_s']:.0f}",
            f"{one['tick_mean_ms']:.3f}",
            f"{one['tick_p99_ms']:.3f}",
            f"{one['planning_share_of_a_core']:.1%}",
        )
        for number, one in enumerate(cells)
    ]
    return _table(("cell", "starts", "P0 p99", "ticks/s", "tick ms", "p99 ms", "of a core"), rows)


def _seconds(value: float) -> str:
    return f"{value:,.3f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )

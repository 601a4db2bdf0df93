"""The demo's screen: a live table while it runs, the figures at the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.store.overview import Overview, Wait

OVER = ("succeeded", "failed_terminal", "cancelled")


@dataclass(frozen=True, slots=True)
class Moment:
    """What is shown while it runs."""

    overview: Overview
    submitted: int
    rejected: int
    elapsed_s: float


def live(moment: Moment) -> RenderableType:
    """Return the table of one moment."""
    overview = moment.overview
    pools = Table(title="pools", title_justify="left", expand=False)
    for column in ("pool", "in flight", "slots"):
        pools.add_column(column, justify="left" if column == "pool" else "right")
    for pool, slots in sorted(overview.slots.items()):
        if pool not in ("system", "quarantine"):
            pools.add_row(pool, str(overview.in_flight.get(pool, 0)), str(slots))
    tenants = Table(title="tenants", title_justify="left")
    for column in ("tenant", "waiting", "running", "done", "failed"):
        tenants.add_column(column, justify="left" if column == "tenant" else "right")
    for name, states in sorted(overview.tenants.items()):
        waiting = sum(n for state, n in states.items() if state not in (*OVER, "running"))
        tenants.add_row(
            name,
            str(waiting),
            str(states.get("running", 0)),
            str(states.get("succeeded", 0)),
            str(states.get("failed_terminal", 0)),
        )
    backlog = "  ".join(f"P{p} {overview.backlog.get(str(p), 0)}" for p in range(4))
    over = sum(overview.states.get(state, 0) for state in OVER)
    total = max(moment.submitted, sum(overview.states.values()))  # a schedule submits by itself
    grid = Table.grid(padding=(0, 3))
    grid.add_row(pools, tenants)
    return Group(
        grid,
        Text(f"backlog  {backlog}     429s from the provider  {moment.rejected}     {moment.elapsed_s:.0f} s"),
        ProgressBar(total=max(total, 1), completed=over, width=60),
        Text(f"{over} of {total} tasks over"),
    )


def line(moment: Moment) -> str:
    """Return the same in one line, where nobody watches a terminal."""
    overview = moment.overview
    over = sum(overview.states.get(state, 0) for state in OVER)
    used = " ".join(
        f"{pool} {overview.in_flight.get(pool, 0)}/{slots}"
        for pool, slots in sorted(overview.slots.items())
        if overview.in_flight.get(pool)
    )
    done = f"{over} of {max(moment.submitted, sum(overview.states.values()))} over"
    return f"{moment.elapsed_s:5.0f} s  {done}  in flight: {used or '-'}  429s: {moment.rejected}"


def figures(
    console: Console,
    *,
    states: Mapping[str, int],
    waits: Sequence[Wait],
    most: Mapping[str, int],
    slots: Mapping[str, int],
    rejected: int,
    wall_s: float,
) -> None:
    """Print what came of it."""
    table = Table(title="tasks by state", title_justify="left")
    table.add_column("state")
    table.add_column("tasks", justify="right")
    for state, n in sorted(states.items()):
        table.add_row(state, str(n))
    waited = Table(title="wait for the first start", title_justify="left")
    for column in ("priority", "tasks", "p50 s", "p95 s"):
        waited.add_column(column, justify="right")
    for wait in waits:
        waited.add_row(f"P{wait.priority}", str(wait.number), f"{wait.p50_s:.3f}", f"{wait.p95_s:.3f}")
    flight = Table(title="most in flight", title_justify="left")
    for column in ("pool", "most", "slots"):
        flight.add_column(column, justify="left" if column == "pool" else "right")
    for pool, n in sorted(most.items()):
        flight.add_row(pool, str(n), str(slots.get(pool, 0)))
    grid = Table.grid(padding=(0, 3))
    grid.add_row(table, waited, flight)
    console.print(grid)
    console.print(f"429s from the provider: {rejected}   wall time: {wall_s:.1f} s")


def said(console: Console, asked: str, answer: str, tokens: Mapping[str, int]) -> None:
    """Print what was asked of the documents and answered, and what the webhook's receiver saw."""
    console.print(Text.assemble(("\nasked about ", "bold"), asked, "\n", answer[:600]))
    deliveries = sum(tokens.values())
    console.print(f"\nthe webhook was delivered {deliveries} time(s) under {len(tokens)} token(s)")


def summaries(console: Console, found: Sequence[tuple[str, str]]) -> None:
    """Print some of the summaries."""
    for name, text in found:
        console.print(Text.assemble((f"\n{name}\n", "bold"), text))

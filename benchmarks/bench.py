"""What a scenario gets: the servers, a scratch folder, the console, and whether to be quick."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.arms import Arm
from benchmarks.readings import ServerProcesses
from benchmarks.servers import Servers
from benchmarks.stage import Skipped, Stage


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """One run of one scenario. `pairs` = interleaved rounds; `only` = names of the arms wanted (empty: all).

    For chaos: how long it lasts (None: as it likes), its seed, and where the history of a failed run goes. For quota:
    its columns (empty: all) and the length of its phases (empty: as it likes). For overload: columns, minutes, seed.
    """

    servers: Servers
    processes: ServerProcesses
    folder: Path
    console: Console
    quick: bool
    pairs: int
    only: frozenset[str] = frozenset()
    patience_s: float = 20.0
    minutes: float | None = None
    seed: int = 1
    history_path: Path | None = None
    columns: frozenset[str] = frozenset()
    phases_s: tuple[float, ...] = ()

    def stage(self, arm: Arm) -> Stage:
        """Return a stage for the arm, with its files under this run's folder."""
        return Stage(arm, self.servers, self.folder)

    def choose(self, arms: Sequence[Arm]) -> tuple[list[Arm], list[Skipped]]:
        """Split arms into those to measure and those that can't be, each with its reason."""
        wanted = [arm for arm in arms if not self.only or arm.name in self.only]
        skipped = [Skipped(arm=arm.name, reason=reason) for arm in wanted if (reason := arm.missing())]
        for one in skipped:
            self.say(f"{one.arm}: skipped, {one.reason}")
        return [arm for arm in wanted if not arm.missing()], skipped

    def say(self, text: str) -> None:
        """Print one line of progress."""
        self.console.print(text, highlight=False, markup=False)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table; the first column is text, the others are figures."""
        table = Table(title=escape(title), title_justify="left")
        for number, column in enumerate(columns):
            table.add_column(column, justify="right" if number else "left", no_wrap=True)
        for row in rows:
            table.add_row(*["-" if cell is None else escape(str(cell)) for cell in row])
        self.console.print(table)


def in_turn(arms: Sequence[Arm], round_number: int) -> list[Arm]:
    """Return the order of one round: A B, then B A, so that drift of the machine favours nobody."""
    return list(arms) if round_number % 2 == 0 else list(reversed(arms))

"""What the door said to each submission: one JSON line an answer, written by the client of the storm."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol, TextIO

from benchmarks.storm.arrivals import Arrival

Outcome = Literal["accepted", "deferred", "rejected"]
TAG = "storm"  # of every task, in the effect log


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One answer. `due_s`: when it was to be sent, `sent_s`: when it was (epoch seconds); `took_s`: until it was read.

    `status` is HTTP's (0: a queue without a door), `why` the code or reason given, `task` the id made.
    """

    i: int
    priority: int
    due_s: float
    sent_s: float
    took_s: float
    outcome: Outcome
    status: int = 0
    why: str = ""
    retry_after_s: float | None = None
    task: str = ""


class Door(Protocol):
    """An open client. Each thread of the storm has its own."""

    def send(self, arrival: Arrival, due_s: float) -> Answer:
        """Submit once; never again, whatever the answer."""
        ...


def write(file: TextIO, answer: Answer) -> None:
    """Append one answer."""
    file.write(json.dumps(asdict(answer)) + "\n")


def read(path: Path) -> list[Answer]:
    """Return the answers so far, in the order of the submissions."""
    lines: Iterable[str] = path.read_text().splitlines() if path.exists() else ()
    return sorted((Answer(**json.loads(line)) for line in lines), key=lambda one: one.i)

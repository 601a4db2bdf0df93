"""What a task sees of those that it spawned: a handle on a batch of them, and each as it was gathered."""

from dataclasses import dataclass
from typing import Any

from harness.policy.lifecycle import TERMINAL, State


@dataclass(frozen=True, kw_only=True, slots=True)
class Children:
    """A batch of children, in the order of their payloads; made by `ctx.spawn`, gathered by `ctx.gather`.

    `ranges`: their numbers in the database, for Harness.
    """

    kind: str
    ranges: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return sum(n for _, n in self.ranges)


@dataclass(frozen=True, kw_only=True, slots=True)
class Child:
    """A child as it was when its parent went on. `state`: a wire value; one that isn't over says so.

    `output`: what it returned (None before it has succeeded); `error`: {"class", "message"} of one that failed.
    """

    task_id: str
    kind: str
    state: str
    output: Any = None
    error: dict[str, Any] | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it returned."""
        return self.state == State.SUCCEEDED

    @property
    def ended(self) -> bool:
        """Whether it is over, one way or the other."""
        return self.state in TERMINAL

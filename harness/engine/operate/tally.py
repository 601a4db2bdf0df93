"""What a verb did to many tasks."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Tasks looked at; done, by outcome; already so; refused, by code (where the row alone decides: by the reason).

    `messages`: what the first of each code was told. `next`: go on after this task id. `stopped`: why it ended early;
    empty when it went through. `more`: the limit of a call was reached, and others may be left.
    """

    verb: str
    matched: int = 0
    done: Counter[str] = field(default_factory=Counter)
    already: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    next: int | None = None
    stopped: str = ""
    more: bool = False

    def refuse(self, code: str, message: str = "", n: int = 1) -> None:
        """Count `n` tasks that were refused. Without a message the code says why."""
        if n:
            self.refused[code] += n
            self.messages.setdefault(code, message or code)

    def reasons(self) -> dict[str, int]:
        """Return how many were refused, by what the first of each code was told."""
        return {self.messages[code]: n for code, n in self.refused.most_common()}

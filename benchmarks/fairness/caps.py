"""Was a cap exceeded? Asked of the trace: from each claim to the event that leaves `running`. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Key = tuple[str, str]  # ("pool", "llm"), ("tenant", "a"), ("run", "7"), ("a/pool", "llm"), ("a/resource", "browser")


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A task began (+1) or left (-1) running, at a moment of the database's clock."""

    at_s: float
    step: int
    tenant: str
    run: int
    pool: str
    needs: tuple[tuple[str, int], ...] = ()

    def scopes(self) -> Iterable[tuple[Key, int]]:
        """Yield every scope that it counts in, and how many."""
        yield ("pool", self.pool), 1
        yield ("tenant", self.tenant), 1
        yield (f"{self.tenant}/pool", self.pool), 1
        if self.run:
            yield ("run", str(self.run)), 1
        for name, n in self.needs:
            yield ("resource", name), n
            yield (f"{self.tenant}/resource", name), n


def most_at_once(changes: Iterable[Change]) -> dict[Key, int]:
    """Return the most that ran at once in every scope. Of one instant, what ends counts before what begins."""
    now: Counter[Key] = Counter()
    most: dict[Key, int] = {}
    for change in sorted(changes, key=lambda one: (one.at_s, one.step)):
        for key, n in change.scopes():
            now[key] += change.step * n
            most[key] = max(most.get(key, 0), now[key])
    return most


def exceeded(most: Mapping[Key, int], caps: Mapping[Key, int]) -> list[str]:
    """Return a line for each cap that was exceeded."""
    return [
        f"{scope} {name}: {most[scope, name]} at once, of {cap}"
        for (scope, name), cap in sorted(caps.items())
        if most.get((scope, name), 0) > cap
    ]

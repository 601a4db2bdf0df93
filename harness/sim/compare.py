"""What if: the same traffic under other limits, weights, workers or another plan, and what is different then. Pure.

The other file says only what is other. What comes and what the work takes is the first's: each task takes as long in
both (`play(.., alike=True)`), so what differs between two reports comes of what was changed, not of the dice.

Invariants: what makes the traffic is never overlaid; a figure that only one of both has is told, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.policy.errors import Invalid

TRAFFIC = ("cells", "drain", "duration_s", "measure", "phases", "seed", "trace", "vary", "work")
TAKES = ("failures", "law", "mean_s", "retry_after_s", "sigma", "timeout_s", "zombie_s")  # of a kind: its traffic
SAME_RATIO = 0.005  # of a figure, under which two are alike
NO_FIGURES = ("cost", "by_cell", "seed", "title", "pressure.story")  # not part of what is compared


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of two reports; None: that one doesn't have it."""

    figure: str
    first: float | None
    other: float | None

    @property
    def alike(self) -> bool:
        """Whether both have it, and about the same.

        >>> Difference("a", 100.0, 100.4).alike, Difference("a", 100.0, 101.0).alike, Difference("a", None, 0.0).alike
        (True, False, False)
        """
        if self.first is None or self.other is None:
            return False
        return abs(self.other - self.first) <= SAME_RATIO * max(abs(self.first), abs(self.other))


def overlaid(first: Mapping[str, Any], other: Mapping[str, Any], *, name: str) -> dict[str, Any]:
    """Return a scenario's raw tables with another's laid over them. `name`: of the other file.

    Tables are joined key by key, everything else is replaced. What `first` expects isn't expected of the other.
    Raises: Invalid naming the key, where the other would change the traffic.
    """
    for key in TRAFFIC:
        if key in other and other[key] != first.get(key):
            raise Invalid(
                f"{name}: {key} must be that of the first scenario, or be left out: both get the same traffic",
                field=key,
            )
    kinds = other.get("kinds", {})
    for kind, table in kinds.items() if isinstance(kinds, Mapping) else ():
        mine = first.get("kinds", {}).get(kind, {})
        for key in TAKES if isinstance(table, Mapping) else ():
            if key in table and table[key] != mine.get(key):
                raise Invalid(
                    f"{name}: kinds.{kind}.{key} must be that of the first scenario: both do the same work",
                    field=f"kinds.{kind}.{key}",
                )
    return _join({key: value for key, value in first.items() if key != "expect"}, other)


def differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    """Return all figures of two reports side by side, in the order of the first, then what only the other has."""
    ours, theirs = dict(_flat(first, "")), dict(_flat(other, ""))
    return [Difference(figure, ours.get(figure), theirs.get(figure)) for figure in (ours | theirs)]


def _join(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(first)
    for key, value in other.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = _join(found[key], value) if both else value
    return found


def _flat(tree: Mapping[str, Any], at: str) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for key, value in tree.items():
        path = f"{at}{key}"
        if path in NO_FIGURES:
            continue
        if isinstance(value, Mapping):
            found += _flat(value, f"{path}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((path, float(value)))
    return found

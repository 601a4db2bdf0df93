"""One table of a scenario's TOML: each key is asked for by its type, what nobody asked for is refused. No I/O."""

from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from typing import Any, NoReturn

from harness.policy.errors import Invalid
from harness.sim.scenario import Steps


class Table:
    """One table of the file: every key is asked for once, what is left at the end is unknown."""

    def __init__(self, raw: object, at: str, file: str) -> None:
        self.at, self.file = at, file
        if not isinstance(raw, Mapping):
            self.refuse("", "must be a table")
        self._raw = dict(raw)
        self._asked: list[str] = []

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raises: Invalid, always."""
        path = f"{self.at}{key}".rstrip(".")
        raise Invalid(f"{self.file}: {path} {why}", field=path)

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return key in self._raw

    def names(self) -> list[str]:
        """Return all keys, each for somebody to ask for."""
        return list(self._raw)

    def any(self, key: str, default: object = ...) -> Any:
        """Return a value of any type."""
        self._asked.append(key)
        if key in self._raw:
            return self._raw.pop(key)
        if default is ...:
            self.refuse(key, "is missing")
        return default

    def number(
        self, key: str, default: float | None = None, *, least: float = 0.0, above: float | None = None
    ) -> float:
        """Return a number of seconds, or of anything."""
        value = self.any(key, ... if default is None else default)
        fits = isinstance(value, int | float) and not isinstance(value, bool) and value >= least
        if not fits or not isfinite(value) or (above is not None and value <= above):
            wanted = f"above {above:g}" if above is not None else f"of at least {least:g}"
            self.refuse(key, f"must be a number {wanted}, not {value!r}")
        return float(value)

    def whole(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        """Return a whole number."""
        value = self.any(key, ... if default is None else default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            self.refuse(key, f"must be a whole number of at least {least}, not {value!r}")
        return value

    def text(self, key: str, default: str | None = None, *, among: tuple[str, ...] = ()) -> str:
        """Return a text, one of `among` if there are any."""
        value = self.any(key, ... if default is None else default)
        if not isinstance(value, str) or (among and value not in among):
            self.refuse(key, f"must be one of {', '.join(among)}, not {value!r}" if among else "must be a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return one text or an array of them."""
        value = self.any(key)
        every = value if isinstance(value, list) else [value]
        if not every or not all(isinstance(one, str) for one in every):
            self.refuse(key, "must be a text, or an array of them")
        return tuple(every)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self.any(key, default)
        if not isinstance(value, bool):
            self.refuse(key, f"must be true or false, not {value!r}")
        return value

    def table(self, key: str, default: object = ...) -> "Table":
        """Return a table below."""
        return Table(self.any(key, default), f"{self.at}{key}.", self.file)

    def tables(self, key: str) -> "list[Table]":
        """Return an array of tables below, empty if it isn't there."""
        value = self.any(key, [])
        if not isinstance(value, list):
            self.refuse(key, f"must be an array of tables: [[{key}]]")
        return [Table(one, f"{self.at}{key}[{i}].", self.file) for i, one in enumerate(value)]

    def is_table(self, key: str) -> bool:
        """Whether the key is there and has a table."""
        return isinstance(self._raw.get(key), Mapping)

    def is_steps(self, key: str) -> bool:
        """Whether the key is there and has an array: a number that changes."""
        return isinstance(self._raw.get(key), list)

    def levels(self, key: str) -> tuple[tuple[float, float], ...]:
        """Return a number above 0 that changes: [[0, 1.0], [600, 4.0]]."""
        value = self.any(key)
        fits = all(
            isinstance(one, list) and len(one) == 2 and all(_is_number(n) and n >= 0 for n in one) and one[1] > 0
            for one in value
        )
        if not value or not fits or value[0][0] != 0 or any(b[0] <= a[0] for a, b in pairwise(value)):
            self.refuse(key, "must be a number above 0, or [[0, number], [later second, number], ..]")
        return tuple((float(at_s), float(n)) for at_s, n in value)

    def steps(self, key: str, *, least: int = 0) -> Steps:
        """Return a number that may change: 50, or [[0, 50], [600, 3]] (from this second on, the value)."""
        value = self.any(key)
        if isinstance(value, int) and not isinstance(value, bool):
            value = [[0, value]]
        fits = isinstance(value, list) and value and all(_is_step(one, least) for one in value)
        if not fits or value[0][0] != 0 or any(b[0] <= a[0] for a, b in pairwise(value)):
            self.refuse(
                key, f"must be a whole number of at least {least}, or [[0, number], [later second, number], ..]"
            )
        return tuple((float(at_s), n) for at_s, n in value)

    def done(self) -> None:
        """Raises: Invalid when a key is left that nobody asked for."""
        for key in self._raw:
            self.refuse(key, f"is unknown; known here: {', '.join(sorted(set(self._asked)))}")


def _is_number(one: object) -> bool:
    return isinstance(one, int | float) and not isinstance(one, bool) and isfinite(one)


def _is_step(one: object, least: int) -> bool:
    if not isinstance(one, list) or len(one) != 2:
        return False
    at_s, n = one
    whole = isinstance(n, int) and not isinstance(n, bool) and n >= least
    return whole and isinstance(at_s, int | float) and at_s >= 0

"""What the tables of a configuration file must be like, whatever they hold: present, known, and refused by path.

Takes what `tomllib` returns, and the text to say the line of a refusal; does no I/O.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from harness.policy.errors import Invalid

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TomlFile:
    """One file, by the name that a refusal begins with. `at` is where a table stands: "pools.db." or ""."""

    name: str

    def table(self, raw: Mapping[str, object], key: str, at: str) -> Mapping[str, object]:
        """Return the table under a key. Raises: Invalid."""
        value = raw.get(key)
        if not isinstance(value, Mapping):
            self.refuse(at + key, "must be a table")
        return value

    def only(self, table: Mapping[str, object], known: set[str], at: str) -> None:
        """Raises: Invalid naming a key that isn't known."""
        for key in table:
            if key not in known:
                self.refuse(at + key, f"is unknown; known here: {', '.join(sorted(known))}")

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raises: Invalid, always."""
        raise Invalid(f"{self.name}: {key} {why}", field=key)


def parsed(text: str, parse: Callable[[Mapping[str, object]], T]) -> T:
    """Return what `parse` makes of a file's text. Raises: Invalid, with the line of what it refuses."""
    try:
        return parse(tomllib.loads(text))
    except Invalid as error:
        at = line_of(text, error.field or "")
        if at is None:
            raise
        name, _, rest = error.message.partition(": ")
        raise Invalid(f"{name}, line {at}: {rest}", field=error.field) from None


def line_of(text: str, key: str) -> int | None:
    """Return the line on which a key stands, else its table, by its path as refusals have it. None: neither does.

    >>> text = '[pools.db]\\nslots = 0\\n[resources."llm:default"] # of all\\nheld = "call"'
    >>> [line_of(text, key) for key in ("pools.db.slots", "resources.llm:default.capacity", "pools.llm")]
    [2, 3, None]
    """
    found: int | None = None
    at = ""
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            table = tomllib.loads(line)
        except tomllib.TOMLDecodeError:  # within a value of several lines
            continue
        if line.lstrip().startswith("["):
            at = _path(table)
            if key == at or key.startswith(f"{at}."):
                found = number
        elif table and key == f"{at}.{next(iter(table))}".lstrip("."):
            return number
    return found


def _path(table: Mapping[str, object]) -> str:
    """Return the path of the one table that a header makes."""
    names = []
    while table:
        name, inner = next(iter(table.items()))
        names.append(name)
        table = inner if isinstance(inner, Mapping) else {}
    return ".".join(names)

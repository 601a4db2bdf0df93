"""What the tables of a configuration file must be like, whatever they hold: present, known, and refused by path.

Takes what `tomllib` returns; does no I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from harness.policy.errors import Invalid


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

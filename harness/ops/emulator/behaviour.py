"""How the provider behaves and what it has counted: plain values, no network."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from harness.policy.errors import Invalid

# The largest value of each setting: beyond it is a slip of the pen, not a provider.
_LARGEST = {"quota": 100_000.0, "latency_s": 600.0, "sigma": 3.0, "retry_after_s": 3600.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Behaviour:
    """What can be set: calls at a time, median latency (s), its lognormal sigma, what a 429 asks to wait (s)."""

    quota: int = 50
    latency_s: float = 0.5
    sigma: float = 0.0
    retry_after_s: float = 1.0


@dataclass(kw_only=True, slots=True)
class Counters:
    """What the provider saw since its start or the last reset; only its event loop writes here.

    `accepted` calls took a place in the quota, `answered` ones gave it back with a 200, `errors` are answers to
    /v1 that are neither 200 nor 429.
    """

    accepted: int = 0
    answered: int = 0
    rejected_429: int = 0
    errors: int = 0
    in_flight: int = 0
    in_flight_max: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def admit(self, quota: int) -> bool:
        """Take a place when fewer than `quota` are taken. Whoever gets True calls `leave` once."""
        if self.in_flight >= quota:
            self.rejected_429 += 1
            return False
        self.accepted += 1
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        return True

    def leave(self) -> None:
        """Give the place back."""
        self.in_flight -= 1

    def reset(self) -> None:
        """Set all to zero but the calls that are in flight right now."""
        now = self.in_flight
        for field in dataclasses.fields(self):
            setattr(self, field.name, 0)
        self.in_flight = self.in_flight_max = now


def changed(current: Behaviour, wanted: Mapping[str, object]) -> Behaviour:
    """Return `current` with the named settings replaced.

    >>> changed(Behaviour(), {"quota": 3}).quota
    3

    Raises: Invalid naming the field.
    """
    values: dict[str, float] = {}
    for name, value in wanted.items():
        if name not in _LARGEST:
            raise Invalid(f"unknown setting {name!r}: there are {', '.join(_LARGEST)}", field=name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Invalid(f"{name} must be a number, not {value!r}", field=name)
        if not 0 <= value <= _LARGEST[name]:
            raise Invalid(f"{name} must lie between 0 and {_LARGEST[name]:g}, not {value!r}", field=name)
        if name == "quota" and value != int(value):
            raise Invalid(f"quota must be a whole number, not {value!r}", field=name)
        values[name] = int(value) if name == "quota" else float(value)
    return dataclasses.replace(current, **values)  # type: ignore[arg-type]  # one dict for an int and floats

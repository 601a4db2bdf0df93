"""The databases that tasks may work on, and their addresses: set once by the settings, read when one is opened.

An address holds a password. It is read from the environment at that moment and goes into the client alone: no error of
this module, and no `repr`, shows any of it. `models.redact` takes the passwords out of any text, as it does keys.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from harness.policy.targets import Target

_configured: Mapping[str, Target] = {}


class NoAddress(Exception):
    """A target can't be opened from here; `mode` says why, as policy.targets does."""

    def __init__(self, message: str, mode: Literal["unset", "invalid"]) -> None:
        super().__init__(message)
        self.mode: Literal["unset", "invalid"] = mode


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """Where a target is. `conninfo`, as libpq wants it, stays out of `repr`."""

    name: str
    conninfo: Mapping[str, str] = field(repr=False)


def configure(targets: Mapping[str, Target]) -> None:
    """Say which targets there are; the settings do, once."""
    global _configured
    _configured = targets


def configured() -> Mapping[str, Target]:
    """Return the targets there are."""
    return _configured


def address(target: Target, environment: Mapping[str, str] | None = None) -> Address:
    """Return where a target is, by the environment as it is now. Raises: NoAddress; it names the variable alone."""
    environment = os.environ if environment is None else environment
    given = environment.get(target.dsn_env, "").strip()
    if not given:
        raise NoAddress(f"{target.dsn_env} is not set: set it to the address of {target.name} and start again", "unset")
    parts = _parsed(given)
    if not parts:
        raise NoAddress(
            f"{target.dsn_env} holds no address of PostgreSQL (postgresql://user:password@host:port/name)", "invalid"
        )
    return Address(name=target.name, conninfo=parts)


def secrets() -> tuple[str, ...]:
    """Return the passwords of the targets that this process's environment names."""
    given = (os.environ.get(target.dsn_env, "").strip() for target in _configured.values())
    return tuple(password for text in given if text and (password := _parsed(text).get("password", "")))


@lru_cache(maxsize=64)
def _parsed(text: str) -> Mapping[str, str]:
    try:
        return {key: str(value) for key, value in conninfo_to_dict(text).items() if value is not None}
    except (ProgrammingError, UnicodeError):
        return {}  # what libpq says of it repeats the text, password included

"""What the settings are given: environment variables and configuration files, read or refused in one line.

Whatever starts (manage.py, Celery, uvicorn) loads the settings first, and prints what they raise in a way of its own,
a traceback or less. So what can't be used ends the process here, saying the name, the place and what would do.
"""

import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn, TypeVar

from harness.policy.errors import Invalid
from harness.policy.toml import parsed

T = TypeVar("T")


def stop(why: str) -> NoReturn:
    """End the process, with one line on stderr. Raises: SystemExit."""
    raise SystemExit(f"harness can't start: {why}")


def whole(name: str, text: str, *, least: int = 1) -> int:
    """Return the whole number of a variable; one that is none, or below `least`, ends the process."""
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        stop(f"{name} is {text!r}; it must be a whole number of at least {least}")
    return number


def number(name: str, text: str) -> float:
    """Return the number of a variable; one that is none, infinite or below 0 ends the process."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        stop(f"{name} is {text!r}; it must be a number of at least 0")
    return value


def switch(name: str, text: str) -> bool:
    """Return whether a variable is 1; another than 1 or 0 ends the process: a guess would switch off what is wanted."""
    if text not in ("0", "1"):
        stop(f"{name} is {text!r}; it must be 1 (on) or 0 (off)")
    return text == "1"


def checked(parse: Callable[[], T]) -> T:
    """Return what `parse` does; what it refuses ends the process."""
    try:
        return parse()
    except Invalid as error:
        stop(error.message)


def file(path: Path, parse: Callable[[Mapping[str, object]], T]) -> T:
    """Return what `parse` makes of a TOML file; one that isn't there, isn't TOML or is refused ends the process."""
    try:
        return checked(lambda: parsed(path.read_text("utf-8"), parse))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        stop(f"{path}: {error}")

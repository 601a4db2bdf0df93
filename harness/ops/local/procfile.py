"""The Procfile: `name: command` lines, one per program. `$NAME` in a command stands for a variable of the stack."""

import re
import shlex
import string
from collections.abc import Mapping
from pathlib import Path

from harness.policy.errors import Invalid

_LINE = re.compile(r"^([a-z][a-z0-9_]*):\s*(\S.*)$")


def read(path: Path) -> dict[str, str]:
    """Return the programs by name, in the order of the file. Raises: Invalid naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}", field=str(path)) from error
    programs: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None or match[1] in programs:
            raise Invalid(
                f"{path.name}:{number} must be `name: command` with a name of its own: {line!r}", field=str(path)
            )
        programs[match[1]] = match[2].strip()
    return programs


def choose(programs: Mapping[str, str], only: list[str] | None) -> dict[str, str]:
    """Return the named programs, or all. Raises: Invalid when one is not in the Procfile."""
    if only is None:
        return dict(programs)
    unknown = [name for name in only if name not in programs]
    if unknown:
        raise Invalid(f"the Procfile has no program {', '.join(unknown)}; it has {', '.join(programs)}", field="only")
    return {name: command for name, command in programs.items() if name in only}


def fill(command: str, variables: Mapping[str, str]) -> str:
    """Put the stack's variables into a command. Raises: Invalid when it names another.

    >>> fill("uvicorn --port $PORT", {"PORT": "8000"})
    'uvicorn --port 8000'
    """
    quoted = {name: shlex.quote(value) for name, value in variables.items()}
    try:
        return string.Template(command).substitute(quoted)
    except (KeyError, ValueError) as error:
        raise Invalid(f"{command!r} names a variable that the stack doesn't set: {error}", field="Procfile") from error

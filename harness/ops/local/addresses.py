"""The addresses of this checkout's own stack: one JSON file, mode 0600, written by `manage.py stack up`.

`config.settings` reads it before Django exists, so this module uses the standard library only. The file is there
while the stack runs and goes away with it, so that no command talks to whoever took the port afterwards.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

HOME_VARIABLE = "HARNESS_LOCAL_DIR"


def home(base_dir: Path) -> Path:
    """Return the folder of the local stack's state: HARNESS_LOCAL_DIR, else `.harness` in the checkout."""
    named = os.environ.get(HOME_VARIABLE)
    return Path(named).expanduser().resolve() if named else base_dir.resolve() / ".harness"


def path(home_dir: Path) -> Path:
    """Return where the addresses of the stack with this state folder are kept."""
    return home_dir / "stack" / "addresses.json"


def load(base_dir: Path) -> dict[str, str]:
    """Return the running stack's addresses; {} when there are none or DATABASE_URL is in the environment."""
    if os.environ.get("DATABASE_URL"):
        return {}
    return read(home(base_dir))


def read(home_dir: Path) -> dict[str, str]:
    """Return what the file under this state folder says, whatever the environment says; {} when there is none."""
    try:
        found = json.loads(path(home_dir).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # Another user's stack, or none: both mean "no addresses for you".
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def save(home_dir: Path, values: Mapping[str, str]) -> None:
    """Write the addresses so that a reader sees either the old file or the whole new one."""
    write_private(path(home_dir), json.dumps(dict(values), indent=2) + "\n")


def forget(home_dir: Path) -> None:
    """Remove the addresses: the stack is down."""
    path(home_dir).unlink(missing_ok=True)


def write_private(target: Path, text: str) -> None:
    """Write a file that only this user can read (0600), in one step."""
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(target)

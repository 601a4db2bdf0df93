"""Worker processes beside those of the Procfile, under the supervisor that runs: one pool each, by a number.

They are started here, never stopped: a session that is told to drain ends its process when nothing runs there any more,
and what has ended is cleared away. What the Procfile starts isn't touched. One at a time does this (a lock file).
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.ops.local import supervision
from harness.ops.local.places import Places
from harness.ops.local.supervision import MORE, WILL_NOT_START, Program
from harness.policy.errors import Conflict

PREFIX = "more_"
LIVE = ("STARTING", "RUNNING", "BACKOFF", "STOPPING")


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """One that was added. `pid` 0: it doesn't run at the moment."""

    name: str
    pool: str
    pid: int
    state: str
    code: int = 0

    @property
    def lives(self) -> bool:
        """Whether it runs, or will."""
        return self.state in LIVE

    @property
    def failed(self) -> bool:
        """Whether it ended because it could not start."""
        return self.state == "FATAL" or self.code in WILL_NOT_START


@contextmanager
def alone(places: Places) -> Iterator[None]:
    """Be the one who adds and clears. Raises: Conflict."""
    handle = os.open(places.stack / "more.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Conflict(
            "another `manage.py autoscale --apply` is at work for this stack; stop it, or let it do it", field="apply"
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def there(places: Places) -> list[Worker]:
    """Return those that were added. Raises: Unavailable when no supervisor answers."""
    supervision.call(places, "getState")
    return [_worker(one) for one in supervision.ask(places) if one.name.startswith(PREFIX)]


def add(places: Places, base_dir: Path, pool: str, n: int) -> list[str]:
    """Start `n` more worker processes of a pool. Returns their names. Raises: Unavailable, Refused."""
    taken = {one.name for one in there(places)}
    names: list[str] = []
    number = 1
    while len(names) < n:
        if (name := f"{PREFIX}{pool}_{number}") not in taken:
            names.append(name)
        number += 1
    _write(places, base_dir, [*sorted(taken), *names])
    supervision.call(places, "reloadConfig")
    for name in names:
        supervision.call(places, "addProcessGroup", name)
    return names


def clear(places: Places, base_dir: Path) -> list[Worker]:
    """Clear away those that have ended, and return them. Raises: Unavailable, Refused."""
    found = there(places)
    ended = [one for one in found if not one.lives]
    for one in ended:
        supervision.call(places, "removeProcessGroup", one.name)
    if ended:
        _write(places, base_dir, [one.name for one in found if one.lives])
    return ended


def _write(places: Places, base_dir: Path, names: Sequence[str]) -> None:
    text = "".join(
        supervision.worker(
            places, base_dir, name, f"celery -A config worker --resource-pool {_pool(name)} -n {name}@%h"
        )
        for name in names
    )
    path = places.stack / MORE
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def _worker(one: Program) -> Worker:
    return Worker(name=one.name, pool=_pool(one.name), pid=one.pid, state=one.state, code=one.code)


def _pool(name: str) -> str:
    """Return the pool of an added worker.

    >>> _pool("more_tool_read_12")
    'tool_read'
    """
    return name.removeprefix(PREFIX).rpartition("_")[0]

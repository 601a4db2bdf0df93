"""What an example is, and what it plays with: the HTTP API of a stack that runs, and a folder for what comes of it.

A play submits, waits, fetches, and returns what is to be read; whatever doesn't end as meant it raises.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.ops.demo.client import Client
from harness.policy.errors import Unavailable

LOOK_EVERY_S = 0.2
WITHIN_S = 300.0
# What every example needs of the Procfile, beside the workers of its pools.
PROGRAMS = ("web", "dispatcher", "worker_net")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of an example: lines to read, files, and figures for --json."""

    lines: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Player:
    """What a play has: a client with the key of the tenant `example`, a folder for files, `say` for progress.

    `mend` starts again what the local stack has lost; waiting does it. `around`: what the example's `around()` gave.
    """

    client: Client
    folder: Path
    say: Callable[[str], None]
    mend: Callable[[], None] = lambda: None
    around: Mapping[str, str] = field(default_factory=dict)

    def submit(self, kind: str, payload: Mapping[str, Any], *, priority: int = 2, **more: Any) -> str:
        """Submit a task and return its id. `more`: other members of the request. Raises: Unavailable."""
        body = {"kind": kind, "input": dict(payload), "priority": priority, **more}
        return str(self.client.post("/tasks", body)["task_id"])

    def looks(self, within_s: float = WITHIN_S) -> Iterator[None]:
        """Come back each 0.2 s until the caller has seen enough. Raises: Unavailable after `within_s`."""
        until_s = time.monotonic() + within_s
        while True:
            self.mend()
            yield
            if time.monotonic() > until_s:
                raise Unavailable(
                    f"not done after {within_s:.0f} s; the logs are in {self.folder.parents[1] / 'stack'}"
                )
            time.sleep(LOOK_EVERY_S)

    def ended(self, task: str, *, within_s: float = WITHIN_S) -> dict[str, Any]:
        """Wait until a task has ended, however it did, and return it whole. Raises: Unavailable after `within_s`."""
        for _ in self.looks(within_s):
            if found := self.client.result_of(task):
                return found
        raise AssertionError("looks end only by raising")

    def result(self, task: str, *, within_s: float = WITHIN_S) -> dict[str, Any]:
        """Wait until a task has succeeded and return its result. Raises: Unavailable when it ends otherwise."""
        whole = self.ended(task, within_s=within_s)
        if whole["state"] != "succeeded":
            why = (whole["error"] or {}).get("message") or whole["state"]
            raise Unavailable(f"{whole['kind']} ended {whole['state']}: {why}")
        result: dict[str, Any] = whole["result"]
        return result

    def fetch(self, artifact_id: str, name: str) -> Path:
        """Download an artifact into the folder. Raises: Unavailable."""
        path = self.folder / name
        path.write_bytes(self.client.download(f"/artifacts/{artifact_id}/content"))
        return path

    def keep(self, name: str, value: object) -> Path:
        """Write a value as JSON into the folder."""
        path = self.folder / name
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return path


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One workload. `about`: a line for the list. `play(player)` does it.

    `missing()`: why it can't run here and how to install what lacks; None: it can. `programs`: lines of the Procfile
    beside PROGRAMS. `extra`: further programs, name -> command. `around()`: a context that lasts as long as the stack
    (a site, a server) and gives the environment variables that the stack's processes need.
    """

    name: str
    about: str
    play: Callable[[Player], Outcome]
    missing: Callable[[], str | None] = lambda: None
    programs: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    around: Callable[[], AbstractContextManager[Mapping[str, str]]] = lambda: nullcontext({})

"""What both embedded servers share: being started as the right user, watched until ready, and stopped."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.ops.local import processes
from harness.ops.local.places import Places
from harness.policy.errors import Unavailable

READY_S = 60.0  # crash recovery after a kill -9 comes first, and reads back what was written since the checkpoint
POLL_S = 0.02


def run(places: Places, command: Sequence[str], **options: object) -> "subprocess.Popen[bytes]":
    """Start a program as the servers' user, apart from our terminal, with an environment that hides ours."""
    account = places.account
    drop = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]  # options are Popen's own
        command,
        stdin=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
        start_new_session=True,
        umask=0o077,
        **drop,
        **options,
    )


def start(places: Places, command: Sequence[str], *, log: Path) -> "subprocess.Popen[bytes]":
    """Start a server whose output goes to `log`, a file of ours that starts anew."""
    with log.open("wb") as output:
        return run(places, command, stdout=output, stderr=subprocess.STDOUT)


def wait_ready(process: "subprocess.Popen[bytes]", ready: Callable[[], bool], *, name: str, log: Path) -> None:
    """Return when `ready` says so. Raises: Unavailable with the end of the log when the server ends or hangs."""
    until = time.monotonic() + READY_S
    while not ready():
        if process.poll() is not None:
            raise Unavailable(f"{name} ended at once (exit {process.returncode}):\n{tail(log)}", field=name)
        if time.monotonic() > until:
            raise Unavailable(f"{name} was not ready within {READY_S:.0f} s:\n{tail(log)}", field=name)
        time.sleep(POLL_S)


def stop(
    process: "subprocess.Popen[bytes]", folder: Path, *, name: str, first: signal.Signals, patience_s: float
) -> None:
    """End a server and whatever of it still works in its data folder."""
    if process.poll() is None:
        process.send_signal(first)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    end_orphans(folder, name=name)


def end_orphans(folder: Path, *, name: str) -> None:
    """End what an earlier start left working in this data folder: a new start would meet its memory and its locks."""
    left = processes.working_in(folder, name=name)
    ours = {process.pid for process in left}
    # A parent that lives takes its children along, and its data needs no recovery; children without one never end.
    parents = [process for process in left if process.ppid() not in ours]
    if len(parents) == 1:
        processes.end(parents, first=signal.SIGINT, patience_s=2.0)
    processes.end(processes.working_in(folder, name=name), first=signal.SIGKILL, patience_s=5.0)


def tail(log: Path, lines: int = 12) -> str:
    """Return the last lines of a log."""
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"({log}: {error.strerror})"

"""Processes that a stack may have left behind: found by what is theirs alone, ended by pid.

A server is known by its working directory (PostgreSQL's backends and Valkey work in their data folder and
overwrite their command line); everything else by HARNESS_STACK in the environment it was started with.
psutil compares start times, so a pid that was used again is never signalled.
"""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

MARK = "HARNESS_STACK"


def working_in(folder: Path, *, name: str) -> list[psutil.Process]:
    """Return the processes of this program that work in this folder."""
    where = str(folder.resolve())
    return _matching(lambda process: process.name().startswith(name) and process.cwd() == where)


def marked(stack_dir: Path) -> list[psutil.Process]:
    """Return the processes that were started for the stack with this folder, and what they started."""
    mark = str(stack_dir)
    return _matching(lambda process: process.environ().get(MARK) == mark)


def end(processes: Sequence[psutil.Process], *, first: signal.Signals, patience_s: float) -> None:
    """Signal `first` to all, wait for at most `patience_s`, then SIGKILL what is still there and wait for it."""
    if not processes:
        return
    _send(processes, first)
    _, alive = psutil.wait_procs(processes, timeout=patience_s)
    _send(alive, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=patience_s)


def _send(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _matching(test: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if test(process) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            # Gone meanwhile, or another user's: neither is ours to end.
            continue
    return found

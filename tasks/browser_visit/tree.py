"""The end of a process and of everything that it started, also of what made itself a group or session of its own."""

import contextlib
import os

import psutil


def kill(pid: int) -> None:
    """Kill a process and its descendants; this process itself, when it is one of them, at last.

    They are collected before the first one ends: a child whose parent is gone can't be found any more. What is started
    between is found in the next round.
    """
    mine = os.getpid()
    while found := _living(pid):
        others = [one for one in found if one.pid != mine]
        for one in others:
            with contextlib.suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(others, timeout=5)
        if not others:
            os.kill(mine, 9)


def _living(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(pid)
        if top.status() != psutil.STATUS_ZOMBIE:
            return [*reversed(top.children(recursive=True)), top]
    return []

"""The command line that makes a sandbox, and how its process is started.

What is inside: /usr (and the interpreter) read-only, a fresh /tmp of a fixed size, /proc of its own processes, /dev
with null, zero, random and a small shm. Nothing else: no /etc, no home, no environment. Every namespace is its own.
"""

from pathlib import Path
from typing import Any, Final

from harness.kinds.sandbox.place import Place

WORK: Final = "/tmp/work"
SHM_BYTES: Final = 1024 * 1024  # for locks of multiprocessing
_INSIDE: Final = 1000  # the account's number as seen from inside
_LINKS: Final = ("bin", "lib", "lib32", "lib64", "sbin")


def command(place: Place, *, disk_bytes: int, info: int | None = None, rules: int | None = None) -> list[str]:
    """Return the command line up to the program. `info`, `rules` (seccomp): descriptors for bwrap."""
    words = [place.bwrap, "--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session"]
    words += ["--uid", str(_INSIDE), "--gid", str(_INSIDE), "--cap-drop", "ALL", "--hostname", "sandbox"]
    words += ["--clearenv", "--setenv", "PATH", "/usr/bin", "--setenv", "HOME", WORK, "--setenv", "LANG", "C.UTF-8"]
    words += ["--setenv", "TMPDIR", "/tmp", "--setenv", "MPLCONFIGDIR", "/tmp", "--setenv", "OPENBLAS_NUM_THREADS", "1"]
    words += ["--ro-bind", "/usr", "/usr"]
    for name in _LINKS:
        folder = Path("/", name)
        if folder.is_symlink():
            words += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            words += ["--ro-bind", str(folder), str(folder)]
    for shown in place.shown:
        words += ["--ro-bind", shown, shown]
    if place.packages:
        words += ["--ro-bind", place.packages, "/packages", "--setenv", "PYTHONPATH", "/packages"]
    # The dynamic loader's cache and what distributions' links lead to; no secret of anybody's.
    words += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    words += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm"]
    words += ["--size", str(disk_bytes), "--tmpfs", "/tmp", "--dir", WORK]
    # bwrap's root and /dev are a tmpfs without a size: what can be written there has no limit.
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORK]
    if info is not None:
        words += ["--info-fd", str(info)]
    if rules is not None:
        words += ["--seccomp", str(rules)]
    return [*words, "--"]


def started(place: Place) -> dict[str, Any]:
    """Return how `subprocess` starts it: without an environment, in a session of its own, as the place's account."""
    how: dict[str, Any] = {"env": {}, "cwd": "/", "start_new_session": True}
    if place.uid is not None:
        how |= {"user": place.uid, "group": place.uid, "extra_groups": []}
    return how

"""What this machine has for a sandbox: bubblewrap, an interpreter, and an account to start it as.

A worker of root starts the sandbox as an account of nobody's (HARNESS_SANDBOX_UID): the kernel counts processes per
account and lets root's go on, and an escape must not end as root. Any other worker starts it as itself.
"""

import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.kinds.sandbox import seccomp

INSTALL = "install it (Debian, Ubuntu: apt-get install bubblewrap)"
UID = 65_433  # nobody's: below systemd's and container engines' ranges of made accounts, above people's
TRIAL_S = 20.0

_good: set["Place"] = set()  # where an empty sandbox was made by this process


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a sandbox can be made. `uid`: the account to become first; None: the worker's own.

    `shown`: folders beside /usr that the interpreter needs. `packages`: a folder for imports, read-only.
    """

    bwrap: str
    python: str
    shown: tuple[str, ...]
    packages: str | None
    uid: int | None


def find() -> Place | str:
    """Return the place, or why there is none and what to do."""
    return _find(
        os.environ.get("PATH", os.defpath),
        os.environ.get("HARNESS_SANDBOX_UID", ""),
        os.environ.get("HARNESS_SANDBOX_PYTHON", ""),
        os.environ.get("HARNESS_SANDBOX_PACKAGES", ""),
    )


def lack() -> str | None:
    """Return why no sandbox can be made here and what to do; None: it can. Until it can, each answer is a trial."""
    place = find()
    return place if isinstance(place, str) else _trial(place)


def _trial(place: Place) -> str | None:
    """Make an empty sandbox: the kernel, or a container's rules, may forbid it. Once, when it goes well."""
    if place in _good:
        return None
    from harness.kinds.sandbox.command import command, started

    try:
        done = subprocess.run(
            [*command(place, disk_bytes=1 << 20), place.python, "-I", "-S", "-c", ""],
            **started(place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TRIAL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"bubblewrap made no sandbox within {TRIAL_S:.0f} s"
    except OSError as error:
        return f"bubblewrap can't be started as account {place.uid or os.geteuid()}: {place.bwrap}: {error.strerror}"
    if done.returncode == 0:
        _good.add(place)
        return None
    why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return (
        f"bubblewrap can make no sandbox here ({why}): allow unprivileged user namespaces (sysctl "
        "kernel.unprivileged_userns_clone=1, user.max_user_namespaces; in a container: its seccomp and AppArmor rules)"
    )


def _find(path: str, uid_named: str, python_named: str, packages: str) -> Place | str:
    if sys.platform != "linux":
        return "the sandbox needs Linux"
    if not seccomp.is_known():
        return "the sandbox's filter of system calls is made for x86_64 and aarch64 only"
    bwrap = shutil.which("bwrap", path=path)
    if bwrap is None:
        return f"bubblewrap isn't there: {INSTALL} where the worker of pool sandbox runs"
    uid: int | None = None
    if os.geteuid() == 0:
        if uid_named and not (uid_named.isdecimal() and int(uid_named) > 0):
            return f"HARNESS_SANDBOX_UID must be the number of an account that isn't root's, not {uid_named!r}"
        uid = int(uid_named or UID)
    for folder in filter(None, [packages]):
        if not _reachable(Path(folder), uid):
            return f"HARNESS_SANDBOX_PACKAGES: account {uid or os.geteuid()} can't read {folder}"
    tried = []
    for python in [python_named] if python_named else [_own_python(), "/usr/bin/python3"]:
        if _reachable(Path(python), uid):
            real = os.path.realpath(python)
            return Place(
                bwrap=bwrap,
                python=real,
                shown=() if real.startswith("/usr/") else (str(Path(real).parents[1]),),
                packages=packages or None,
                uid=uid,
            )
        tried.append(python)
    return (
        f"account {uid or os.geteuid()} of the sandbox can run none of {', '.join(tried)}: install python3 in /usr, or "
        "name an interpreter that everybody may read in HARNESS_SANDBOX_PYTHON"
    )


def _own_python() -> str:
    """Return the interpreter that this one's environment was made of."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return str(Path(sys.base_prefix) / "bin" / version)


def _reachable(path: Path, uid: int | None) -> bool:
    """Whether the account may read it and pass through all folders above. None: this process's own account."""
    real = Path(os.path.realpath(path))
    if uid is None:
        return os.access(real, os.R_OK | os.X_OK)
    try:
        return all(one.stat().st_mode & stat.S_IXOTH for one in (real, *real.parents))
    except OSError:
        return False

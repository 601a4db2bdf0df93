"""Files below allowed folders, opened so that nothing outside can be reached: no `..`, and no symlink is followed.

Each step of a path is opened relative to the one before it with O_NOFOLLOW, so that a link put in place between a check
and the use of it changes nothing. Only the allowed folders themselves may lie behind links: an operator names them.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from harness.kinds.errors import Permanent
from harness.policy.errors import ErrorClass

TENANT = "{tenant}"  # in a root: the tenant's number, for a folder that is its own
_STEP = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = _STEP | os.O_DIRECTORY


@dataclass(frozen=True, slots=True)
class Listed:
    """What a folder holds: files as paths relative to it, and what was left out with the reason."""

    files: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]


class Outside(Permanent):
    """The path leads out of the allowed folders."""

    def __init__(self, message: str) -> None:
        super().__init__(message, error_class=ErrorClass.PERMISSION)


def roots_of(setting: str, tenant: int) -> tuple[str, ...]:
    """Return a tenant's allowed folders from the setting (separated as in PATH).

    >>> roots_of("/srv/shared:/srv/own/{tenant}", 7)
    ('/srv/shared', '/srv/own/7')
    """
    return tuple(root.replace(TENANT, str(tenant)) for root in setting.split(os.pathsep) if root)


def place(roots: Sequence[str], path: str) -> tuple[str, tuple[str, ...]]:
    """Return (root, steps below it) of a path: absolute, or relative to the first root. Raises: Outside."""
    if not roots:
        raise Outside(f"path: {path!r} can't be read: no folder is allowed here (setting HARNESS_DOCUMENT_ROOTS)")
    pure = PurePosixPath(path)
    if "\0" in path or ".." in pure.parts:
        raise Outside(f"path: {path!r} holds '..' or NUL; name the file by its own path")
    if not pure.is_absolute():
        return roots[0], pure.parts
    for root in roots:
        if pure.is_relative_to(root):
            return root, pure.relative_to(root).parts
    raise Outside(f"path: {path!r} lies outside the allowed folders (setting HARNESS_DOCUMENT_ROOTS)")


def open_file(roots: Sequence[str], path: str) -> BinaryIO:
    """Open a regular file for reading. The caller closes it. Raises: Outside, Permanent."""
    root, steps = place(roots, path)
    if not steps:
        raise Permanent(f"path: {path!r} is a folder, not a file")
    with _folder(root, steps[:-1], path) as folder:
        # O_NONBLOCK: opening a FIFO without a writer would wait for one.
        opened = _open(steps[-1], _STEP | os.O_NONBLOCK, folder, path)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise Permanent(f"path: {path!r} is no regular file")
    return os.fdopen(opened, "rb")


def files(roots: Sequence[str], path: str, *, most: int) -> Listed:
    """List the files below a folder, in order of their paths; hidden ones, links and special files are left out.

    Raises: Outside, Permanent; Permanent when there are more than `most`.
    """
    root, steps = place(roots, path)
    found: list[str] = []
    left_out: list[tuple[str, str]] = []
    with _folder(root, steps, path) as top:
        for folder, below, names, handle in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            inside = PurePosixPath(folder)
            links = [name for name in below if stat.S_ISLNK(os.lstat(name, dir_fd=handle).st_mode)]
            left_out += [(str(inside / name), "a symlink is not followed") for name in links]
            below[:] = sorted(name for name in below if not name.startswith(".") and name not in links)
            for name in sorted(names):
                one = str(inside / name)
                reason = _unfit(name, handle)
                if reason is None:
                    found.append(one)
                elif reason:
                    left_out.append((one, reason))
            if len(found) > most:
                raise Permanent(f"folder: {path!r} holds more than {most:,} files: ingest its folders one by one")
    told = ((name.encode("utf-8", "replace").decode(), reason) for name, reason in left_out)
    return Listed(tuple(sorted(found)), tuple(sorted(told)))


def _unfit(name: str, folder: int) -> str | None:
    """Why a file is left out; '' without a word; None: it isn't."""
    if name.startswith("."):
        return ""
    try:
        name.encode()
        about = os.lstat(name, dir_fd=folder)
    except UnicodeEncodeError:
        return "its name isn't valid UTF-8"
    except OSError as error:
        return os.strerror(error.errno or 0)
    if stat.S_ISLNK(about.st_mode):
        return "a symlink is not followed"
    return None if stat.S_ISREG(about.st_mode) else "no regular file"


@contextmanager
def _folder(root: str, steps: Sequence[str], path: str) -> Iterator[int]:
    try:
        handle = os.open(os.path.realpath(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Permanent(
            f"path: the allowed folder of {path!r} can't be opened: {os.strerror(error.errno or 0)}"
        ) from None
    try:
        for step in steps:
            below = _open(step, _FOLDER, handle, path)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _open(step: str, flags: int, folder: int, path: str) -> int:
    try:
        return os.open(step, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(step, folder):
            raise Outside(f"path: {path!r} goes through the symlink {step!r}, which is not followed") from None
        if error.errno == errno.EACCES:
            raise Outside(f"path: {path!r} may not be read by this process") from None
        raise Permanent(f"path: {path!r} can't be opened: {os.strerror(error.errno or 0)}") from None


def _is_link(step: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(step, dir_fd=folder).st_mode)
    except OSError:
        return False

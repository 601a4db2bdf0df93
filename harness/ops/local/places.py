"""Where the local stack keeps things, and as whom its servers run.

    <home>/stack     ours, 0700: addresses, passwords, supervisor's configuration and socket, logs
    <servers>        the servers' user, 0700: their data, sockets, and a copy of the binaries if it needs one

PostgreSQL refuses to run as root, so root drops to an existing unprivileged user. Where that user can't reach
<home> (a checkout in a home folder of mode 0700), <servers> is a folder under /var/tmp named by a hash of the
path. Permissions are only ever changed on folders that this module made.
"""

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.policy.errors import Refused

FALLBACK = Path("/var/tmp")
USERS = ("nobody", "postgres", "daemon")
_READ_AND_RUN = stat.S_IROTH | stat.S_IXOTH
SOCKET_BYTES = 107  # sun_path holds 108 with the closing NUL


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """The unprivileged user that the servers run as when we are root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """The folders of one local stack. `account` is None when we are not root."""

    home: Path
    stack: Path
    servers: Path
    logs: Path
    account: Account | None

    def socket_folder(self, longest_name: str, *, for_servers: bool) -> Path:
        """Return a folder in which a socket of this name has a path short enough for the kernel."""
        near = self.servers if for_servers else self.stack
        if len(os.fsencode(near / longest_name)) <= SOCKET_BYTES:
            return near
        return _private_folder(self._short(for_servers), self.account if for_servers else None)

    def drop_socket_folders(self) -> None:
        """Remove the folders that only long paths need, once their sockets are gone."""
        for for_servers in (True, False):
            with contextlib.suppress(OSError):
                self._short(for_servers).rmdir()

    def _short(self, for_servers: bool) -> Path:
        return Path("/tmp") / f"harness-{'servers' if for_servers else 'stack'}-{_digest(self.home)}"


def open_places(home: Path) -> Places:
    """Make the folders that are not there yet. Raises: Refused naming the folder that can't be written."""
    home = home.resolve()
    account = _account() if os.geteuid() == 0 else None
    try:
        # 0711: the servers' user has to pass through to its own folder, nobody may look around.
        home.mkdir(mode=0o711, parents=True, exist_ok=True)
        stack = _private_folder(home / "stack", None)
        logs = _private_folder(stack / "logs", None)
        servers = home / "servers"
        if account is not None and not can_reach(account, servers):
            servers = FALLBACK / f"harness-{_digest(home)}"
    except OSError as error:
        raise _cannot_write(error, home) from error
    return Places(home=home, stack=stack, servers=servers, logs=logs, account=account)


def make_servers_folder(places: Places) -> None:
    """Make <servers>, which only embedded servers need. Raises: Refused as `open_places` does."""
    try:
        _private_folder(places.servers, places.account)
    except OSError as error:
        raise _cannot_write(error, places.home) from error


def can_reach(account: Account, path: Path) -> bool:
    """Whether this user may pass through every folder above `path` that exists."""
    for folder in path.resolve().parents:
        if folder.exists() and not _allows(account, folder, stat.S_IXOTH):
            return False
    return True


def readable_packages(root: Path, trees: Iterable[str], samples: Iterable[str], *, places: Places, name: str) -> Path:
    """Return a folder with the `trees` of `root` that the servers' user can read and run.

    That is `root` itself where the user can reach it and read `samples`, else a copy in our own folder, in which the
    trees stand to each other as before (binaries find their libraries by that).
    """
    account = places.account
    if account is None or all(
        can_reach(account, file) and _allows(account, file, _READ_AND_RUN if _runs(file) else stat.S_IROTH)
        for file in (root / sample for sample in samples)
    ):
        return root
    copy = places.servers / "copies" / name
    if not copy.exists():
        draft = copy.with_name(f"{name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        for tree in trees:
            if (root / tree).exists():
                leave = shutil.ignore_patterns("include", "doc", "*.a", "__pycache__")
                shutil.copytree(root / tree, draft / tree, symlinks=True, ignore=leave)
        for found in (draft.parent, draft, *draft.rglob("*")):
            if not found.is_symlink():
                found.chmod(0o755 if found.is_dir() or _runs(found) else 0o644)
        draft.rename(copy)
    return copy


def private_folder(path: Path, places: Places) -> Path:
    """Make a folder inside <servers> that only the servers' user can open, and return it."""
    return _private_folder(path, places.account)


def hand_over(path: Path, places: Places) -> None:
    """Give a file that we wrote for the servers to their user; a link put in its place is not followed."""
    if places.account:
        os.chown(path, places.account.uid, places.account.gid, follow_symlinks=False)


def _private_folder(path: Path, account: Account | None) -> Path:
    uid, gid = (account.uid, account.gid) if account else (os.geteuid(), os.getegid())
    try:
        path.mkdir(mode=0o700)
        if account:
            os.chown(path, uid, gid)
    except FileExistsError:
        # /tmp and /var/tmp are everyone's: a folder or link that someone else put there is not ours.
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (uid, os.geteuid()) or found.st_mode & 0o077:
            raise Refused(
                f"{path} is not a private folder of {account.name if account else 'this user'} (mode 0700); "
                "remove it and start again",
                field=str(path),
            ) from None
        if found.st_uid != uid:
            os.chown(path, uid, gid)
    return path


def _cannot_write(error: OSError, home: Path) -> Refused:
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"user {uid}"
    return Refused(
        f"cannot write to {error.filename or home}: {error.strerror}; make it writable for {user}, "
        "or name another folder in HARNESS_LOCAL_DIR",
        field="HARNESS_LOCAL_DIR",
    )


def _account() -> Account:
    for name in USERS:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        if found.pw_uid != 0:
            return Account(name=name, uid=found.pw_uid, gid=found.pw_gid)
    raise Refused(
        f"PostgreSQL refuses to run as root and none of the users {', '.join(USERS)} exists; "
        "start as another user, or point DATABASE_URL to a server",
        field="DATABASE_URL",
    )


def _allows(account: Account, path: Path, others_bits: int) -> bool:
    found = path.stat()
    if found.st_uid == account.uid:
        wanted = others_bits << 6
    elif found.st_gid == account.gid:
        wanted = others_bits << 3
    else:
        wanted = others_bits
    return found.st_mode & wanted == wanted


def _runs(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR)


def _digest(home: Path) -> str:
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:12]

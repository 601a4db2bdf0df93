"""A pytest plugin: the servers of a test run, started before Django's settings are read.

It must be loaded by `-p` (pyproject.toml does): pytest-django reads the settings before any conftest. Servers that
DATABASE_URL or BROKER_URL name are used as they are; the others are embedded, on free ports, in a folder of their own
that goes with the run. The database is always called test_<name>, so that a real one is never touched, and
DATABASE_URL names it from the start: processes that a test spawns see the same database.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from harness.ops.local.places import Places, open_places
from harness.ops.local.postgres import PROGRAM as POSTGRES
from harness.ops.local.server import end_orphans
from harness.ops.local.servers import Servers
from harness.ops.local.valkey import PROGRAM as VALKEY

EMBEDDED = "HARNESS_TEST_EMBEDDED"  # set while the database is ours and goes with the run
_PREFIX = "harness-test-"
_NO_RUN = {"--help", "-h", "--version", "-V", "--collect-only", "--co", "--fixtures", "--markers", "--setup-plan"}


class _Run:
    """The servers of this run; nothing is started where every server is named."""

    def __init__(self) -> None:
        self._servers: Servers | None = None
        self._home: Path | None = None
        self._lock: int | None = None
        self._files = ""  # artifacts of this run
        self._embedded_database = not os.environ.get("DATABASE_URL")

    def start(self) -> None:
        if self._embedded_database or not os.environ.get("BROKER_URL"):
            with _alone():  # else a run that begins at the same time takes a new folder for one that was left
                _sweep()
                self._home = Path(tempfile.mkdtemp(prefix=_PREFIX))
                # The servers' user passes through to its own folder, as in a checkout.
                self._home.chmod(0o711)
                self._lock = _lock(self._home)
            self._servers = Servers(open_places(self._home), throwaway=True)
        found = self._servers.start(os.environ) if self._servers else dict(os.environ)
        os.environ["DATABASE_URL"] = _test_database(found["DATABASE_URL"])
        os.environ["BROKER_URL"] = found["BROKER_URL"]
        os.environ.setdefault("SECRET_KEY", "only-for-tests")
        # Not under _PREFIX of its own: other runs take such folders, without a lock, for those of killed runs.
        self._files = tempfile.mkdtemp(prefix="artifacts-", dir=self._home)
        os.environ["HARNESS_ARTIFACTS_DIR"] = self._files
        if self._embedded_database:
            os.environ[EMBEDDED] = "1"

    def stop(self) -> None:
        if self._files:
            shutil.rmtree(self._files, ignore_errors=True)
        if self._servers and self._home and self._lock is not None:
            self._servers.stop()
            _remove(open_places(self._home))
            os.close(self._lock)
            self._servers = None


_run = _Run()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(args: list[str]) -> Generator[None, object, object]:
    """Start the servers; a wrapper runs before pytest-django's own hook, which reads the settings."""
    if not _NO_RUN.intersection(args):
        _run.start()
    return (yield)


def pytest_unconfigure() -> None:
    """Stop the servers and remove their folder."""
    _run.stop()


def _test_database(url: str) -> str:
    parts = urlsplit(url)
    name = parts.path.removeprefix("/") or "harness"
    return urlunsplit(parts._replace(path=f"/test_{name.removeprefix('test_')}"))


def _lock(home: Path) -> int:
    handle = os.open(home / "run.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other runs of this user from beginning meanwhile."""
    name = f"harness-tests-{os.geteuid()}.lock"
    handle = os.open(Path(tempfile.gettempdir()) / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sweep() -> None:
    """Remove what runs that were killed left: their lock is free."""
    for home in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if home.stat().st_uid != os.geteuid():
                continue
            handle = _lock(home)
        except (BlockingIOError, FileNotFoundError):  # in use, or its run removes it just now
            continue
        _remove(open_places(home))
        os.close(handle)


def _remove(places: Places) -> None:
    for name, program in (("postgres", POSTGRES), ("valkey", VALKEY)):
        end_orphans(places.servers / name, name=program)
    for folder in (places.servers, places.home):
        shutil.rmtree(folder, ignore_errors=True)

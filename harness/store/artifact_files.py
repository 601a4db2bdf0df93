"""The bytes of artifacts: spooled to a private folder while they come, then kept by the storage `artifacts` of Django.

Never whole in memory. A spool file is locked while its process lives, so that what a killed one left can be told and
removed. Which row a path belongs to is not known here.
"""

import contextlib
import fcntl
import hashlib
import importlib
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import BinaryIO, Self, TypeVar, cast

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.files import File
from django.core.files.storage import FileSystemStorage, InvalidStorageError, Storage, storages

from harness.policy.errors import NotFound, TooLarge, Unavailable
from harness.telemetry import logs

T = TypeVar("T")

ALIAS = "artifacts"
SPOOL_PREFIX = "spool-"
PROBE_PREFIX, PROBE = "probe-", b"can it be kept?"
UNLOCKED_S = 60.0  # a spool file made a moment ago may not have its lock yet

log = logs.get(__name__)


class Spool:
    """Bytes on their way in, counted and hashed. Use as a context manager: what isn't kept is gone at its end.

    A write and a discard may come from different threads.
    """

    def __init__(self, *, max_bytes: int) -> None:
        """Raises: Unavailable when the folder can't be written."""
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self._lock = threading.Lock()
        self.bytes = 0
        try:
            handle, self.path = tempfile.mkstemp(prefix=SPOOL_PREFIX, dir=_spool_folder())
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _unavailable("spool", error) from error
        self._file: BinaryIO | None = os.fdopen(handle, "w+b")

    @property
    def sha256(self) -> str:
        """The hash of what was written so far."""
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Take some bytes. Raises: TooLarge; Unavailable when the disk is full or the spool was discarded."""
        with self._lock:
            if self._file is None:
                raise Unavailable("the upload was broken off")
            if self.bytes + len(chunk) > self._max_bytes:
                raise TooLarge(
                    f"body: is larger than {self._max_bytes:,} bytes, the limit of an artifact", field="body"
                )
            try:
                self._file.write(chunk)
            except OSError as error:
                raise _unavailable("spool", error) from error
            self._hash.update(chunk)
            self.bytes += len(chunk)

    def keep(self, path: str) -> None:
        """Bring the bytes to a path of the storage that nothing is at. Raises: Unavailable; then nothing is there."""
        assert self._file is not None

        def bring(storage: Storage, file: BinaryIO) -> None:
            file.flush()
            os.fsync(file.fileno())
            if storage.save(path, _Spooled(file, self.path)) != path:
                raise OSError(f"{path} was taken")  # paths are UUIDs: someone wrote into our folder

        file = self._file
        try:
            _stored("keep", lambda storage: bring(storage, file))
        except Unavailable:
            remove(path)
            raise

    def discard(self) -> None:
        """Remove the spool file, if it was not moved into the storage. May be called again."""
        with self._lock:
            if self._file is not None:
                Path(self.path).unlink(missing_ok=True)
                self._file.close()
                self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


class _Spooled(File):  # type: ignore[type-arg]  # django-stubs' File is generic, Django's own is not
    """What a storage is given: a local folder takes the file itself, any other reads it."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        super().__init__(file, name=path)
        self._path = path

    def temporary_file_path(self) -> str:
        """Where a local storage may take the file from."""
        return self._path


def open_bytes(path: str) -> BinaryIO:
    """Open stored bytes for reading and seeking; the caller closes. Raises: NotFound (they are gone), Unavailable."""
    try:
        return cast(BinaryIO, _stored("open", lambda storage: storage.open(path, "rb")))
    except FileNotFoundError:
        log.error("artifact_bytes_missing", path=path)
        raise NotFound("the artifact's content is gone from the store") from None


def read(file: BinaryIO, most_bytes: int) -> bytes:
    """Read some bytes. Raises: Unavailable."""
    return _stored("read", lambda _: file.read(most_bytes))


def remove(path: str) -> bool:
    """Remove bytes, if they are there. Returns whether they are surely gone."""
    try:
        _stored("remove", lambda storage: storage.delete(path))
    except Unavailable:
        return False
    return True


def is_local() -> bool:
    """Whether the bytes are in a folder, so that removing some takes no time to speak of. Raises: Unavailable."""
    return _stored("look", lambda storage: isinstance(storage, FileSystemStorage))


def probe() -> None:
    """Keep some bytes, as an upload is kept, and remove them. Raises: Unavailable, with the cause."""
    path = f"{PROBE_PREFIX}{uuid.uuid4()}"
    with Spool(max_bytes=len(PROBE)) as spool:
        spool.write(PROBE)
        spool.keep(path)
    _stored("remove", lambda storage: storage.delete(path))


def drop_stale_spools() -> int:
    """Remove spool files whose process is gone. Returns how many."""
    dropped = 0
    for path in _spool_folder().glob(f"{SPOOL_PREFIX}*"):
        try:
            handle = os.open(path, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - os.fstat(handle).st_mtime > UNLOCKED_S:
                path.unlink(missing_ok=True)
                dropped += 1
        except BlockingIOError:
            pass
        finally:
            os.close(handle)
    return dropped


def _spool_folder() -> Path:
    folder = Path(settings.HARNESS_ARTIFACTS_DIR)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _stored(what: str, work: Callable[[Storage], T]) -> T:
    """Work with the storage. Raises: Unavailable for whatever it fails with; FileNotFoundError (open)."""
    try:
        return work(storages[ALIAS])
    except _failures() as error:
        if what == "open" and isinstance(error, FileNotFoundError):
            raise
        raise _unavailable(what, error) from error


@cache
def _failures() -> tuple[type[Exception], ...]:
    """What a storage may fail with: a wrong setting, a library that is missing, the disk, or S3's own errors."""
    found: list[type[Exception]] = [ImproperlyConfigured, InvalidStorageError, ImportError, OSError, ValueError]
    for module, name in (
        ("botocore.exceptions", "BotoCoreError"),
        ("botocore.exceptions", "ClientError"),
        ("boto3.exceptions", "Boto3Error"),
    ):
        with contextlib.suppress(ImportError):
            found.append(getattr(importlib.import_module(module), name))
    return tuple(found)


def _unavailable(what: str, error: Exception) -> Unavailable:
    log.error("artifact_store_failed", during=what, error=f"{type(error).__name__}: {error}")
    return Unavailable("the store of artifacts can't do it now; try again later")

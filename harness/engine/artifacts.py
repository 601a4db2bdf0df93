"""Artifacts in the right order: spool, reserve, bring the bytes, publish; and hide, remove the bytes, drop the row.

Whatever breaks off in between leaves a row that `sweep` finds, and never a row that is seen without its bytes. Web and
`ctx.artifacts` both come through here; a connection is held for single steps only, never while bytes move.
"""

import io
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn, Protocol, TypeVar

from django.conf import settings

from harness.engine.process import ProcessState
from harness.kinds.artifacts import Artifact, Content
from harness.kinds.errors import Permanent, Transient
from harness.policy.errors import HarnessError, Invalid, Unavailable
from harness.store import artifact_files, artifacts
from harness.store.artifact_files import Spool
from harness.store.artifacts import ArtifactView, NewArtifact
from harness.store.database import Connection, borrowed
from harness.telemetry import logs

T = TypeVar("T")

DAY_S = 86400.0
KEEP_MIN_S = 60
KEEP_MAX_S = 3650 * 86400
NAME_MAX_CHARS = 255
CONTENT_TYPE_MAX_CHARS = 200
CHUNK_BYTES = 256 * 1024
SWEPT_AT_ONCE = 200
TIDIED_AT_ONCE = 2000  # in a folder: some 0.1 s
_TOKEN = r"[A-Za-z0-9!#$&^_.+-]+"
_CONTENT_TYPE = re.compile(rf'{_TOKEN}/{_TOKEN}(?:\s*;\s*{_TOKEN}=(?:{_TOKEN}|"[^"\\\x00-\x1f]*"))*')

log = logs.get(__name__)


class Borrow(Protocol):
    """Lends a connection for one step. Raises: Unavailable."""

    def __call__(self, work: Callable[[Connection], T], /) -> T:
        """Do it."""
        ...


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of an upload. `existing`: the tenant had this content before."""

    artifact: ArtifactView
    existing: bool


def spool() -> Spool:
    """Return an empty spool that takes as much as an artifact may hold. Raises: Unavailable."""
    return Spool(max_bytes=settings.HARNESS_ARTIFACT_MAX_BYTES)


def check(name: str, content_type: str, keep_s: float | None) -> float:
    """Check what an artifact is called, before its bytes come, and return for how many seconds to keep it.

    Raises: Invalid naming the field.
    """
    if not 0 < len(name) <= NAME_MAX_CHARS or not name.isprintable() or name in {".", ".."} or "/" in name:
        raise Invalid(
            f"name: must be 1 to {NAME_MAX_CHARS} printable characters, a file name without '/'", field="name"
        )
    if len(content_type) > CONTENT_TYPE_MAX_CHARS or not _CONTENT_TYPE.fullmatch(content_type):
        raise Invalid(
            f"content_type: must be a media type such as application/pdf, of at most {CONTENT_TYPE_MAX_CHARS} "
            "characters",
            field="content_type",
        )
    keep_s = settings.HARNESS_ARTIFACT_KEEP_DAYS * DAY_S if keep_s is None else keep_s
    if not KEEP_MIN_S <= keep_s <= KEEP_MAX_S:
        raise Invalid(f"keep_s: must be {KEEP_MIN_S} to {KEEP_MAX_S:,} seconds, not {keep_s}", field="keep_s")
    return keep_s


def keep(
    borrow: Borrow,
    spooled: Spool,
    *,
    tenant: int,
    task: int | None,
    name: str,
    content_type: str,
    keep_s: float,
    fence: Callable[[], None] = lambda: None,
) -> Kept:
    """Keep what was spooled, once per tenant and content. `fence` is asked before each step that can be seen.

    Raises: OverQuota, Unavailable, NotFound (the tenant is gone), and what `fence` raises; then nothing is left.
    """
    new = NewArtifact(
        tenant=tenant,
        task=task,
        name=name,
        content_type=content_type,
        sha256=spooled.sha256,
        bytes=spooled.bytes,
        keep_s=keep_s,
    )
    # 1. Reserve: from here on the bytes count
    fence()
    reserved = borrow(lambda connection: artifacts.reserve(connection, new))
    if isinstance(reserved, ArtifactView):
        return Kept(reserved, existing=True)
    try:
        # 2. Bring the bytes
        spooled.keep(reserved.path)
        # 3. Publish; an equal upload may have done so first
        fence()
        shown = borrow(lambda connection: artifacts.publish(connection, reserved, new))
    except BaseException:
        _undo(borrow, tenant, reserved.public_id)
        raise
    if shown.id != reserved.id:
        _undo(borrow, tenant, reserved.public_id)
        return Kept(shown, existing=True)
    log.info("artifact_kept", tenant=tenant, artifact=str(shown.public_id), bytes=shown.bytes)
    return Kept(shown, existing=False)


def delete(borrow: Borrow, *, tenant: int, public_id: uuid.UUID) -> bool:
    """Remove an artifact. False: there is none that this tenant sees. Nobody sees it from here on, whatever fails.

    Raises: Unavailable (database).
    """
    hidden = borrow(lambda connection: artifacts.give_up(connection, tenant, public_id))
    if hidden is None:
        return False
    row, path = hidden
    if artifact_files.remove(path):  # else the sweep tries again
        borrow(lambda connection: artifacts.drop(connection, tenant, [row]))
    log.info("artifact_deleted", tenant=tenant, artifact=str(public_id))
    return True


def sweep(connection: Connection, *, tenant: int | None = None, most: int | None = None) -> int:
    """Remove what has expired or was broken off (with `tenant`: all that is its own). Returns how many rows went.

    In autocommit, in batches: a file that can't be removed keeps its row, for the next sweep. Any number may run it.
    """
    removed = 0
    while most is None or removed < most:
        found = artifacts.leftovers(connection, tenant=tenant, limit=SWEPT_AT_ONCE)
        gone = [row for row, path in found if artifact_files.remove(path)]
        if gone:
            artifacts.drop(connection, None, gone)
        removed += len(gone)
        if len(gone) < SWEPT_AT_ONCE:
            break
    return removed


def tidy(connection: Connection) -> int:
    """Remove some of what has expired, where that is quick; elsewhere `manage.py retention` does, and nobody sees it.

    For the sweep's thread, which must not wait for a store that doesn't answer. Returns how many rows went.
    """
    try:
        return sweep(connection, most=TIDIED_AT_ONCE) if artifact_files.is_local() else 0
    except Unavailable:
        return 0


def _undo(borrow: Borrow, tenant: int, public_id: uuid.UUID) -> None:
    try:
        delete(borrow, tenant=tenant, public_id=public_id)
    except Unavailable as error:  # the sweep finds the reservation
        log.warning("artifact_not_undone", artifact=str(public_id), error=error.message)


class RunArtifacts:
    """`ctx.artifacts` of one attempt; implements `kinds.artifacts.Artifacts`."""

    __slots__ = ("_checkpoint", "_process", "_task", "_tenant")

    def __init__(self, process: ProcessState, checkpoint: Callable[[], None], *, tenant: int, task: int) -> None:
        self._process = process
        self._checkpoint = checkpoint
        self._tenant = tenant
        self._task = task

    def put(self, name: str, content_type: str, content: Content, *, keep_s: float | None = None) -> Artifact:
        """Keep bytes. Raises: see `kinds.artifacts.Artifacts.put`."""
        self._checkpoint()
        try:
            keep_for_s = check(name, content_type, keep_s)
            with spool() as spooled:
                for chunk in _chunks(content):
                    self._checkpoint()
                    spooled.write(chunk)
                kept = keep(
                    self._borrow,
                    spooled,
                    tenant=self._tenant,
                    task=self._task,
                    name=name,
                    content_type=content_type,
                    keep_s=keep_for_s,
                    fence=self._process.fence.check,
                )
        except HarnessError as error:
            _refuse(error)
        return _artifact(kept.artifact, existing=kept.existing)

    def find(self, artifact_id: str) -> Artifact:
        """Look one up. Raises: see `kinds.artifacts.Artifacts.find`."""
        return _artifact(self._find(artifact_id), existing=True)

    def open(self, artifact_id: str) -> BinaryIO:
        """Open one. Raises: see `kinds.artifacts.Artifacts.open`."""
        found = self._find(artifact_id)
        try:
            return artifact_files.open_bytes(found.path)
        except HarnessError as error:
            _refuse(error)

    def _find(self, artifact_id: str) -> ArtifactView:
        self._checkpoint()
        try:
            public_id = uuid.UUID(artifact_id)
        except ValueError:
            raise Permanent(f"{artifact_id!r} is no id of an artifact (a UUID)") from None
        try:
            return self._borrow(lambda connection: artifacts.one(connection, self._tenant, public_id))
        except HarnessError as error:
            _refuse(error)

    def _borrow(self, work: Callable[[Connection], T], /) -> T:
        with borrowed(self._process.db) as connection:
            return work(connection)


def _chunks(content: Content) -> Iterator[bytes]:
    if isinstance(content, bytes | bytearray | memoryview):
        content = io.BytesIO(content)
    read = getattr(content, "read", None)
    if read is None:
        yield from content
        return
    while chunk := read(CHUNK_BYTES):
        yield chunk


def _refuse(error: HarnessError) -> NoReturn:
    if isinstance(error, Unavailable):
        raise Transient(error.message) from error
    raise Permanent(error.message) from error


def _artifact(found: ArtifactView, *, existing: bool) -> Artifact:
    return Artifact(
        id=str(found.public_id),
        name=found.name,
        content_type=found.content_type,
        bytes=found.bytes,
        sha256=found.sha256,
        expires_at=found.expires_at,
        existing=existing,
    )

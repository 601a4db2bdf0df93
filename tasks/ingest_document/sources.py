"""Where a document comes from: the task itself, an upload, a file below an allowed folder, or an address.

Whatever it is, it ends as a temporary file without a name: one content, hashed as it is read, which nobody changes
between the hash and the parser, and which goes with this process.
"""

import hashlib
import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

from harness.kinds import Context, Permanent
from harness.kinds.documents import DOCX
from tasks.ingest_document.cleaning import without_unfit
from tasks.ingest_document.content_types import PDF
from tasks.ingest_document.limits import DOCUMENT_MAX_BYTES
from tasks.ingest_document.payload import Document

FETCH_S: Final = 30.0
FETCHED_TYPES: Final = ("text/*", "application/xhtml+xml", PDF, DOCX)
_BLOCK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A document's bytes. `where`: its path or address, '' without one; `served`: its type by a server."""

    file: BinaryIO
    name: str
    where: str
    sha256: str
    size_bytes: int
    served: str | None = None
    charset: str | None = None


@contextmanager
def opened(ctx: Context, payload: Document) -> Iterator[Source]:
    """Get the document. Raises: Permanent, Transient, TimedOut, Cancelled."""
    with tempfile.TemporaryFile() as file:
        if payload.content is not None:
            raw = payload.content.encode("utf-8", "surrogatepass")
            file.write(without_unfit(payload.content).encode())
            yield _source(file, payload.name or "untitled", "", hashlib.sha256(raw).hexdigest(), len(raw))
        elif payload.artifact_id is not None:
            found = ctx.artifacts.find(str(payload.artifact_id))
            with ctx.artifacts.open(found.id) as upload:
                yield _copied(ctx, upload, file, payload.name or found.name, "", found.content_type)
        elif payload.path is not None:
            with ctx.documents.open_file(payload.path) as opened_file:
                name = payload.name or payload.path.rpartition("/")[2]
                yield _copied(ctx, opened_file, file, name, payload.path)
        else:
            assert payload.url is not None  # the payload has exactly one source
            yield _fetched(ctx, payload.url, payload.name, file)


def _fetched(ctx: Context, url: str, name: str | None, file: BinaryIO) -> Source:
    from harness.kinds import egress  # only who fetches needs it

    found = egress.fetch(
        url,
        max_bytes=DOCUMENT_MAX_BYTES,
        timeout_s=FETCH_S,
        content_types=FETCHED_TYPES,
        checkpoint=ctx.checkpoint,
    )
    last = found.url.partition("?")[0].rstrip("/").rpartition("/")[2]
    source = _copied(ctx, io.BytesIO(found.content), file, name or last[:300] or "untitled", url, found.content_type)
    return replace(source, charset=found.charset)


def _copied(ctx: Context, source: BinaryIO, file: BinaryIO, name: str, where: str, served: str | None = None) -> Source:
    digest = hashlib.sha256()
    size = 0
    while block := source.read(_BLOCK_BYTES):
        ctx.checkpoint()
        size += len(block)
        if size > DOCUMENT_MAX_BYTES:
            raise Permanent(f"content: {name!r} is larger than {DOCUMENT_MAX_BYTES:,} bytes: split it")
        digest.update(block)
        file.write(block)
    if not size:
        raise Permanent(f"content: {name!r} is empty (0 bytes)")
    return _source(file, name, where, digest.hexdigest(), size, served)


def _source(file: BinaryIO, name: str, where: str, sha256: str, size_bytes: int, served: str | None = None) -> Source:
    file.flush()
    file.seek(0)
    return Source(file=file, name=name, where=where, sha256=sha256, size_bytes=size_bytes, served=served)

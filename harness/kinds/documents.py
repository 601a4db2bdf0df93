"""The tenant's searchable documents, as a kind sees them through `ctx.documents`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from harness.kinds.folders import Listed

DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
# The names of files that are read as documents when a folder is ingested, and as what.
SUFFIXES: Final[Mapping[str, str]] = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "text/html",
    ".txt": "text/plain",
    ".text": "text/plain",
    ".rst": "text/plain",
    ".pdf": "application/pdf",
    ".docx": DOCX,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class NewDocument:
    """A document to keep. `sha256` (hexadecimal) is its identity within the tenant.

    `source`: the path or address that its content was read from; '' when it came with the task or as an upload.
    """

    sha256: str
    name: str
    title: str
    content_type: str
    source: str = ""
    tags: Sequence[str] = ()
    size_bytes: int = 0
    characters: int = 0
    words: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document's clean text: `text` is its characters `start` to `end`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """What a document must be to be searched: every condition that is given holds."""

    name_prefix: str = ""
    tags: Sequence[str] = ()  # all of them
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found. `snippet` is plain text, the words that match between `**`; `rank`: higher is better."""

    document_id: str
    name: str
    title: str
    content_type: str
    ordinal: int
    start: int
    end: int
    rank: float
    snippet: str


@dataclass(frozen=True, slots=True)
class Found:
    """The best hits, best first. `looked_at`: chunks that matched and were ranked; `all`: no more matched."""

    hits: tuple[Hit, ...]
    looked_at: int
    all: bool


class Documents(Protocol):
    """Documents of the task's tenant, and of nobody else."""

    def open_file(self, path: str) -> BinaryIO:
        """Open a file below one of the allowed folders (HARNESS_DOCUMENT_ROOTS). The caller closes it.

        Raises: Permanent (class permission) when it lies outside or a symlink is on the way; Permanent when it is
        no file.
        """
        ...

    def files(self, folder: str, *, most: int) -> Listed:
        """List the files below a folder, as paths relative to it; hidden ones, links and special files are left out.

        Raises: as `open_file`; Permanent when there are more than `most`.
        """
        ...

    def put(self, document: NewDocument, chunks: Sequence[Chunk]) -> str:
        """Keep a document with its chunks, in one transaction; returns its id.

        The same content (sha256) is replaced, never doubled, and so is older content of the same `source`.
        Raises: Transient, LeaseLost (engine).
        """
        ...

    def search(self, query: str, limit: int, filters: Filters) -> Found:
        """Find chunks as a web search does: words are all wanted, "phrases", `or`, and -without.

        Raises: Transient, LeaseLost (engine).
        """
        ...

"""What a document is: by what it is declared as, by its name, and by how it begins. Contradictions are refused."""

from pathlib import PurePosixPath
from typing import Final, Literal

from harness.kinds import Permanent
from harness.kinds.documents import DOCX, SUFFIXES

HTML: Final = "text/html"
MARKDOWN: Final = "text/markdown"
TEXT: Final = "text/plain"
PDF: Final = "application/pdf"
ContentType = Literal[
    "text/html",
    "text/markdown",
    "text/plain",
    "application/pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
]
TEXTS: Final = frozenset({HTML, MARKDOWN, TEXT})
KNOWN: Final[frozenset[str]] = TEXTS | {PDF, DOCX}
HEAD_BYTES: Final = 1024  # a PDF may begin within its first KiB
_ALIASES: Final = {"application/xhtml+xml": HTML, "text/x-markdown": MARKDOWN}
_MAGIC: Final = (
    (b"PK\x03\x04", DOCX),
    (b"PK\x05\x06", DOCX),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old or encrypted Office file"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"7z\xbc\xaf", "7-Zip"),
    (b"Rar!", "RAR"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90\x00", "a program"),
    (b"{\\rtf", "RTF"),
)


def by_name(name: str) -> str | None:
    """Return the type that a file's name or an address speaks of.

    >>> by_name("a/README.MD"), by_name("logo.png")
    ('text/markdown', None)
    """
    return SUFFIXES.get(PurePosixPath(name).suffix.lower())


def decide(name: str, head: bytes, *, declared: str | None, served: str | None = None) -> str:
    """Return the type to read a document as. `head`: its first HEAD_BYTES; `served`: what a server called it.

    Raises: Permanent naming content_type when what is declared, or the name, contradicts the bytes.
    """
    said = declared or by_name(name) or known(served)
    found = _magic(head)
    if said is None:
        if found is None:
            start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
            return HTML if start.startswith((b"<!doctype html", b"<html")) else TEXT
        said = found
    if said not in KNOWN:
        raise Permanent(f"content_type: {name!r} is {said}, which nothing here reads; {_readable()}")
    if said in TEXTS and found is not None:
        raise Permanent(f"content_type: {name!r} is called {said}, but its content is {_called(found)}")
    if said not in TEXTS and said != found:
        is_ = _called(found) if found else "not one"
        raise Permanent(f"content_type: {name!r} is called {_called(said)}, but its content is {is_}")
    return said


def known(content_type: str | None) -> str | None:
    """Return a Content-Type header's value as one of ours, if it is.

    >>> known("Text/HTML; charset=utf-8"), known("image/png"), known(None)
    ('text/html', None, None)
    """
    plain = (content_type or "").partition(";")[0].strip().lower()
    plain = _ALIASES.get(plain, plain)
    return plain if plain in KNOWN else None


def _magic(head: bytes) -> str | None:
    if b"%PDF-" in head:
        return PDF
    return next((what for magic, what in _MAGIC if head.startswith(magic)), None)


def _called(what: str) -> str:
    return {PDF: "a PDF", DOCX: "a DOCX (zip)"}.get(what, what)


def _readable() -> str:
    return "send " + ", ".join(sorted(SUFFIXES))

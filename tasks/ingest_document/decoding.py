"""Bytes into text: by byte-order mark, as UTF-8, by a page's own word, and as Windows-1252 when all that fails."""

import codecs
import re
from typing import Final

from tasks.ingest_document.limits import Unreadable

BINARY_RATIO: Final = 0.01  # more control characters than this: no text, whatever it is called
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSET: Final = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_NO_CHARSETS: Final = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"})
_TEXT_CONTROLS: Final = b"\t\n\r\x0c\x1b\x08\x0b"
_NO_CONTROLS: Final = bytes(n for n in range(256) if n >= 0x20 or n in _TEXT_CONTROLS)


def decode(raw: bytes, *, html: bool = False, charset: str | None = None) -> str:
    """Return the text. `charset`: what the server said. Raises: Unreadable when it is no text.

    >>> decode(b"\\xff\\xfea\\x00"), decode("é".encode()), decode(b"\\xe9")
    ('a', 'é', 'é')
    """
    for mark, name in _MARKS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(name, "replace")
    controls = len(raw.translate(None, _NO_CONTROLS))
    if controls > BINARY_RATIO * len(raw):
        raise Unreadable(f"is binary, not text: {controls:,} of its {len(raw):,} bytes are control characters")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        pass
    said = [charset] if charset else []
    if html and (found := _CHARSET.search(raw[:4096])):
        said.append(found[1].decode("ascii"))
    for name in said:
        try:
            if codecs.lookup(name).name not in _NO_CHARSETS:
                return raw.decode(name, "replace")
        except (LookupError, ValueError):
            continue
    return raw.decode("cp1252", "replace")

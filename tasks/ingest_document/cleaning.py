"""Text as PostgreSQL, JSON and people can take it."""

import re

_UNFIT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_BLANK_LINES = re.compile(r"\n{3,}")


def without_unfit(text: str) -> str:
    """Return the text without control characters (but tab and line ends), lone surrogates and a byte-order mark."""
    return _UNFIT.sub("", text.removeprefix("\ufeff"))


def clean(text: str) -> str:
    """Return the text with plain line ends, no control characters, no lone surrogates, no runs of empty lines.

    >>> clean("a\\r\\n\\x00b\\ud800  \\n\\n\\n\\nc ")
    'a\\nb\\n\\nc'
    """
    lines = _UNFIT.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    return _BLANK_LINES.sub("\n\n", "\n".join(line.rstrip() for line in lines)).strip()

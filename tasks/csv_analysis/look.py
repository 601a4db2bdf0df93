"""What a CSV is, from its first 256 KiB: how to read it, its columns with their types and some values."""

import csv
import io
import re
from itertools import islice
from typing import Any, BinaryIO, Final

from harness.kinds import Permanent

SAMPLE_BYTES: Final = 256 * 1024
SAMPLE_ROWS: Final = 1_000
COLUMNS_MAX: Final = 200
EXAMPLES: Final = 3
EXAMPLE_CHARS: Final = 40
NAME_CHARS: Final = 100
_DELIMITERS: Final = ",;\t|"
_NUMBER: Final = re.compile(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*")
_DATE: Final = re.compile(r"\s*\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?\s*")


def facts(source: BinaryIO, name: str, size: int) -> dict[str, Any]:
    """Return what a program must know to read it, as JSON. Raises: Permanent when it has no header and row."""
    raw = source.read(SAMPLE_BYTES)
    if b"\0" in raw:
        raise Permanent(f"{name} is no CSV: it holds NUL bytes; save it as CSV in UTF-8")
    if size > len(raw):  # the last line may be cut
        raw = raw[: raw.rfind(b"\n") + 1] or raw
    text, encoding = _decoded(raw)
    delimiter = _delimiter(text)
    try:
        rows = list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), SAMPLE_ROWS + 1))
    except csv.Error as error:
        raise Permanent(f"{name} is no CSV: {error}") from None
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        raise Permanent(f"{name} is no CSV to analyse: it needs a line of column names and a line of values")
    header = [cell.strip() for cell in rows[0]]
    if len(header) > COLUMNS_MAX:
        raise Permanent(f"{name} has {len(header):,} columns; a CSV to analyse may have {COLUMNS_MAX}")
    return {
        "file": "data.csv",
        "bytes": size,
        "encoding": encoding,
        "delimiter": delimiter,
        "columns": [_column(title, at, rows[1:]) for at, title in enumerate(header)],
    }


def _decoded(raw: bytes) -> tuple[str, str]:
    try:
        return raw.decode("utf-8-sig"), "utf-8-sig"
    except UnicodeDecodeError as error:
        if error.start >= len(raw) - 4 and error.reason == "unexpected end of data":
            return raw[: error.start].decode("utf-8-sig"), "utf-8-sig"
        return raw.decode("latin-1"), "latin-1"


def _delimiter(text: str) -> str:
    """Return what parts the columns: by the first line, whatever stands in it most often."""
    first = text.partition("\n")[0]
    return max(_DELIMITERS, key=first.count)


def _column(title: str, at: int, rows: list[list[str]]) -> dict[str, Any]:
    values = [row[at].strip() for row in rows if at < len(row) and row[at].strip()]
    kind = "text"
    if values and all(_NUMBER.fullmatch(value) for value in values):
        kind = "number"
    elif values and all(_DATE.fullmatch(value) for value in values):
        kind = "date"
    distinct = list(dict.fromkeys(values))
    return {
        "name": title[:NAME_CHARS],
        "type": kind,
        "distinct_in_sample": len(distinct),
        "examples": [value[:EXAMPLE_CHARS] for value in distinct[:EXAMPLES]],
    }

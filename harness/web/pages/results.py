"""A task's result as people read it: text, Markdown, tables, facts, files and pictures; what is none of these as JSON.

What a task returns is never trusted: text is escaped, Markdown is rendered without HTML and cleaned by nh3, pictures
are files of the tenant's own. At most SHOWN_CHARS of it are shown; the whole is there to be downloaded.
"""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

from harness.store.artifacts import ArtifactView

SHOWN_CHARS = 60_000  # of text or Markdown, together
ROWS_MOST = 200
COLUMNS_MOST = 12
CELL_CHARS = 300
PARTS_MOST = 40
SHORT_CHARS = 120  # longer text stands on its own, not in a row of facts
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

_MARKDOWN_NAMES = re.compile(r"(?:^|_)(?:markdown|md|report|summary|answer)$")
_MARKDOWN_LOOKS = re.compile(r"(?m)^(?:#{1,4} \S|[-*] \S|\d+\. \S|```|\|.+\|$)|\*\*\S|\]\(https?://")
_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of a result. `name`: what the kind calls it; `html`: cleaned; `more`: what isn't shown."""

    form: Literal["text", "markdown", "table", "facts", "json"]
    name: str = ""
    text: str = ""
    html: SafeString = SafeString("")  # noqa: RUF009  # it never changes
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    more: str = ""


@dataclass(slots=True)
class _Room:
    """How many characters may still be shown."""

    left: int = SHOWN_CHARS
    cut: bool = field(default=False)

    def take(self, text: str) -> str:
        shown = text[: max(0, self.left)]
        self.left -= len(shown)
        self.cut = self.cut or len(shown) < len(text)
        return shown


def parts_of(output: Any) -> tuple[list[Part], bool]:
    """Return a result's parts, and whether all of it is shown.

    >>> [part.form for part in parts_of({"count": 2, "report": "# A report\\n\\nText."})[0]]
    ['facts', 'markdown']
    >>> parts_of([{"name": "a", "n": 1}, {"name": "b", "n": 2}])[0][0].rows
    [['a', '1'], ['b', '2']]
    """
    room = _Room()
    if output is None or output in ({}, []):
        return [], True
    if not isinstance(output, Mapping):
        return [_part("", output, room)], not room.cut
    if (grid := _grid(output)) is not None:
        rest, whole = parts_of({name: value for name, value in output.items() if name not in ("columns", "rows")})
        return [*rest, grid], whole and not grid.more
    facts = [(str(name), _cell(value)) for name, value in output.items() if _is_short(value)]
    found: list[Part] = []
    if facts:
        found.append(Part(form="facts", rows=[list(row) for row in facts[:PARTS_MOST]]))
        room.cut = room.cut or len(facts) > PARTS_MOST
    longer = [(str(name), value) for name, value in output.items() if not _is_short(value)]
    # What a person reads comes before what a program would.
    longer.sort(key=lambda item: 0 if isinstance(item[1], str) else 1)
    found += [_part(name, value, room) for name, value in longer[:PARTS_MOST]]
    room.cut = room.cut or len(longer) > PARTS_MOST
    return found, not room.cut


def cleaned(markdown: str) -> SafeString:
    """Return Markdown as HTML that can do nothing.

    >>> cleaned("**a** <script>alert(1)</script> [b](javascript:c)")
    '<p><strong>a</strong> &lt;script&gt;alert(1)&lt;/script&gt; [b](javascript:c)</p>\\n'
    """
    html = _renderer().render(markdown)
    # Safe: nh3 leaves nothing but these tags, and links to the web.
    return mark_safe(
        nh3.clean(
            html, tags=_TAGS, attributes={"a": {"href"}}, url_schemes={"http", "https", "mailto"},
            link_rel="noopener noreferrer nofollow",
        )
    )  # fmt: skip


def files_of(output: Any, files: Sequence[ArtifactView]) -> list[ArtifactView]:
    """Return the files that a task made, those that its result names first."""
    named = set(_ids(output))
    return sorted(files, key=lambda one: (str(one.public_id) not in named, one.id))


def as_json(output: Any) -> str:
    """Return a whole result as JSON, for people."""
    return json.dumps(output, ensure_ascii=False, indent=2)


@cache
def _renderer() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table").enable("strikethrough").disable("image")


def _part(name: str, value: Any, room: _Room) -> Part:
    if isinstance(value, str):
        shown = room.take(value)
        if _is_markdown(name, shown):
            return Part(form="markdown", name=_called(name), html=cleaned(shown))
        return Part(form="text", name=_called(name), text=shown)
    if (columns := _columns(value)) is not None:
        rows = [[_cell(row.get(column)) for column in columns] for row in value[:ROWS_MOST]]
        more = f"{len(value) - ROWS_MOST:,} more rows" if len(value) > ROWS_MOST else ""
        room.cut = room.cut or bool(more)
        return Part(form="table", name=_called(name), columns=[_called(one) for one in columns], rows=rows, more=more)
    return Part(form="json", name=_called(name), text=room.take(as_json(value)))


def _grid(output: Mapping[Any, Any]) -> Part | None:
    """A result that says what its columns are, and has its rows as lists."""
    columns, rows = output.get("columns"), output.get("rows")
    if not (isinstance(columns, list) and isinstance(rows, list) and 0 < len(columns) <= COLUMNS_MOST):
        return None
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        return None
    more = f"{len(rows) - ROWS_MOST:,} more rows" if len(rows) > ROWS_MOST else ""
    shown = [[_cell(cell) for cell in row] for row in rows[:ROWS_MOST]]
    return Part(form="table", columns=[_called(str(one)) for one in columns], rows=shown, more=more)


def _columns(value: Any) -> list[str] | None:
    if not isinstance(value, list) or not value or not all(isinstance(row, Mapping) for row in value[:ROWS_MOST]):
        return None
    columns: dict[str, None] = {}
    for row in value[:ROWS_MOST]:
        for name, cell in row.items():
            if isinstance(cell, Mapping) or (isinstance(cell, list) and cell and isinstance(cell[0], Mapping | list)):
                return None
            columns[str(name)] = None
    return list(columns) if len(columns) <= COLUMNS_MOST else None


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= SHORT_CHARS and "\n" not in value
    return value is None or isinstance(value, bool | int | float)


def _is_markdown(name: str, text: str) -> bool:
    return bool(_MARKDOWN_NAMES.search(name.lower()) or _MARKDOWN_LOOKS.search(text[:4000]))


def _cell(value: Any) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}" if abs(value) >= 10_000 else str(value)
        case float():
            return f"{value:.6g}"
        case str():
            text = value
        case list():
            text = ", ".join(str(one) for one in value[:20])
        case _:
            text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= CELL_CHARS else f"{text[: CELL_CHARS - 1]}…"


def _called(name: str) -> str:
    return name.replace("_", " ")


def _ids(output: Any, *, deep: int = 4) -> list[str]:
    if isinstance(output, str):
        try:
            return [str(uuid.UUID(output))] if len(output) in (32, 36) else []
        except ValueError:
            return []
    if deep and isinstance(output, Mapping):
        return [found for value in list(output.values())[:200] for found in _ids(value, deep=deep - 1)]
    if deep and isinstance(output, list):
        return [found for value in output[:200] for found in _ids(value, deep=deep - 1)]
    return []

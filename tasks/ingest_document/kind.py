"""`ingest.document`: one document, HTML, Markdown or text, becomes clean text with a title and its measures.

Never fetches anything. What leaves here holds no NUL and no lone surrogate, whatever the document spells as entities,
and stays below the limit of a result.
"""

import hashlib
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from harness.kinds import Context, Permanent, kind

CONTENT_MAX_CHARS = 262_144  # a payload is limited to 256 KiB anyway; this one names the field
# 256 KiB less room for the other fields: also what a kind that takes the text as its input may hold.
TEXT_MAX_JSON_BYTES = 240 * 1024
TITLE_MAX_CHARS = 200

_UNFIT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_BLANK_LINES = re.compile(r"\n{3,}")
_WORD = re.compile(r"\w+")


class Document(BaseModel):
    """A document as text. `name` stands in for a title that the document doesn't give."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=300, description="file name or address, for people")
    content: str = Field(min_length=1, max_length=CONTENT_MAX_CHARS, description="the document itself")
    content_type: Literal["text/html", "text/markdown", "text/plain"]


class Ingested(BaseModel):
    """The clean text. `characters` and `words` count the whole text, also when `text` was cut (`truncated`)."""

    name: str
    title: str
    text: str
    characters: int
    words: int
    sha256: str = Field(description="of the content as it came, in UTF-8, hexadecimal")
    truncated: bool


@kind("ingest.document", pool="ingest", input=Document, output=Ingested, timeout_s=60, est_s=0.1)
def ingest(ctx: Context, payload: Document) -> Ingested:
    """Read one document. Raises: Permanent when there is no text in it."""
    from tasks.ingest_document import readers  # parsers load when the first document comes, not in every process

    ctx.checkpoint()
    title, text = readers.READERS[payload.content_type](_UNFIT.sub("", payload.content.removeprefix("\ufeff")))
    text = clean(text)  # again: entities spell what the content could not hold
    if not text:
        raise Permanent(f"content: {payload.name!r} holds no text as {payload.content_type}")
    cut = fitting(text, TEXT_MAX_JSON_BYTES)
    return Ingested(
        name=clean(payload.name),
        title=(" ".join(clean(title).split()) or clean(payload.name))[:TITLE_MAX_CHARS],
        text=cut,
        characters=len(text),
        words=sum(1 for _ in _WORD.finditer(text)),
        sha256=hashlib.sha256(payload.content.encode("utf-8", "surrogatepass")).hexdigest(),
        truncated=len(cut) < len(text),
    )


def clean(text: str) -> str:
    """Return the text with plain line ends, no control characters, no lone surrogates, no runs of empty lines.

    >>> clean("a\\r\\n\\x00b\\ud800  \\n\\n\\n\\nc ")
    'a\\nb\\n\\nc'
    """
    lines = _UNFIT.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    return _BLANK_LINES.sub("\n\n", "\n".join(line.rstrip() for line in lines)).strip()


def fitting(text: str, json_bytes: int) -> str:
    """Return the longest beginning of `text` whose JSON string, in UTF-8, takes at most `json_bytes` bytes.

    >>> fitting("ab\u00e9", 5), fitting("ab", 4)
    ('ab', 'ab')
    """
    if len(to_json(text)) <= json_bytes:
        return text
    low, high = 0, min(len(text), json_bytes)
    while low < high:
        middle = (low + high + 1) // 2
        if len(to_json(text[:middle])) <= json_bytes:
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip()

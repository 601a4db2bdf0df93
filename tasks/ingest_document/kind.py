"""`ingest.document`: one document becomes clean text with a title, and chunks that `rag.search` finds.

    1 get the bytes, hashed   2 decide what they are   3 read them, in a process with limits   4 chunk   5 keep

The same content is kept once per tenant: ingesting it again replaces it. What is kept and returned holds no NUL and
no lone surrogate, whatever the document spells as entities.
"""

import re
from typing import Final

from pydantic_core import to_json

from harness.kinds import Context, Permanent, kind
from harness.kinds.documents import NewDocument
from tasks.ingest_document import sources
from tasks.ingest_document.chunks import chunks
from tasks.ingest_document.cleaning import clean
from tasks.ingest_document.content_types import HEAD_BYTES, decide
from tasks.ingest_document.parsing import parse
from tasks.ingest_document.payload import Document, Ingested

# 256 KiB less room for the other fields: also what a kind that takes the text as its input may hold.
TEXT_MAX_JSON_BYTES: Final = 240 * 1024
TITLE_MAX_CHARS: Final = 200
_WORD: Final = re.compile(r"\w+")


@kind("ingest.document", pool="ingest", input=Document, output=Ingested, timeout_s=180, est_s=0.2)
def ingest(ctx: Context, payload: Document) -> Ingested:
    """Ingest one document. Raises: Permanent naming it when it can't be had or read, or holds no text."""
    ctx.checkpoint()
    with sources.opened(ctx, payload) as source:
        name = clean(source.name) or "untitled"
        content_type = decide(name, source.file.read(HEAD_BYTES), declared=payload.content_type, served=source.served)
        parsed = parse(source.file, content_type, name, ctx.checkpoint, charset=source.charset)
    if not parsed.text:
        raise Permanent(f"content: {name!r} holds no text as {content_type}")
    title = (" ".join(parsed.title.split()) or name)[:TITLE_MAX_CHARS]
    words = sum(1 for _ in _WORD.finditer(parsed.text))
    pieces = chunks(parsed.text)
    ctx.checkpoint()
    document_id = ctx.documents.put(
        NewDocument(
            sha256=source.sha256,
            name=name,
            title=title,
            content_type=content_type,
            source=source.where,
            tags=tuple(dict.fromkeys(payload.tags)),
            size_bytes=source.size_bytes,
            characters=len(parsed.text),
            words=words,
        ),
        pieces,
    )
    cut = fitting(parsed.text, TEXT_MAX_JSON_BYTES) if payload.with_text else None
    return Ingested(
        document_id=document_id,
        name=name,
        title=title,
        content_type=content_type,
        text=cut,
        characters=len(parsed.text),
        words=words,
        chunks=len(pieces),
        sha256=source.sha256,
        truncated=cut is not None and len(cut) < len(parsed.text),
        unread=list(parsed.unread),
    )


def fitting(text: str, json_bytes: int) -> str:
    """Return the longest beginning of `text` whose JSON string, in UTF-8, takes at most `json_bytes` bytes.

    >>> fitting("ab\u00e9", 5), fitting("ab", 4)
    ('ab', 'ab')
    """
    low, high = 0, min(len(text), json_bytes)
    if len(to_json(text[: json_bytes + 1])) <= json_bytes:
        return text
    while low < high:
        middle = (low + high + 1) // 2
        if len(to_json(text[:middle])) <= json_bytes:
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip()

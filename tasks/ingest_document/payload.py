"""What `ingest.document` takes and gives."""

import uuid
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from tasks.ingest_document.content_types import TEXTS, ContentType

CONTENT_MAX_CHARS = 262_144  # a payload is limited to 256 KiB anyway; this one names the field
SOURCES = ("artifact_id", "path", "url")  # and content, which is checked last

Tag = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f,]+$")]


class Document(BaseModel):
    """One document, by exactly one of `content`, `artifact_id`, `path` and `url`."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = Field(
        default=None, min_length=1, max_length=300, description="for people and filters; else the file's own"
    )
    content_type: ContentType | None = Field(default=None, description="else by the name, the server, or the content")
    tags: list[Tag] = Field(default_factory=list, max_length=20, description="for the filters of rag.search")
    with_text: bool = Field(default=True, description="whether the result repeats the text, as far as it fits")
    artifact_id: uuid.UUID | None = Field(default=None, description="an upload")
    path: str | None = Field(
        default=None, min_length=1, max_length=4096, description="a file below a folder of HARNESS_DOCUMENT_ROOTS"
    )
    url: str | None = Field(default=None, min_length=1, max_length=8192, description="http or https")
    content: str | None = Field(
        default=None,
        min_length=1,
        max_length=CONTENT_MAX_CHARS,
        validate_default=True,
        description="the document itself: HTML, Markdown or text",
    )

    @field_validator("content")
    @classmethod
    def _one_source(cls, content: str | None, info: ValidationInfo) -> str | None:
        given = [name for name in SOURCES if info.data.get(name) is not None]
        if content is not None:
            given.append("content")
            if (info.data.get("content_type") or "text/plain") not in TEXTS:
                raise ValueError("is text: upload a PDF or DOCX and give its artifact_id, or its path or url")
        # A source that is wrong in itself is missing from the data, and told already.
        if len(given) > 1 or (not given and all(name in info.data for name in SOURCES)):
            what = f"{' and '.join(given)} are given" if given else "none is given"
            raise ValueError(f"give exactly one of content, artifact_id, path and url: {what}")
        return content


class Ingested(BaseModel):
    """The document as it is kept. `characters` and `words` count the whole text, also when `text` was cut."""

    document_id: str
    name: str
    title: str
    content_type: str
    text: str | None
    characters: int
    words: int
    chunks: int
    sha256: str = Field(description="of the content as it came (inline content in UTF-8), hexadecimal")
    truncated: bool
    unread: list[str] = Field(description="pages that couldn't be read, and why; the first 20")

"""`tool.http_get`: what stands at an address, as text or base64, under caps and without a way into private networks.

Sends no credentials: what the payload holds is kept in the database, and a secret doesn't belong there.
"""

import base64
import codecs
import hashlib
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import to_json

from harness.kinds import Context, Permanent, egress, kind

RESOURCE = "tool:http"
RESULT_MAX_JSON_BYTES = 200 * 1024  # the text's share of a result, which is 256 KiB at most
BINARY_MAX_BYTES = 144 * 1024  # 192 KiB as base64
TEXT_TYPES = (
    "text/*", "application/json", "application/xml", "application/xhtml+xml", "application/rss+xml",
    "application/atom+xml", "application/ld+json", "application/problem+json", "application/javascript",
    "application/yaml", "image/svg+xml",
)  # fmt: skip


def _media_types(found: list[str]) -> list[str]:
    for n, one in enumerate(found):
        kind_of, slash, rest = one.partition("/")
        if not (slash and kind_of and rest) or one != one.lower() or any(c in one for c in " ;,\t"):
            raise ValueError(f"content_types[{n}] {one!r} must look like text/html or text/*, in lower case")
    return found


class Get(BaseModel):
    """What to read. The caps are for the whole: all redirects together, the content after unpacking."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=8_192, description="http or https, without credentials")
    accept: str = Field(default="*/*", min_length=1, max_length=200, pattern=r"^[\x20-\x7e]+$")
    content_types: Annotated[
        list[Annotated[str, Field(max_length=100)]] | None,
        Field(min_length=1, max_length=20, description="allowed types; text, JSON and XML when left out"),
        AfterValidator(lambda found: found and _media_types(found)),
    ] = None
    max_bytes: int = Field(default=1_048_576, ge=1, le=10_485_760)
    timeout_s: float = Field(default=20, ge=0.1, le=60)


class Got(BaseModel):
    """The answer. `text` when its type is text, else `base64`; `truncated`: `text` holds only the beginning."""

    status: int
    url: str
    content_type: str
    bytes: int
    sha256: str
    text: str | None
    base64: str | None
    truncated: bool


@kind("tool.http_get", pool="tool_read", input=Get, output=Got, resources={RESOURCE: 1}, timeout_s=75, est_s=1.0)
def http_get(ctx: Context, payload: Get) -> Got:
    """Read once. Raises: Permanent for a refused address or a content that doesn't fit; else as `egress.fetch`."""
    found = ctx.call(
        RESOURCE,
        lambda: egress.fetch(
            payload.url,
            headers={"accept": payload.accept.strip() or "*/*"},
            max_bytes=payload.max_bytes,
            timeout_s=payload.timeout_s,
            content_types=payload.content_types or TEXT_TYPES,
            checkpoint=ctx.checkpoint,
        ),
    )
    text, packed, truncated = None, None, False
    if _is_text(found.content_type):
        whole = _decoded(found)
        text = fitting(whole, RESULT_MAX_JSON_BYTES)
        truncated = len(text) < len(whole)
    elif len(found.content) <= BINARY_MAX_BYTES:
        packed = base64.b64encode(found.content).decode("ascii")
    else:
        raise Permanent(
            f"its content is {len(found.content):,} bytes; {BINARY_MAX_BYTES:,} that aren't text fit a result"
        )
    return Got(
        status=found.status,
        url=found.url,
        content_type=found.content_type,
        bytes=len(found.content),
        sha256=hashlib.sha256(found.content).hexdigest(),
        text=text,
        base64=packed,
        truncated=truncated,
    )


def fitting(text: str, max_json_bytes: int) -> str:
    """Return as much of the text's beginning as fits when written as JSON.

    >>> fitting("abcdef", 5), fitting("abc", 5)
    ('abc', 'abc')
    """
    if len(to_json(text)) <= max_json_bytes:
        return text
    low, high = 0, min(len(text), max_json_bytes)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(to_json(text[:middle])) <= max_json_bytes else (low, middle - 1)
    return text[:low]


def _is_text(content_type: str) -> bool:
    return content_type.startswith("text/") or content_type in TEXT_TYPES or content_type.endswith(("+json", "+xml"))


def _decoded(found: egress.Fetched) -> str:
    """The content as text, without what a database refuses. An unknown character set is read as UTF-8."""
    try:
        # Codecs that aren't character sets (zlib, base64) would unpack without a limit.
        charset = codecs.lookup(found.charset or "utf-8").name
        text = found.content.decode(charset, "replace") if charset not in _NOT_CHARSETS else None
    except (LookupError, UnicodeError):
        text = None
    if text is None:
        text = found.content.decode("utf-8", "replace")
    return text.removeprefix("\ufeff").replace("\x00", "").encode("utf-8", "replace").decode()


_NOT_CHARSETS = frozenset({"zlib", "bz2", "base64", "hex", "quopri", "uu", "rot13", "idna", "punycode", "undefined"})

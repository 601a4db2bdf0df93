"""Documents become text: by type, by title, within limits, and hostile ones in time."""

import hashlib
import time
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_core import to_json

from harness.kinds import Context, Permanent
from tasks.ingest_document.kind import TEXT_MAX_JSON_BYTES, fitting, ingest
from tasks.ingest_document.payload import Document

PARAGRAPH = (
    "<p>The harness holds the waiting line in the database, and Celery only carries what already has a slot.</p>"
)


def document(content: str, content_type: Any = "text/html") -> Document:
    return Document(name="page.html", content=content, content_type=content_type)


def test_a_page_gives_its_main_content_and_its_title(ctx: Context) -> None:
    page = (
        "<html><head><title>The waiting\n line</title><style>p{}</style></head><body><nav><a href='/'>Home</a></nav>"
        f"<article><h1>Heading</h1>{PARAGRAPH * 3}<ul><li>one item</li></ul></article><script>alert(1)</script></body>"
    )
    found = ingest(ctx, document(page))
    assert found.title == "The waiting line"
    assert "holds the waiting line" in found.text and "one item" in found.text
    assert "alert" not in found.text and "p{}" not in found.text
    assert found.sha256 == hashlib.sha256(page.encode()).hexdigest()
    assert found.characters == len(found.text) and not found.truncated


def test_a_page_without_main_content_gives_all_of_its_text(ctx: Context) -> None:
    found = ingest(ctx, document("<h1>Only</h1><form><button>short</button><br>words</form><script>no()</script>"))
    assert found.text == "Only\nshort\nwords"
    assert found.title == "Only"


def test_a_page_of_thousands_of_items_keeps_them_all(ctx: Context) -> None:
    found = ingest(ctx, document("<ul>" + "".join(f"<li>item {n}" for n in range(5_000)) + "</ul>"))
    assert found.text.splitlines() == [f"item {n}" for n in range(5_000)]


def test_markdown_loses_its_marks_and_keeps_its_words(ctx: Context) -> None:
    source = (
        "# A *title* with `code`\n\nOne [link](http://x.example) and\n**bold** &amp; <b>raw</b>.\n\n- item\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx = 1\n```\n\n<div>html<script>no()</script></div>\n"
    )
    found = ingest(ctx, document(source, "text/markdown"))
    assert found.title == "A title with code"
    assert found.text.split("\n\n") == [
        "A title with code", "One link and\nbold & raw.", "item", "a | b", "1 | 2", "x = 1", "html",
    ]  # fmt: skip


def test_text_stays_as_it_is_but_for_its_line_ends(ctx: Context) -> None:
    found = ingest(ctx, document("\n  First line \r\n\tsecond <b>\n", "text/plain"))
    assert found.title == "First line"
    assert found.text == "First line\n\tsecond <b>"
    assert (found.words, found.characters) == (4, len(found.text))


def test_a_document_without_a_title_is_called_by_its_name(ctx: Context) -> None:
    assert ingest(ctx, document("just a line", "text/markdown")).title == "page.html"


@pytest.mark.parametrize("content", ["&#0;a &#xD800;&#x1;b", "a\x00b", "a\x0bb\x7f"])
@pytest.mark.parametrize("content_type", ["text/html", "text/markdown", "text/plain"])
def test_nothing_that_the_database_refuses_gets_through(ctx: Context, content: str, content_type: str) -> None:
    text = ingest(ctx, document(content, content_type)).text
    text.encode()
    assert not set(text) & {chr(n) for n in [*range(9), 0x0B, 0x0C, 0x7F]}


def test_a_lone_surrogate_is_dropped_also_where_no_door_stood_before(ctx: Context) -> None:
    loose = Document.model_construct(name="n\ud800", content="a\ud800b", content_type="text/html")
    found = ingest(ctx, loose)
    assert (found.name, found.text) == ("n", "ab")


@pytest.mark.parametrize("content", [" \n ", "<p></p>", "<!-- nothing -->", "<script>x()</script>"])
def test_a_document_without_text_fails_at_once_by_name(ctx: Context, content: str) -> None:
    with pytest.raises(Permanent, match=r"content: 'page.html' holds no text"):
        ingest(ctx, document(content))


@pytest.mark.parametrize("letter", ["a", "\n\n\\", "é", "字", "\U0001f600"])
def test_the_text_is_cut_so_that_the_result_fits_a_row(ctx: Context, letter: str) -> None:
    found = ingest(ctx, document("x" + letter * (260_000 // len(letter)), "text/plain"))
    assert found.truncated == (found.characters > len(found.text))
    assert len(to_json(found)) < 256 * 1024


def test_a_cut_takes_as_much_as_fits() -> None:
    text = "é" * 200_000
    cut = fitting(text, TEXT_MAX_JSON_BYTES)
    assert TEXT_MAX_JSON_BYTES - 2 < len(to_json(cut)) <= TEXT_MAX_JSON_BYTES


HOSTILE = [
    "<div>" * 50_000,
    "<!--" * 60_000,
    "<li>x " * 40_000,
    "&#x" * 80_000,
    "<" * 250_000,
    "<table><tr><td>x" * 15_000,
]


@pytest.mark.parametrize("content", HOSTILE, ids=lambda text: text[:6])
@pytest.mark.parametrize("content_type", ["text/html", "text/markdown"])
def test_hostile_markup_ends_in_time(ctx: Context, content: str, content_type: str) -> None:
    start_s = time.process_time()
    ingest(ctx, document("<body>word " + content + "x", content_type))
    assert time.process_time() - start_s < 10


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("content", ""),
        ("content", "x" * 262_145),
        ("name", ""),
        ("content_type", "image/png"),
        ("tags", ["a,b"]),
        ("path", ""),
    ],
)
def test_a_wrong_field_is_refused_by_name(field: str, value: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Document.model_validate({"name": "n", "content": "c", "content_type": "text/plain", field: value})
    assert refused.value.errors()[0]["loc"][0] == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "content"),
        ({"content": "c", "url": "http://x"}, "content"),
        ({"path": "a", "url": "http://x"}, "content"),
        ({"artifact_id": "no id"}, "artifact_id"),
        ({"content": "%PDF", "content_type": "application/pdf"}, "content"),
    ],
)
def test_a_document_comes_from_exactly_one_place(fields: dict[str, str], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Document.model_validate(fields)
    assert [error["loc"] for error in refused.value.errors()] == [(field,)]


def test_what_is_kept_is_the_whole_text_in_chunks_with_its_facts(alone: Any) -> None:
    ctx = alone()
    text = "\n\n".join(f"Paragraph {n} tells of the waiting line and of slots." for n in range(200))
    found = ingest(ctx, Document(name="a.txt", content=text, tags=["x", "y", "x"], with_text=False))
    ((kept, pieces),) = ctx.documents.documents.values()
    assert found.text is None and found.chunks == len(pieces) > 5
    assert (kept.name, kept.title, kept.tags) == (
        "a.txt",
        "Paragraph 0 tells of the waiting line and of slots.",
        ("x", "y"),
    )
    assert (kept.sha256, kept.characters, kept.source) == (found.sha256, len(text), "")
    assert all(text[piece.start : piece.end] == piece.text for piece in pieces)
    covered = {at for piece in pieces for at in range(piece.start, piece.end)}
    assert all(text[at].isspace() for at in set(range(len(text))) - covered)

"""Hostile and broken files end clearly: a named error, soon, and the parser lives on for the next document."""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from harness.kinds import Cancelled, Permanent, TimedOut
from harness.kinds.documents import DOCX
from tasks.ingest_document import made_files as made
from tasks.ingest_document import parsing
from tasks.ingest_document.content_types import PDF, TEXT
from tasks.ingest_document.kind import ingest
from tasks.ingest_document.limits import Limits
from tasks.ingest_document.payload import Document

WITHIN_S = 30.0
LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1 if n else str()};" * 10}">' for n in range(9))
) + "]>"
OUTSIDE = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
DEEP = "<w:p>" * 100_000 + "</w:p>" * 100_000
LOOP = made.pdf("x").replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]")

HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "a zip bomb": ("b.docx", made.zip_bomb(150), "zip bomb"),
    "a zip bomb that lies about its size": ("b.docx", made.zip_bomb(150, declared_bytes=1000), "DOCX: BadZipFile"),
    "a zip of thousands of files": (
        "b.docx", made.zipped({f"word/{n}.xml": b"" for n in range(6_000)}), "6,002 files",
    ),
    "a billion laughs": ("b.docx", made.docx(made.paragraph("&a8;"), before=LAUGHS), "XML entities are refused"),
    "a file by an XML entity": ("b.docx", made.docx(made.paragraph("&e;"), before=OUTSIDE), "XML entities are refused"),
    "entities in another part": (
        "b.docx", made.docx("", more={"word/styles.xml": LAUGHS.encode()}), "XML entities are refused",
    ),
    "entities in UTF-16": (
        "b.docx", made.zipped({"word/document.xml": LAUGHS.encode("utf-16")}), "XML entities are refused",
    ),
    "a Word file nested 100,000 deep": ("b.docx", made.docx(DEEP), "is a broken DOCX: RecursionError|broke its parser"),
    "a zip that is no Word file": ("b.docx", made.zipped({"a.txt": b"x"}), "not a Word file"),
    "a Word file without XML in it": ("b.docx", made.zipped({"word/document.xml": b"\x00\x01"}), "DOCX: ExpatError"),
    "half a Word file": ("b.docx", made.docx(made.paragraph("x" * 9000))[:400], "is a broken DOCX: BadZipFile"),
    "an encrypted Office file": ("b.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"x" * 999, "old or encrypted"),
    "an encrypted PDF": ("b.pdf", made.locked_pdf("secret"), "is encrypted"),
    "half a PDF": ("b.pdf", made.pdf("text")[:200], "is a broken PDF|holds no text"),
    "a PDF of noise": ("b.pdf", b"%PDF-1.7\n" + bytes(range(256)) * 400, "is a broken PDF"),
    "a PDF of nothing": ("b.pdf", b"%PDF-1.7\n", "is a broken PDF"),
    "a PDF whose pages are their own parents": ("b.pdf", LOOP, "is a broken PDF|nested too deeply|holds no text"),
    "a PDF of 6,000 pages": ("b.pdf", made.pdf_of([b""] * 6_000), "6,000 pages"),
    "a PDF that unpacks to 1 GB": ("b.pdf", made.flate_bomb(1024), "is a broken PDF|memory|CPU|holds no text"),
    "a PDF without text": ("b.pdf", made.pdf_of([b"0 0 m 9 9 l S"]), "holds no text"),
    "a PDF called text": ("b.txt", made.pdf("text"), "content_type: 'b.txt' is called text/plain, but .* a PDF"),
    "a Word file called PDF": ("b.pdf", made.docx(""), r"is called a PDF, but its content is a DOCX \(zip\)"),
    "text called PDF": ("b.pdf", b"just text", "is called a PDF, but its content is not one"),
    "a picture called Markdown": ("b.md", b"\x89PNG\r\n\x1a\n" + b"x" * 999, "its content is a PNG image"),
    "a program called nothing": ("b", b"\x7fELF" + bytes(999), "is a program, which nothing here reads"),
    "bytes that are no text": ("b.txt", bytes(range(256)) * 100, "is binary, not text"),
    "NUL bytes only": ("b.txt", bytes(5000), "is binary, not text"),
    "nothing at all": ("b.txt", b"", r"is empty \(0 bytes\)"),
}  # fmt: skip


def upload(ctx: Any, name: str, content: bytes) -> Document:
    return Document.model_validate({"artifact_id": ctx.documents.add(name, content)})


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_ends_soon_by_name_and_leaves_nothing(alone: Any, what: str) -> None:
    ctx = alone()
    name, content, says = HOSTILE[what]
    began_s = time.monotonic()
    with pytest.raises(Permanent, match=says) as refused:
        ingest(ctx, upload(ctx, name, content))
    assert time.monotonic() - began_s < WITHIN_S
    assert repr(name) in str(refused.value)
    assert not ctx.documents.documents
    assert ingest(ctx, Document(name="next.txt", content="and the next one is read")).words == 6


def test_ten_megabytes_on_one_line_become_chunks(alone: Any) -> None:
    ctx = alone()
    for content in (b"x" * 10_000_000, b"word " * 2_000_000):
        began_s = time.monotonic()
        found = ingest(ctx, upload(ctx, "line.txt", content))
        assert time.monotonic() - began_s < WITHIN_S
        assert found.characters >= 9_999_999 and found.truncated
        (_, pieces) = ctx.documents.documents[found.sha256]
        assert max(len(piece.text) for piece in pieces) <= 1200 and len(pieces) == found.chunks


def test_a_pdf_that_anybody_may_open_is_read_though_encrypted(alone: Any) -> None:
    ctx = alone()
    assert ingest(ctx, upload(ctx, "open.pdf", made.locked_pdf(""))).text == "Behind a lock"


def test_a_page_that_is_broken_is_told_and_the_others_are_read(alone: Any) -> None:
    ctx = alone()
    bad = made.pdf_of([b"BT /F1 12 Tf (one) Tj ET", b"\x00garbage"]).replace(
        b"\x00garbage", b"\x78\x9c\xff\xff\xff\xff\xff\xff"
    )
    found = ingest(ctx, upload(ctx, "b.pdf", bad))
    assert found.text == "one"


def _real(content: bytes) -> BinaryIO:
    file: Any = tempfile.TemporaryFile()  # noqa: SIM115  # the caller's test closes it
    file.write(content)
    file.flush()
    return file  # type: ignore[no-any-return]  # a wrapper that has no type of its own


LONG = made.pdf_of([b"BT /F1 12 Tf " + b"(some words) Tj " * 400 + b"ET"] * 400)  # half a minute to read


@pytest.mark.parametrize(
    ("limits", "error", "says"),
    [
        (Limits(cpu_s=1), Permanent, "'long.pdf' takes more than 1 s of CPU"),
        (Limits(wall_s=1), TimedOut, "'long.pdf' took longer than 1 s to read"),
        (Limits(memory_bytes=90_000_000), Permanent, "takes more memory"),
    ],
    ids=["cpu", "wall", "memory"],
)
def test_a_limit_ends_the_reading_and_not_the_parser(limits: Limits, error: type[Exception], says: str) -> None:
    content = LONG if limits.memory_bytes > 100_000_000 else b"word " * 3_000_000
    with _real(content) as file:
        began_s = time.monotonic()
        with pytest.raises(error, match=says):
            parsing.parse(file, PDF if content is LONG else TEXT, "long.pdf", lambda: None, limits)
        assert time.monotonic() - began_s < 10
    with _real(b"still here") as file:
        assert parsing.parse(file, TEXT, "a.txt", lambda: None).text == "still here"


def test_a_document_that_grows_too_long_is_refused_by_its_size() -> None:
    with _real(b"word " * 200_000) as file, pytest.raises(Permanent, match="more text than a document may"):
        parsing.parse(file, TEXT, "a.txt", lambda: None, Limits(result_bytes=1000))


def _group(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == pid and fields[0] != "Z":
                found.append(int(folder.name))
    return found


def _gone(group: int) -> bool:
    # A killed process is gone when the kernel has run it once more, and only the parser itself is ours to wait for.
    until_s = time.monotonic() + 5
    while _group(group) and time.monotonic() < until_s:
        time.sleep(0.01)
    return not _group(group)


def test_a_wish_ends_the_reading_at_once_and_leaves_no_process() -> None:
    parsing.forget()
    looks = 0
    group = 0

    def look() -> None:
        nonlocal looks, group
        looks += 1
        group = parsing._local.parser._process.pid
        if looks > 8 and len(_group(group)) == 2:
            raise Cancelled

    with _real(LONG) as file, pytest.raises(Cancelled):
        parsing.parse(file, PDF, "long.pdf", look)
    assert group and _gone(group)


def test_the_parser_goes_with_its_asker_even_when_that_is_killed(tmp_path: Path) -> None:
    document = tmp_path / "long.pdf"
    document.write_bytes(LONG)
    asker = subprocess.Popen(
        [sys.executable, "-c", (
            "import sys\nfrom tasks.ingest_document import parsing\n"
            "def look():\n    print(parsing._local.parser._process.pid, flush=True)\n"
            "parsing.parse(open(sys.argv[1], 'rb'), 'application/pdf', 'long.pdf', look)\n"
        ), str(document)],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    assert asker.stdout is not None
    with asker.stdout:
        group = int(asker.stdout.readline())
        until_s = time.monotonic() + 20
        while len(_group(group)) < 2:
            assert asker.stdout.readline() and time.monotonic() < until_s
        asker.send_signal(signal.SIGKILL)
        asker.wait()
    while _group(group):
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_the_parser_sees_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "top secret")
    parsing.forget()
    with _real(b"text") as file:
        parsing.parse(file, TEXT, "a.txt", lambda: None)
    pid = parsing._local.parser._process.pid
    assert b"top secret" not in Path(f"/proc/{pid}/environ").read_bytes()
    handles = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    assert sum(name.startswith("socket:") for name in handles) == 1, handles


def test_a_word_file_gives_its_headings_and_paragraphs(alone: Any) -> None:
    ctx = alone()
    styles = (
        b'<w:styles xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:style w:type="paragraph" '
        b'w:styleId="Heading1"><w:name w:val="heading 1"/></w:style></w:styles>'
    )
    body = made.paragraph("The title", "Heading1") + made.paragraph("First.") + made.paragraph("Second &amp; last.")
    found = ingest(ctx, upload(ctx, "a.docx", made.docx(body, more={"word/styles.xml": styles})))
    assert (found.title, found.text, found.content_type) == ("The title", "The title\nFirst.\nSecond & last.", DOCX)


def test_a_pdf_gives_its_pages_in_order(alone: Any) -> None:
    ctx = alone()
    found = ingest(ctx, upload(ctx, "a.pdf", made.pdf("page one", "page two")))
    assert (found.text, found.content_type, found.unread) == ("page one\n\npage two", PDF, [])

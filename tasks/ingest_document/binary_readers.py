"""Readers of PDF and DOCX: a file in, (title, text, what was left unread) out. They run in the parser process only."""

import io
import zipfile
from typing import BinaryIO, Final

import mammoth
from pypdf import PdfReader

from tasks.ingest_document.limits import PAGES_MAX, TEXT_MAX_CHARS, ZIP_MAX_BYTES, ZIP_MEMBERS_MAX, Unreadable
from tasks.ingest_document.readers import text_of_html

UNREAD_TOLD: Final = 20
_PARTS: Final = (".xml", ".rels")
# "<!D", for DOCTYPE, as UTF-8 and as both UTF-16: a Word file never declares types or entities.
_DECLARATIONS: Final = tuple("<!DOCTYPE".encode(name) for name in ("utf-8", "utf-16-le", "utf-16-be"))


def read_pdf(file: BinaryIO) -> tuple[str, str, list[str]]:
    """Read a PDF page by page; a page that can't be read is told, not fatal, unless all are. Raises: Unreadable."""
    try:
        reader = PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("is encrypted: send it without its password")
        count = len(reader.pages)
    except (Unreadable, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  # a broken file may raise anything
        raise Unreadable(f"is a broken PDF: {_told(error)}") from None
    if count > PAGES_MAX:
        raise Unreadable(f"has {count:,} pages, more than {PAGES_MAX:,}: split it")
    parts: list[str] = []
    unread: list[str] = []
    length = 0
    for number in range(count):
        try:
            text = reader.pages[number].extract_text()
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # a broken page may raise anything
            unread.append(f"page {number + 1}: {_told(error)}")
            continue
        length += len(text)
        if length > TEXT_MAX_CHARS:
            raise Unreadable(f"holds more than {TEXT_MAX_CHARS:,} characters of text: split it")
        parts.append(text)
    if unread and not parts:
        raise Unreadable(f"is a broken PDF: {unread[0]}")
    return _pdf_title(reader), "\n\n".join(parts), unread[:UNREAD_TOLD]


def read_docx(file: BinaryIO) -> tuple[str, str, list[str]]:
    """Read a Word file: its structure is looked at before any of it is parsed. Raises: Unreadable."""
    try:
        with zipfile.ZipFile(file) as archive:
            _look_at(archive)
        file.seek(0)
        html = mammoth.convert_to_html(
            io.BytesIO(file.read()),  # mammoth wants the name of a real file
            convert_image=mammoth.images.img_element(lambda _: {}),
            include_embedded_style_map=False,
        ).value
    except (Unreadable, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  # a broken file may raise anything
        raise Unreadable(f"is a broken DOCX: {_told(error)}") from None
    return *text_of_html(html), []


def _look_at(archive: zipfile.ZipFile) -> None:
    members = archive.infolist()
    if len(members) > ZIP_MEMBERS_MAX:
        raise Unreadable(f"is a zip of {len(members):,} files, more than {ZIP_MEMBERS_MAX:,}")
    if "word/document.xml" not in {member.filename for member in members}:
        raise Unreadable("is a zip, but not a Word file: word/document.xml isn't in it")
    if any(member.flag_bits & 1 for member in members):
        raise Unreadable("is encrypted: send it without its password")
    # zipfile reads no more of a member than it declares, so the declared sizes can be trusted as bounds.
    total = sum(member.file_size for member in members if member.filename.lower().endswith(_PARTS))
    if total > ZIP_MAX_BYTES:
        raise Unreadable(f"unpacks to {total:,} bytes, more than {ZIP_MAX_BYTES:,}: a zip bomb?")
    for member in members:
        if member.filename.lower().endswith(_PARTS):
            _refuse_declarations(archive, member)


def _refuse_declarations(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    tail = b""
    with archive.open(member) as part:
        while block := part.read(io.DEFAULT_BUFFER_SIZE * 8):
            if any(mark in tail + block for mark in _DECLARATIONS):
                raise Unreadable(f"declares a document type in {member.filename!r}: XML entities are refused")
            tail = block[-len(max(_DECLARATIONS, key=len)) :]


def _pdf_title(reader: PdfReader) -> str:
    try:
        return str((reader.metadata and reader.metadata.title) or "")
    except Exception:  # noqa: BLE001  # a title is no reason to fail
        return ""


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]

"""Files made for tests: PDFs and Word files, sound and hostile."""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence

from pypdf import PdfWriter

TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.'
    'wordprocessingml.document.main+xml"/></Types>'
)
RELATIONS = (
    '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="word/document.xml"/></Relationships>'
)
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def pdf(*pages: str, extra: bytes = b"") -> bytes:
    """A PDF with a line of text on each page."""
    return pdf_of([f"BT /F1 12 Tf 72 700 Td ({page}) Tj ET".encode() for page in pages], extra=extra)


def pdf_of(contents: Sequence[bytes], *, entry: bytes = b"", extra: bytes = b"") -> bytes:
    """A PDF of these content streams; `entry` goes into each stream's dictionary."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>"
        % (len(contents), b" ".join(b"%d 0 R" % (4 + 2 * n) for n in range(len(contents)))),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, content in enumerate(contents):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
            b" /Contents %d 0 R >>" % (5 + 2 * n)
        )
        objects.append(b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), entry, content))
    out = io.BytesIO(b"")
    out.write(b"%PDF-1.4\n" + extra)
    places = []
    for number, one in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, one))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start))
    return out.getvalue()


def flate_bomb(megabytes: int) -> bytes:
    """A PDF whose one page unpacks to this much."""
    packer = zlib.compressobj(9)
    block = b" " * 1024 * 1024
    packed = b"".join(packer.compress(block) for _ in range(megabytes)) + packer.flush()
    return pdf_of([packed], entry=b"/Filter /FlateDecode")


def locked_pdf(password: str) -> bytes:
    """An encrypted PDF; with '' anybody may open it."""
    writer = PdfWriter(clone_from=io.BytesIO(pdf("Behind a lock")))
    writer.encrypt(password, owner_password="owner", algorithm="AES-256")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def docx(body: str, *, more: Mapping[str, bytes] | None = None, before: str = "") -> bytes:
    """A Word file with this body (XML of paragraphs)."""
    head = f'<?xml version="1.0" encoding="UTF-8"?>{before}<w:document xmlns:w="{_WORD}">'
    document = f"{head}<w:body>{body}</w:body></w:document>"
    return zipped({"word/document.xml": document.encode(), **(more or {})})


def paragraph(text: str, style: str = "") -> str:
    """A paragraph of a Word file."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def zipped(parts: Mapping[str, bytes]) -> bytes:
    """A zip of these parts, with what makes it a Word file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", TYPES)
        archive.writestr("_rels/.rels", RELATIONS)
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def zip_bomb(megabytes: int, *, declared_bytes: int | None = None) -> bytes:
    """A Word file whose document unpacks to this much; `declared_bytes`: what its directory says instead."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", TYPES)
        archive.writestr("_rels/.rels", RELATIONS)
        with archive.open("word/document.xml", "w", force_zip64=False) as part:
            for _ in range(megabytes):
                part.write(b" " * 1024 * 1024)
    whole = bytearray(out.getvalue())
    if declared_bytes is not None:
        at = whole.rfind(b"word/document.xml")
        struct.pack_into("<I", whole, at - 46 + 24, declared_bytes)  # the uncompressed size in the central directory
    return bytes(whole)

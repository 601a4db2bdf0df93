"""The documents that the demo ingests: every HTML, Markdown and text file below a folder."""

from dataclasses import dataclass
from pathlib import Path

from harness.policy.errors import Invalid

TYPES = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".txt": "text/plain",
    ".text": "text/plain",
    ".rst": "text/plain",
}
LARGEST_BYTES = 200_000  # leaves room for JSON's escapes below the limit of a payload
MOST = 500
LEFT_OUT = {"node_modules", "site-packages", "__pycache__"}


@dataclass(frozen=True, slots=True)
class Document:
    """A file as the input of `ingest.document`."""

    name: str
    content: str
    content_type: str


@dataclass(frozen=True, slots=True)
class Found:
    """The documents, and the files left out with the reason."""

    documents: tuple[Document, ...]
    left_out: tuple[tuple[str, str], ...]


def find(folder: Path) -> Found:
    """Read the documents below a folder. Raises: Invalid naming --dir when there is nothing to read."""
    if not folder.is_dir():
        raise Invalid(f"--dir {folder}: there is no such folder", field="dir")
    documents: list[Document] = []
    left_out: list[tuple[str, str]] = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if any(part.startswith(".") or part in LEFT_OUT for part in inside.parts) or path.suffix.lower() not in TYPES:
            continue
        if not path.is_file() or path.is_symlink():
            continue
        reason = _refuse(path) or (f"more than {MOST} documents" if len(documents) >= MOST else "")
        if reason:
            left_out.append((str(inside), reason))
            continue
        content = path.read_text(encoding="utf-8").replace("\0", "")
        documents.append(Document(str(inside), content, TYPES[path.suffix.lower()]))
    if not documents:
        raise Invalid(f"--dir {folder}: no readable {', '.join(sorted(TYPES))} file in it", field="dir")
    return Found(tuple(documents), tuple(left_out))


def _refuse(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size == 0:
            return "empty"
        if size > LARGEST_BYTES:
            return f"{size} bytes, larger than {LARGEST_BYTES}"
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8 text (byte {error.start + 1} begins no character); save it as UTF-8"
    except OSError as error:
        return f"it can't be read: {error.strerror}"
    return "" if text.strip() else "blank"

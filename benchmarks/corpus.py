"""Real documents of this machine, copied into one folder: the repository's own and those that Python packages ship.

Each content once, so that a document lost can't hide behind its twin. Beside them a few that are meant to fail.
"""

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.kinds.documents import SUFFIXES

CHECKOUT = Path(__file__).resolve().parent.parent
LARGEST_BYTES = 4 * 1024 * 1024
SHARES = {".pdf": 0.2, ".docx": 0.1, ".html": 0.35, ".htm": 0.1, ".md": 0.35}  # at most; what is left is plain text
MEANT_TO_FAIL = {
    "broken.pdf": b"%PDF-1.7\nnothing that follows is a PDF\n",
    "picture.md": b"\x89PNG\r\n\x1a\n" + bytes(200),
    "half.docx": b"PK\x03\x04" + bytes(200),
    "empty.html": b"<html><head><script>nothing()</script></head></html>",
    "binary.txt": bytes(range(256)) * 64,
}


@dataclass(frozen=True, slots=True)
class Corpus:
    """A folder of documents: how many by suffix, and how many of them are meant to fail."""

    folder: Path
    by_suffix: dict[str, int]
    meant_to_fail: int


def gather(folder: Path, number: int) -> Corpus:
    """Copy `number` documents into a new folder, with those that are meant to fail on top."""
    folder.mkdir(parents=True)
    by_suffix: dict[str, int] = {}
    seen: set[str] = set()
    for path in sorted(_files(), key=lambda one: list(SHARES).index(one.suffix) if one.suffix in SHARES else 99):
        suffix = path.suffix.lower()
        if sum(by_suffix.values()) >= number:
            break
        if by_suffix.get(suffix, 0) >= SHARES.get(suffix, 1.0) * number:
            continue
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest in seen or not content.strip():
            continue
        seen.add(digest)
        by_suffix[suffix] = by_suffix.get(suffix, 0) + 1
        (folder / f"{len(seen):04}-{path.name}").write_bytes(content)
    for name, content in MEANT_TO_FAIL.items():
        (folder / name).write_bytes(content)
    return Corpus(folder, by_suffix, len(MEANT_TO_FAIL))


def texts() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of every text file that packages ship, sources too: what the search is filled with."""
    for path in sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*")):
        if path.suffix in {".py", ".txt", ".md", ".rst", ".pyi"} and path.is_file():
            try:
                yield str(path.name), path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue


def _files() -> Iterator[Path]:
    for root in (CHECKOUT, Path(sysconfig.get_paths()["purelib"]), Path("/usr/share/doc"), Path("/usr/share")):
        if not root.is_dir():
            continue
        for folder, below, names in os.walk(root):
            below[:] = sorted(one for one in below if not one.startswith(".") and one not in ("site-packages", "doc"))
            for name in sorted(names):
                path = Path(folder) / name
                if path.suffix.lower() not in SUFFIXES or path.is_symlink() or not os.access(path, os.R_OK):
                    continue
                if path.is_file() and 0 < path.stat().st_size <= LARGEST_BYTES:
                    yield path

"""What reading one document may take. The parser process enforces them on itself, its asker once more from outside."""

from dataclasses import dataclass
from typing import Final

DOCUMENT_MAX_BYTES: Final = 64 * 1024 * 1024  # as it comes
TEXT_MAX_CHARS: Final = 16 * 1024 * 1024  # some 5,000 pages; 16,000 chunks
PAGES_MAX: Final = 5_000
ZIP_MEMBERS_MAX: Final = 5_000
ZIP_MAX_BYTES: Final = 100 * 1024 * 1024  # of the parts that are read, unpacked


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Of one document's process. `memory_bytes` is address space, some 70 MB of which the parsers take themselves."""

    cpu_s: int = 60
    wall_s: int = 90
    memory_bytes: int = 768 * 1024 * 1024
    result_bytes: int = 128 * 1024 * 1024


class Unreadable(Exception):
    """The document can't be read, ever; the message says why, after its name."""

"""What a kind does with files: `ctx.artifacts` keeps a result that is larger than a row, and opens an upload by its id.

A kind returns a reference as the artifact's id (a string) in its output, and takes one as an id in its input.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Protocol

Content = bytes | bytearray | memoryview | BinaryIO | Iterable[bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """A file of the tenant. `existing`: the tenant had this content before, under this id and name."""

    id: str
    name: str
    content_type: str
    bytes: int
    sha256: str
    expires_at: datetime
    existing: bool = False


class Artifacts(Protocol):
    """The tenant's files, fenced like every effect. Not inside `ctx.db()`: each takes a connection of its own."""

    def put(self, name: str, content_type: str, content: Content, *, keep_s: float | None = None) -> Artifact:
        """Keep bytes, streamed, and return what they are called. The same content is kept once per tenant.

        `keep_s`: seconds until it expires (default: the setting HARNESS_ARTIFACT_KEEP_DAYS).
        Raises: Permanent (too large, no room, a bad name), Transient, Cancelled, LeaseLost (engine).
        """
        ...

    def find(self, artifact_id: str) -> Artifact:
        """Look one up by id. Raises: Permanent when the tenant has no such artifact (any more), Transient."""
        ...

    def open(self, artifact_id: str) -> BinaryIO:
        """Open one for reading and seeking; close it, or use it in a `with`.

        Raises: Permanent when the tenant has no such artifact (any more), Transient.
        """
        ...

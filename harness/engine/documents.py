"""`ctx.documents`: the task's tenant's documents, fenced. Implements `kinds.documents.Documents`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from django.conf import settings

from harness.engine.process import ProcessState
from harness.kinds import Transient, folders
from harness.kinds.documents import Chunk, Filters, Found, NewDocument
from harness.policy.errors import Unavailable
from harness.store import documents
from harness.store.database import Connection, borrowed


class TenantDocuments:
    """The documents of one tenant, through one executing process."""

    __slots__ = ("_hold", "_process", "_tenant")

    def __init__(self, process: ProcessState, tenant: int, hold: Callable[[Connection], None]) -> None:
        """`hold` is called before each commit; it raises when the task is no longer this worker's."""
        self._process = process
        self._tenant = tenant
        self._hold = hold

    def open_file(self, path: str) -> BinaryIO:
        """Open a file below an allowed folder. Raises: Outside, Permanent."""
        return folders.open_file(folders.roots_of(settings.HARNESS_DOCUMENT_ROOTS, self._tenant), path)

    def files(self, folder: str, *, most: int) -> folders.Listed:
        """List the files below an allowed folder. Raises: Outside, Permanent."""
        return folders.files(folders.roots_of(settings.HARNESS_DOCUMENT_ROOTS, self._tenant), folder, most=most)

    def put(self, document: NewDocument, chunks: Sequence[Chunk]) -> str:
        """Keep a document, replacing the same content or source. Raises: Transient, LeaseLost."""
        with self._connection() as connection, connection.transaction():
            kept = documents.put(connection, self._tenant, document, chunks)
            self._hold(connection)
            return kept

    def search(self, query: str, limit: int, filters: Filters) -> Found:
        """Find chunks. Raises: Transient, LeaseLost."""
        with self._connection() as connection:
            return documents.search(connection, self._tenant, query, limit=limit, filters=filters)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        self._process.fence.check()
        try:
            with borrowed(self._process.db) as connection:
                yield connection
        except Unavailable as error:
            raise Transient(f"documents: {error.message}") from error

"""Documents of tenants and the search in them: PostgreSQL's own full text, English stems.

The engine's role sees every tenant, so each statement names one. A document is replaced as a whole, in the caller's
transaction: a reader sees the old chunks or the new ones, and an attempt that dies leaves what was there.
"""

from collections.abc import Sequence
from dataclasses import asdict

from harness.kinds.documents import Chunk, Filters, Found, Hit, NewDocument
from harness.store import sql
from harness.store.database import Connection

INSERT_CHUNKS = 500  # a statement: some 600 KB of text
# Chunks ranked for one search. Of a query that more of them match, the best of the oldest so many are found.
CANDIDATES = 1000


def put(connection: Connection, tenant: int, document: NewDocument, chunks: Sequence[Chunk]) -> str:
    """Insert or replace a document with its chunks, in the caller's transaction. Returns its public id.

    Waits for whoever puts the same content or the same source at this moment.
    """
    # Locks, in this order: the source, the document's own row, and stale rows without waiting. Whoever holds a row
    # therefore never waits again, and nobody can wait in a circle.
    if document.source:
        # Two versions of one source, both new, would not see each other.
        connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", (f"document {document.source}", tenant)
        )
    row = connection.execute(
        sql.load("documents/upsert"),
        {**asdict(document), "tags": list(document.tags), "tenant": tenant, "chunks": len(chunks)},
    ).fetchone()
    assert row is not None
    if document.source:
        connection.execute(
            sql.load("documents/delete_stale"),
            {"tenant": tenant, "source": document.source, "sha256": document.sha256},
        )
    connection.execute("DELETE FROM chunk WHERE document_id = %s", (row[0],))
    for first in range(0, len(chunks), INSERT_CHUNKS):
        some = chunks[first : first + INSERT_CHUNKS]
        connection.execute(
            sql.load("documents/insert_chunks"),
            {
                "tenant": tenant,
                "document": row[0],
                "marks": _marks(document),
                "first": first,
                "starts": [one.start for one in some],
                "stops": [one.end for one in some],
                "texts": [one.text for one in some],
            },
        )
    return str(row[1])


def search(connection: Connection, tenant: int, query: str, *, limit: int, filters: Filters) -> Found:
    """Return the tenant's best chunks for a web-style query; none when it holds no word to look for."""
    rows = connection.execute(
        sql.load("documents/search"),
        {
            "tenant": tenant,
            "query": query,
            "marks": _asked(tenant, filters),
            "candidates": CANDIDATES,
            "most": limit,
        },
    ).fetchall()
    looked_at = rows[0][0] if rows else 0
    hits = tuple(
        Hit(str(document), name, title, content_type, ordinal, start, stop, round(float(rank), 6), snippet)
        for _, document, name, title, content_type, ordinal, start, stop, rank, snippet in rows
    )
    return Found(hits=hits, looked_at=looked_at, all=looked_at < CANDIDATES)


def _marks(document: NewDocument) -> list[str]:
    """What filters ask for, as lexemes: the blank keeps them apart from all words."""
    return [f"name {document.name}", f"type {document.content_type}", *(f"tag {tag}" for tag in document.tags)]


def _asked(tenant: int, filters: Filters) -> str:
    """The tenant and the filters as a tsquery.

    >>> _asked(7, Filters(name_prefix="it's/", tags=("a",)))
    "'tenant 7' & 'tag a' & 'name it''s/':*"
    """
    asked = [f"tenant {tenant}", *(f"tag {tag}" for tag in filters.tags)]
    if filters.content_type:
        asked.append(f"type {filters.content_type}")
    every = [_quoted(one) for one in asked]
    if filters.name_prefix:
        every.append(f"{_quoted(f'name {filters.name_prefix}')}:*")
    return " & ".join(every)


def _quoted(lexeme: str) -> str:
    doubled = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"

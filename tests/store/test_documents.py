"""Documents are kept once per tenant, replaced as a whole, and found by their words, within one tenant only."""

import threading
import uuid
from collections.abc import Sequence

import psycopg
import pytest

from harness.kinds.documents import Chunk, Filters, NewDocument
from harness.store import documents, queries, sql
from harness.store.database import Connection, connect
from tests.stage import Stage


def new(sha256: str = "a", name: str = "a.txt", **more: object) -> NewDocument:
    fields: dict[str, object] = {"title": "A title", "content_type": "text/plain", **more}
    return NewDocument(sha256=sha256, name=name, **fields)  # type: ignore[arg-type]  # the tests' own fields


def pieces(*texts: str) -> list[Chunk]:
    return [Chunk(n, n + len(text), text) for n, text in enumerate(texts)]


def put(stage: Stage, document: NewDocument, texts: Sequence[str], *, tenant: int | None = None) -> str:
    with stage.connection.transaction():
        return documents.put(stage.connection, tenant or stage.tenant, document, pieces(*texts))


def find(stage: Stage, query: str, limit: int = 10, *, tenant: int | None = None, **filters: object) -> list[str]:
    asked = Filters(**filters)  # type: ignore[arg-type]  # the tests' own filters
    found = documents.search(stage.connection, tenant or stage.tenant, query, limit=limit, filters=asked)
    return [f"{hit.name}#{hit.ordinal}" for hit in found.hits]


def counts(stage: Stage) -> tuple[int, int]:
    return stage.one("SELECT count(*) FROM document"), stage.one("SELECT count(*) FROM chunk")


def test_the_same_content_again_replaces_and_keeps_its_id(stage: Stage) -> None:
    one = put(stage, new(), ["first words", "second words", "third"])
    two = put(stage, new(name="renamed.txt"), ["other words"])
    assert one == two and counts(stage) == (1, 1)
    assert find(stage, "words") == ["renamed.txt#0"] and find(stage, "third") == []


def test_new_content_of_the_same_source_takes_the_old_one_s_place(stage: Stage) -> None:
    put(stage, new("1", source="/docs/a.txt"), ["old words"])
    put(stage, new("2", source="/docs/a.txt"), ["new words"])
    put(stage, new("3"), ["without a source"])
    put(stage, new("4"), ["another without"])
    assert counts(stage) == (3, 3)
    assert find(stage, "old") == [] and find(stage, "new") == ["a.txt#0"]


def test_an_attempt_that_dies_leaves_what_was_there(stage: Stage) -> None:
    put(stage, new(), ["whole words"])
    with stage.connection.transaction(force_rollback=True):  # as when the connection goes
        documents.put(stage.connection, stage.tenant, new(), pieces("half"))
        assert find(stage, "half") == ["a.txt#0"]
    assert find(stage, "whole") == ["a.txt#0"] and find(stage, "half") == []
    put(stage, new(), ["whole words"])
    assert counts(stage) == (1, 1)


def test_two_that_put_the_same_at_once_leave_one_copy(stage: Stage) -> None:
    """Eight threads put two contents of two sources in all orders: nobody clashes, nothing is doubled."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with connect(stage.url, "engine", application_name="test") as connection:
                for round_ in range(12):
                    n = (number + round_) % 4
                    with connection.transaction():
                        documents.put(
                            connection, stage.tenant, new(str(n % 2), source=f"/s/{n // 2}"), pieces("words", "more")
                        )
        except BaseException as error:  # noqa: BLE001  # told by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    documents_there, chunks_there = counts(stage)
    assert 1 <= documents_there <= 2 and chunks_there == 2 * documents_there


def test_hits_come_by_rank_with_a_snippet_and_their_place(stage: Stage) -> None:
    put(stage, new("1", "far.txt"), ["The queue " + "and then some other words " * 30 + "waits."])
    put(stage, new("2", "near.txt"), ["nothing", "Queues wait: a waiting queue is a queue that waits."])
    found = documents.search(stage.connection, stage.tenant, "queue waiting", limit=5, filters=Filters())
    assert [hit.name for hit in found.hits] == ["near.txt", "far.txt"]
    best = found.hits[0]
    assert best.rank > found.hits[1].rank > 0 and (best.ordinal, best.start) == (1, 1)
    assert "**queue**" in best.snippet and "**waits**" in best.snippet
    assert (found.looked_at, found.all) == (2, True)
    assert str(uuid.UUID(best.document_id)) == best.document_id


def test_queries_are_those_of_the_web(stage: Stage) -> None:
    put(stage, new("1", "a"), ["red car and a blue boat"])
    put(stage, new("2", "b"), ["blue car"])
    assert find(stage, "blue car") == ["b#0", "a#0"]
    assert find(stage, '"blue car"') == ["b#0"]
    assert find(stage, "blue -boat") == ["b#0"]
    assert sorted(find(stage, "boat or cars")) == ["a#0", "b#0"]
    for nothing in ("the", "", "-", '""', "!!! ((", "'; drop table chunk; --"):
        assert find(stage, nothing) == []
    assert len(find(stage, "blue or car", limit=1)) == 1


def test_filters_narrow_the_search(stage: Stage) -> None:
    put(stage, new("1", "guides/a.md", tags=("x", "y"), content_type="text/markdown"), ["some words"])
    put(stage, new("2", "guides/b.pdf", tags=("x",), content_type="application/pdf"), ["some words"])
    put(stage, new("3", "100%_/c.md"), ["some words"])
    assert find(stage, "words", name_prefix="guides/") == ["guides/a.md#0", "guides/b.pdf#0"]
    assert find(stage, "words", name_prefix="100%_") == ["100%_/c.md#0"]
    assert find(stage, "words", name_prefix="%") == []
    assert find(stage, "words", tags=("x",)) == ["guides/a.md#0", "guides/b.pdf#0"]
    assert find(stage, "words", tags=("y", "x")) == ["guides/a.md#0"]
    assert find(stage, "words", tags=("x",), content_type="application/pdf") == ["guides/b.pdf#0"]
    assert find(stage, "words", tags=("z",)) == []
    assert find(stage, "words", name_prefix="guides/", content_type="text/plain") == []
    assert find(stage, "guides") == [] and find(stage, "x") == []  # what a filter asks for is no text


def test_marks_of_any_letters_are_filters_and_nothing_else(stage: Stage) -> None:
    for n, odd in enumerate(("it's", "a\\b", "' | 'tenant 2", "x:*", "\u3042 \U0001f600", "&!()<->")):
        put(stage, new(str(n), f"{odd}/a.md", tags=(odd,)), ["some words"])
        assert find(stage, "words", name_prefix=odd, tags=(odd,)) == [f"{odd}/a.md#0"]


def test_a_tenant_finds_only_its_own(stage: Stage) -> None:
    other = stage.add_tenant("other")
    put(stage, new(), ["shared words"])
    put(stage, new(name="theirs.txt"), ["shared words"], tenant=other)
    assert find(stage, "shared") == ["a.txt#0"] and find(stage, "shared", tenant=other) == ["theirs.txt#0"]
    assert find(stage, f"tenant {other}") == [] and find(stage, f'"tenant {other}"') == []


def _seen(connection: Connection, table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


def test_role_web_sees_its_tenant_s_documents_and_writes_none(stage: Stage) -> None:
    other = stage.add_tenant("other")
    put(stage, new(), ["words"])
    put(stage, new(), ["words", "more"], tenant=other)
    with stage.open("web") as web:
        for table, own in (("document", 1), ("chunk", 2)):
            assert _seen(web, table) == 0
            with queries.as_tenant(web, other):
                assert _seen(web, table) == own
        with pytest.raises(psycopg.errors.InsufficientPrivilege), queries.as_tenant(web, other):
            web.execute("DELETE FROM document")


def test_chunks_go_with_their_document(stage: Stage) -> None:
    put(stage, new(), ["one", "two"])
    stage.connection.execute("DELETE FROM document")
    assert counts(stage) == (0, 0)


@pytest.mark.parametrize("name_prefix", ["", "1"])
def test_a_search_goes_by_the_index_and_looks_at_a_bounded_number(stage: Stage, name_prefix: str) -> None:
    other = stage.add_tenant("other")
    for tenant, many in ((stage.tenant, 2), (other, 3)):
        for n in range(many):
            put(stage, new(str(n), f"{n}.txt"), ["common words stand here"] * 1500, tenant=tenant)
    filters = Filters(name_prefix=name_prefix)
    asked = {
        "tenant": stage.tenant, "query": "common", "marks": documents._asked(stage.tenant, filters),
        "candidates": documents.CANDIDATES, "most": 10,
    }  # fmt: skip
    lines = [row[0] for row in stage.connection.execute("EXPLAIN ANALYZE " + sql.load("documents/search"), asked)]
    plan = "\n".join(lines)
    assert "Seq Scan" not in plan, plan
    scanned = next(line for line in lines if "Bitmap Index Scan on chunk_search" in line)
    # Of this tenant's 3,000 chunks (with the filter: of one of its documents), and none of the other's 4,500.
    assert f"rows={1500 if name_prefix else 3000}" in scanned, plan
    found = documents.search(stage.connection, stage.tenant, "common", limit=10, filters=filters)
    assert (found.looked_at, found.all, len(found.hits)) == (documents.CANDIDATES, False, 10)

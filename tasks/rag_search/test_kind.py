"""The search passes its query and filters on, once, and returns what was found."""

from typing import Any

import pytest
from pydantic import ValidationError

from harness.kinds.documents import Filters, Found, Hit
from harness.kinds.forms import changed
from harness.kinds.registry import find
from tasks.rag_search.kind import Query, search

HIT = Hit("id", "a.md", "A", "text/markdown", 3, 10, 20, 0.5, "a **word**")


def test_the_query_and_its_filters_reach_the_documents(alone: Any) -> None:
    ctx = alone()
    asked: list[tuple[str, int, Filters]] = []

    def answer(query: str, limit: int, filters: Filters) -> Found:
        asked.append((query, limit, filters))
        return Found((HIT,), 7, True)

    ctx.documents.search = answer
    found = search(ctx, Query(query="word", limit=3, name_prefix="a", tags=["t"], content_type="text/markdown"))
    assert asked == [("word", 3, Filters(name_prefix="a", tags=("t",), content_type="text/markdown"))]
    assert ctx.calls == ["rag:search"]
    assert found.model_dump() == {
        "query": "word", "looked_at": 7, "all": True,
        "hits": [{
            "document_id": "id", "name": "a.md", "title": "A", "content_type": "text/markdown", "ordinal": 3,
            "start": 10, "end": 20, "rank": 0.5, "snippet": "a **word**",
        }],
    }  # fmt: skip


def test_the_kind_needs_the_resource() -> None:
    found = find("rag.search")
    assert found and found.signature == "rag:search=1" and found.pool == "db"


@pytest.mark.parametrize(
    ("field", "value"), [("query", ""), ("query", "a\0"), ("limit", 0), ("limit", 51), ("tags", [""]), ("tenant", 2)]
)
def test_a_wrong_field_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as refused:
        Query.model_validate({"query": "q", field: value})
    assert refused.value.errors()[0]["loc"][0] == field


def test_its_cheaper_form_asks_for_half_as_many_chunks() -> None:
    found = find("rag.search")
    assert found is not None
    (form,) = found.degrade
    halves = [changed(form, Query(query="word", limit=limit)).model_dump()["limit"] for limit in (1, 5, 50)]
    assert halves == [1, 3, 25]

"""`rag.search`: the chunks of the tenant's documents that fit a query best, with rank and snippet.

PostgreSQL's full text over English stems: no model, and no index outside the database.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from harness.kinds import Context, Form, kind
from harness.kinds.documents import Filters

RESOURCE = "rag:search"


class Query(BaseModel):
    """What to look for, as on the web: all words, "phrases", `or`, -without. Every filter given must hold."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")
    limit: int = Field(default=10, ge=1, le=50)
    name_prefix: str = Field(
        default="", max_length=300, pattern=r"^[^\x00]*$", description="documents whose name begins so"
    )
    tags: list[Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\x00]*$")]] = Field(
        default_factory=list, max_length=20, description="documents that have all of them"
    )
    content_type: str = Field(
        default="", max_length=100, pattern=r"^[^\x00]*$", description="documents of this type, as application/pdf"
    )


class HitOut(BaseModel):
    """One chunk: characters `start` to `end` of the document's clean text. `rank`: the higher the better."""

    document_id: str
    name: str
    title: str
    content_type: str
    ordinal: int
    start: int
    end: int
    rank: float
    snippet: str = Field(description="plain text, not HTML; what matched stands between **")


class Hits(BaseModel):
    """The best hits, best first. `all`: every match was ranked; else only the `looked_at` oldest were."""

    query: str
    hits: list[HitOut]
    looked_at: int
    all: bool


def _fewer(payload: Query) -> Query:
    return payload.model_copy(update={"limit": -(-payload.limit // 2)})


@kind(
    "rag.search",
    pool="db",
    input=Query,
    output=Hits,
    resources={RESOURCE: 1},
    timeout_s=30,
    est_s=0.05,
    degrade=[Form(name="fewer", change=_fewer)],
)
def search(ctx: Context, payload: Query) -> Hits:
    """Search once."""
    filters = Filters(name_prefix=payload.name_prefix, tags=tuple(payload.tags), content_type=payload.content_type)
    found = ctx.call(RESOURCE, lambda: ctx.documents.search(payload.query, payload.limit, filters))
    return Hits(
        query=payload.query,
        hits=[HitOut(**{name: getattr(hit, name) for name in hit.__slots__}) for hit in found.hits],
        looked_at=found.looked_at,
        all=found.all,
    )

"""`report.research`: search the tenant's documents, analysts in parallel, a draft, a critic, a person, two artifacts.

    1 search   2 an analyst for each angle, a task each, without a slot meanwhile   3 draft and criticism   4 summary
    5 a person says yes, without a slot meanwhile   6 Markdown and HTML

Everything that costs or differs next time is a step or a child: whatever dies, nothing is asked twice. `report.analyse`
is one analyst.
"""

from typing import Any, Final, TypedDict

from harness.kinds import Context, OneOf, Permanent, completions, kind, models
from harness.kinds.completions import Said
from harness.kinds.documents import Filters
from tasks.research_report import writing
from tasks.research_report.payload import Analysed, Analysis, Report, Research, Source

SEARCH: Final = "rag:search"
MAX_TOKENS: Final = 1_024
EXCERPT_CHARS: Final = 600  # of the summary, for the person who is asked


@kind(
    "report.analyse",
    pool="llm",
    input=Analysis,
    output=Analysed,
    one_of=OneOf(of=lambda payload: models.resource(payload.model), every=models.resources),
    timeout_s=300,
    est_s=3.0,
    costs=True,
)
def analyse(ctx: Context, payload: Analysis) -> Analysed:
    """Analyse the passages from one angle."""
    said = ctx.step("analyse", lambda: _ask(ctx, payload.model, writing.ANALYST, writing.analysts_prompt(payload)))
    return Analysed(angle=payload.angle, text=said["text"], tokens_in=said["tokens_in"], tokens_out=said["tokens_out"])


@kind(
    "report.research",
    pool="llm",
    input=Research,
    output=Report,
    resources={SEARCH: 1},
    one_of=OneOf(of=lambda payload: models.resource(payload.model), every=models.resources),
    timeout_s=600,
    est_s=6.0,
    costs=True,
)
def research(ctx: Context, payload: Research) -> Report:
    """Write a report. Raises: Permanent when nothing is found, or no analyst has an answer."""
    models.access(payload.model)
    # 1. What the documents say.
    found = ctx.step("search", lambda: _found(ctx, payload))
    sources = [Source.model_validate(one) for one in found["sources"]]
    # 2. An analyst for each angle.
    asked = [
        Analysis(
            question=payload.question,
            angle=one["angle"],
            sources=[sources[number - 1] for number in one["numbers"]],
            model=payload.model,
        )
        for one in found["angles"]
    ]
    work = ctx.spawn("report.analyse", [one.model_dump(mode="json") for one in asked], name="analysts")
    children = list(zip([one.angle for one in asked], ctx.gather(work), strict=True))
    analyses = [Analysed.model_validate(child.output) for _, child in children if child.succeeded]
    if not analyses:
        why = (children[0][1].error or {}).get("message") or children[0][1].state
        raise Permanent(f"angles: none of {len(children)} analysts has an answer; the first: {why}")
    # 3. The draft, and what a critic says of it.
    draft = writing.draft(analyses)
    critic = ctx.step(
        "criticise", lambda: _ask(ctx, payload.model, writing.CRITIC, writing.critics_prompt(payload.question, draft))
    )
    # 4. The summary.
    prompt = writing.editors_prompt(payload.question, draft, critic["text"])
    editor = ctx.step("summarise", lambda: _ask(ctx, payload.model, writing.EDITOR, prompt))
    # 5. A person.
    decision = ""
    if payload.approve:
        decision = ctx.ask(
            f"Publish the report on {payload.question!r}? {editor['text'][:EXCERPT_CHARS]}",
            timeout_s=payload.approve_within_s,
        )
    # 6. The report.
    said = [critic, editor]
    report = Report(
        title=payload.question,
        decision=decision,
        sources=sources,
        left_out=[one.name for one in payload.angles if one.name not in {answered.angle for answered in analyses}],
        markdown_artifact_id="",
        html_artifact_id="",
        tokens_in=sum(one["tokens_in"] for one in said) + sum(one.tokens_in for one in analyses),
        tokens_out=sum(one["tokens_out"] for one in said) + sum(one.tokens_out for one in analyses),
    )
    text = writing.markdown(payload.question, editor["text"], draft, critic["text"], report)
    plain = ctx.step("keep Markdown", lambda: _kept(ctx, "report.md", "text/markdown", text))
    page = ctx.step("keep HTML", lambda: _kept(ctx, "report.html", "text/html", writing.html(payload.question, text)))
    return report.model_copy(update={"markdown_artifact_id": plain, "html_artifact_id": page})


class Searched(TypedDict):
    """What was found for an angle, by the numbers of sources."""

    angle: str
    numbers: list[int]


class Found(TypedDict):
    """All passages, each once, and which angle has which: the result of a step. An angle without any isn't there."""

    sources: list[dict[str, Any]]
    angles: list[Searched]


def _found(ctx: Context, payload: Research) -> Found:
    """Search for each angle. Raises: Permanent when nothing is found for any."""
    filters = Filters(tags=tuple(payload.tags))
    sources: dict[tuple[str, int], dict[str, Any]] = {}
    angles: list[Searched] = []
    for angle in payload.angles:
        words = angle.search or payload.search or payload.question
        hits = ctx.call(SEARCH, lambda words=words: ctx.documents.search(words, payload.passages, filters)).hits
        for hit in hits:
            text = hit.snippet.replace("**", "")[: writing.SOURCE_MOST_CHARS]
            source = Source(
                number=len(sources) + 1, document_id=hit.document_id, name=hit.name, title=hit.title, text=text
            )
            sources.setdefault((hit.document_id, hit.ordinal), source.model_dump())
        if hits:
            numbers = [sources[hit.document_id, hit.ordinal]["number"] for hit in hits]
            angles.append(Searched(angle=angle.name, numbers=numbers))
    if not angles:
        words = payload.search or payload.question
        raise Permanent(f"search: no document says anything about {words!r}: ingest some, or search for other words")
    return Found(sources=list(sources.values()), angles=angles)


def _ask(ctx: Context, model: str | None, instruction: str, prompt: str) -> Said:
    messages = [{"role": "system", "content": instruction}, {"role": "user", "content": prompt}]
    return completions.ask(ctx, messages, model=model, max_tokens=MAX_TOKENS)


def _kept(ctx: Context, name: str, content_type: str, text: str) -> str:
    return ctx.artifacts.put(name, content_type, text.encode("utf-8", "replace")).id

"""`eval.batch`: a data set of prompts, each asked and graded once; a report with a chart, and the results as lines.

Each case is a task of its own (`eval.case`): in line for the model like any other, charged, tried again and degraded by
itself, and the batch holds no slot while they work. Which cases are asked is a step, so that a later attempt in a
cheaper form goes on with the cases that were chosen.
"""

import json
from collections.abc import Iterator
from typing import TypedDict

from harness.kinds import Child, Context, Form, OneOf, Permanent, completions, kind, models
from tasks.batch_evaluation import grading, report
from tasks.batch_evaluation.payload import LINE_MAX_BYTES, Asked, Batch, Case, Evaluated, Graded, cases_of
from tasks.batch_evaluation.report import Result

JUDGE_TOKENS = 64
ANSWER_MAX_CHARS = 15_000  # of an answer, kept: of 2,000 cases all are gathered at once
ERROR_MAX_CHARS = 500
SHARES = {"half": 0.5, "small": 0.25}


def _half(payload: Batch) -> Batch:
    return payload.model_copy(update={"share": payload.share * SHARES["half"]})


def _small(payload: Batch) -> Batch:
    name = models.cheaper() or payload.model
    return payload.model_copy(update={"share": payload.share * SHARES["small"], "model": name})


def _cheaper(payload: Asked) -> Asked:
    return payload.model_copy(update={"model": models.cheaper() or payload.model})


@kind(
    "eval.batch",
    pool="tool_read",  # it calls no model itself: in a model's pool its place in line would wait for the model's limit
    input=Batch,
    output=Evaluated,
    version=2,
    timeout_s=300,
    est_s=0.5,
    degrade=[Form(name="half", change=_half), Form(name="small", change=_small)],
)
def evaluate(ctx: Context, payload: Batch) -> Evaluated:
    """Have each case asked and graded, then report. Raises: Permanent naming the field, or when none was answered."""
    # 1. The cases, and which of them are asked.
    cases = _cases(ctx, payload)
    chosen = ctx.step("choose cases", lambda: spread(len(cases), payload.share))
    # 2. A task each; no slot meanwhile.
    work = ctx.spawn("eval.case", (_asked(payload, cases[at]) for at in chosen), name="cases")
    graded: list[Result] = list(zip(chosen, map(_of_child, ctx.gather(work)), strict=True))
    found = [one for _, one in graded]
    if all(one.error for one in found):
        raise Permanent(f"not one of {len(found)} cases got an answer; the first: {found[0].error}")
    # 3. The report.
    outcome = Evaluated(
        cases=len(found),
        passed=sum(one.passed for one in found),
        score=round(sum(one.score for one in found) / len(found), 4),
        failed_to_answer=sum(bool(one.error) for one in found),
        left_out=len(cases) - len(found),
        groups=report.groups(cases, graded),
        tokens_in=sum(one.tokens_in for one in found),
        tokens_out=sum(one.tokens_out for one in found),
        report_artifact_id="",
        results_artifact_id="",
    )
    page = report.html(payload.name, cases, graded, outcome).encode("utf-8", "replace")
    kept = ctx.step("report", lambda: ctx.artifacts.put("report.html", "text/html", page).id)
    lines = ctx.step(
        "results", lambda: ctx.artifacts.put("results.jsonl", "application/x-ndjson", _lines(cases, graded)).id
    )
    return outcome.model_copy(update={"report_artifact_id": kept, "results_artifact_id": lines})


@kind(
    "eval.case",
    pool="llm",
    input=Asked,
    output=Graded,
    one_of=OneOf(of=lambda payload: models.resource(payload.model), every=models.resources),
    timeout_s=300,
    est_s=3.0,
    costs=True,
    degrade=[Form(name="small", change=_cheaper, resources=models.cheaper_needs)],
)
def ask_case(ctx: Context, payload: Asked) -> Graded:
    """Ask and grade one case. Raises: what may go well later, and what would fail for every case."""
    case = payload.case
    messages = [{"role": "system", "content": payload.instruction}] if payload.instruction else []
    messages.append({"role": "user", "content": case.prompt})
    heard = ctx.step("ask", lambda: _heard(ctx, payload.model, messages, payload.max_tokens))
    graded = Graded(
        answer=heard["text"], error=heard["error"], model=heard["model"], form=heard["form"],
        tokens_in=heard["tokens_in"], tokens_out=heard["tokens_out"],
    )  # fmt: skip
    if graded.error:
        return graded
    if case.grade in grading.RULES:
        score: float | None = grading.RULES[case.grade](case.expect, graded.answer)
    else:
        asked = grading.question(case.prompt, case.expect, graded.answer)
        judged = [{"role": "system", "content": grading.JUDGE}, {"role": "user", "content": asked}]
        verdict = ctx.step("judge", lambda: _heard(ctx, payload.model, judged, JUDGE_TOKENS))
        graded.tokens_in += verdict["tokens_in"]
        graded.tokens_out += verdict["tokens_out"]
        graded.error = verdict["error"]
        score = grading.score_of(verdict["text"])
    if score is None:
        return graded.model_copy(update={"error": graded.error or "the judge gave no SCORE"})
    return graded.model_copy(update={"score": round(score, 4), "passed": score >= case.least})


class Heard(TypedDict):
    """What the model said, in which form it was asked, and what it cost; `error`: why it said nothing. A step's."""

    text: str
    error: str
    model: str
    form: str
    tokens_in: int
    tokens_out: int


def _heard(ctx: Context, model: str | None, messages: list[dict[str, str]], max_tokens: int) -> Heard:
    try:
        said = completions.ask(ctx, messages, model=model, max_tokens=max_tokens)
    except Permanent as error:
        if error.error_class != "validation":
            raise  # a key that is refused is so for every case
        # This prompt isn't answered (too long, refused, empty), and wouldn't be another time.
        why = completions.storable(str(error))[:ERROR_MAX_CHARS]
        return Heard(text="", error=why, model="", form=ctx.form, tokens_in=0, tokens_out=0)
    return Heard(
        text=said["text"][:ANSWER_MAX_CHARS],
        error="",
        model=said["model"],
        form=ctx.form,
        tokens_in=said["tokens_in"],
        tokens_out=said["tokens_out"],
    )


def spread(number: int, share: float) -> list[int]:
    """Return which of `number` cases are asked: a share of them, evenly spread, at least one.

    >>> spread(4, 1.0), spread(10, 0.25), spread(3, 0.01)
    ([0, 1, 2, 3], [0, 5], [0])
    """
    asked = max(1, min(number, round(number * share)))
    return [index * number // asked for index in range(asked)]


def _cases(ctx: Context, payload: Batch) -> list[Case]:
    if payload.cases is not None:
        return payload.cases
    with ctx.artifacts.open(payload.artifact_id or "") as source:

        def lines() -> Iterator[bytes]:
            while line := source.readline(LINE_MAX_BYTES + 2):
                yield line

        return cases_of(lines())


def _asked(payload: Batch, case: Case) -> dict[str, object]:
    asked = Asked(case=case, instruction=payload.instruction, model=payload.model, max_tokens=payload.max_tokens)
    return asked.model_dump(mode="json")


def _of_child(child: Child) -> Graded:
    if child.succeeded:
        return Graded.model_validate(child.output)
    return Graded(error=str((child.error or {}).get("message") or child.state)[:ERROR_MAX_CHARS])


def _lines(cases: list[Case], graded: list[Result]) -> Iterator[bytes]:
    for index, one in graded:
        case = cases[index]
        about = {"id": case.id or str(index + 1), "tag": case.tag, "prompt": case.prompt, "expect": case.expect}
        yield json.dumps(about | one.model_dump(mode="json"), ensure_ascii=False).encode("utf-8", "replace") + b"\n"

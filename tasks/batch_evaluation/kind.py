"""`eval.batch`: a data set of prompts, each asked and graded once; a report with a chart, and the results as lines.

Each case is a step: an attempt after a crash or a 429 asks (and pays) only for what is missing. Which cases are asked
is a step too, so that an attempt in a cheaper form goes on with the cases that were chosen.
"""

import json
from collections.abc import Iterator

from harness.kinds import Context, Form, OneOf, Permanent, completions, kind, models
from tasks.batch_evaluation import grading, report
from tasks.batch_evaluation.payload import LINE_MAX_BYTES, Batch, Case, Evaluated, cases_of
from tasks.batch_evaluation.report import Graded

JUDGE_TOKENS = 64
ANSWER_MAX_CHARS = 20_000  # of an answer, kept
SHARES = {"half": 0.5, "small": 0.25}


def _half(payload: Batch) -> Batch:
    return payload.model_copy(update={"share": payload.share * SHARES["half"]})


def _small(payload: Batch) -> Batch:
    name = models.cheaper() or payload.model
    return payload.model_copy(update={"share": payload.share * SHARES["small"], "model": name})


@kind(
    "eval.batch",
    pool="llm",
    input=Batch,
    output=Evaluated,
    one_of=OneOf(of=lambda payload: models.resource(payload.model), every=models.resources),
    timeout_s=3_600,
    est_s=20.0,
    costs=True,
    degrade=[
        Form(name="half", change=_half),
        Form(name="small", change=_small, resources=models.cheaper_needs),
    ],
)
def evaluate(ctx: Context, payload: Batch) -> Evaluated:
    """Ask and grade each case, then report. Raises: Permanent naming the field, or when nothing was answered."""
    # 1. The cases, and which of them are asked.
    models.access(payload.model)
    cases = _cases(ctx, payload)
    chosen = ctx.step("choose cases", lambda: spread(len(cases), payload.share))
    # 2. Each once.
    graded: list[Graded] = []
    for done, index in enumerate(chosen, start=1):
        graded.append(ctx.step(f"case {index + 1}", lambda index=index: _graded(ctx, payload, cases[index], index)))  # type: ignore[misc]  # mypy can't infer the default
        ctx.emit(f"{done} of {len(chosen)} cases, {sum(one['passed'] for one in graded)} passed\n")
    if all(one["error"] for one in graded):
        raise Permanent(f"not one of {len(graded)} cases got an answer; the first: {graded[0]['error']}")
    # 3. The report.
    outcome = Evaluated(
        cases=len(graded),
        passed=sum(one["passed"] for one in graded),
        score=round(sum(one["score"] for one in graded) / len(graded), 4),
        failed_to_answer=sum(bool(one["error"]) for one in graded),
        left_out=len(cases) - len(chosen),
        groups=report.groups(cases, graded),
        tokens_in=sum(one["tokens_in"] for one in graded),
        tokens_out=sum(one["tokens_out"] for one in graded),
        report_artifact_id="",
        results_artifact_id="",
    )
    page = report.html(payload.name, cases, graded, outcome).encode("utf-8", "replace")
    kept = ctx.step("report", lambda: ctx.artifacts.put("report.html", "text/html", page).id)
    lines = ctx.step(
        "results", lambda: ctx.artifacts.put("results.jsonl", "application/x-ndjson", _lines(cases, graded)).id
    )
    return outcome.model_copy(update={"report_artifact_id": kept, "results_artifact_id": lines})


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


def _graded(ctx: Context, payload: Batch, case: Case, index: int) -> Graded:
    """Ask and grade one case. Raises: what may go well later, and what would fail for every case."""
    messages = [{"role": "system", "content": payload.instruction}] if payload.instruction else []
    messages.append({"role": "user", "content": case.prompt})
    graded = Graded(
        index=index, answer="", score=0.0, passed=False, error="", model="", form=ctx.form, tokens_in=0, tokens_out=0
    )
    try:
        said = completions.ask(ctx, messages, model=payload.model, max_tokens=payload.max_tokens)
        graded["answer"], graded["model"] = said["text"][:ANSWER_MAX_CHARS], said["model"]
        graded["tokens_in"], graded["tokens_out"] = said["tokens_in"], said["tokens_out"]
        score = _score(ctx, payload, case, graded)
    except Permanent as error:
        if error.error_class != "validation":
            raise  # a key that is refused is so for every case
        # This prompt isn't answered (too long, refused, empty): the others may be.
        graded["error"] = completions.storable(str(error))[:500]
        return graded
    graded["score"], graded["passed"] = round(score, 4), score >= case.least
    return graded


def _score(ctx: Context, payload: Batch, case: Case, graded: Graded) -> float:
    rule = grading.RULES.get(case.grade)
    if rule is not None:
        return rule(case.expect, graded["answer"])
    asked = grading.question(case.prompt, case.expect, graded["answer"])
    messages = [{"role": "system", "content": grading.JUDGE}, {"role": "user", "content": asked}]
    verdict = completions.ask(ctx, messages, model=payload.model, max_tokens=JUDGE_TOKENS)
    graded["tokens_in"] += verdict["tokens_in"]
    graded["tokens_out"] += verdict["tokens_out"]
    score = grading.score_of(verdict["text"])
    if score is None:
        raise Permanent("the judge gave no SCORE")
    return score


def _lines(cases: list[Case], graded: list[Graded]) -> Iterator[bytes]:
    for one in graded:
        case = cases[one["index"]]
        about = {"id": case.id or str(one["index"] + 1), "tag": case.tag, "prompt": case.prompt, "expect": case.expect}
        row = {name: value for name, value in one.items() if name != "index"}
        yield json.dumps(about | row, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

"""`csv.analyse`: a question about a CSV; the model writes Python, the sandbox runs it, result and chart are artifacts.

    1 look at the columns   2 the model writes a program   3 it runs, a child of kind `sandbox.python`
    (4 it failed: the model mends it, 3 again)   5 the model answers in words, from what was printed

Each is a step: an attempt after a crash or a 429 asks and pays only for what is missing. While a program waits or runs
this task holds no slot. The file's bytes never go to the model: only the columns' names, types and a few values.
"""

import io
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harness.kinds import Context, OneOf, Permanent, completions, kind, models
from tasks.csv_analysis import look, prompts
from tasks.sandbox_python.kind import GIVEN_MAX_BYTES as CSV_MAX_BYTES
from tasks.sandbox_python.kind import Kept, Ran

CODE_TOKENS = 4_000
ANSWER_TOKENS = 400
CHART, RESULT, PROGRAM = "chart.svg", "result.json", "program.py"
WALL_S, MEMORY_MIB = 120, 1024


class Question(BaseModel):
    """A question about a CSV, by exactly one of `artifact_id` and `content`."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(min_length=3, max_length=4_000)
    artifact_id: uuid.UUID | None = Field(default=None, description="an upload")
    content: str | None = Field(default=None, min_length=1, max_length=200_000, description="the CSV itself")
    model: str | None = Field(default=None, max_length=200, description="a configured model; without it: the default")
    programs: int = Field(default=3, ge=1, le=5, description="how many the model may write until one does it")

    _known = field_validator("model")(models.check)

    @model_validator(mode="after")
    def _one_source(self) -> "Question":
        if (self.artifact_id is None) == (self.content is None):
            raise ValueError("content: give exactly one of content and artifact_id")
        return self


class Analysed(BaseModel):
    """The answer in words, what the program printed, and its files: the program, the figures, the chart."""

    answer: str
    printed: str
    files: list[Kept]
    programs: int
    model: str
    tokens_in: int
    tokens_out: int


@kind(
    "csv.analyse",
    pool="llm",
    input=Question,
    output=Analysed,
    one_of=OneOf(of=lambda payload: models.resource(payload.model), every=models.resources),
    timeout_s=900,
    est_s=10.0,
    costs=True,
)
def analyse(ctx: Context, payload: Question) -> Analysed:
    """Answer the question. Raises: Permanent when it is no CSV, is too large, or no program did it."""
    # 1. The columns, and the file where a child finds it.
    models.access(payload.model)
    facts = ctx.step("look", lambda: _looked(ctx, payload))
    data = str(payload.artifact_id or ctx.step("keep the content", lambda: _kept(ctx, payload)))
    # 2. to 4. A program that does it, or the last one's error.
    messages = [
        {"role": "system", "content": prompts.WRITER},
        {"role": "user", "content": prompts.asked(facts, payload.question)},
    ]
    spent: list[completions.Said] = []
    for n in range(1, payload.programs + 1):
        written = ctx.step(f"write {n}", lambda: _written(ctx, payload, messages))
        spent.append(written)
        ran = _ran(ctx, n, written["text"], data)
        why = _wrong(ran)
        if not why:
            break
        ctx.emit(f"program {n} didn't do it: {why[-200:]}\n")
        messages.append({"role": "assistant", "content": f"```python\n{written['text']}\n```"})
        messages.append({"role": "user", "content": prompts.mend(why)})
    else:
        raise Permanent(f"none of {payload.programs} programs did it; the last one: {why[-1_000:]}")
    # 5. In words.
    answer = ctx.step("answer", lambda: _answered(ctx, payload, ran.stdout))
    spent.append(answer)
    source = written["text"].encode("utf-8", "replace")
    kept = ctx.step("keep the program", lambda: ctx.artifacts.put(PROGRAM, "text/x-python", source).id)
    return Analysed(
        answer=answer["text"],
        printed=ran.stdout,
        files=[*ran.files, Kept(name=PROGRAM, artifact_id=kept, bytes=len(source))],
        programs=n,
        model=spent[0]["model"],
        tokens_in=sum(one["tokens_in"] for one in spent),
        tokens_out=sum(one["tokens_out"] for one in spent),
    )


@contextmanager
def _opened(ctx: Context, payload: Question) -> Iterator[tuple[BinaryIO, str, int]]:
    """Yield the CSV as (file, name, bytes). Raises: Permanent when it is too large."""
    if payload.content is not None:
        raw = payload.content.encode("utf-8", "replace")
        yield io.BytesIO(raw), "content", len(raw)
        return
    about = ctx.artifacts.find(str(payload.artifact_id))
    if about.bytes > CSV_MAX_BYTES:
        raise Permanent(
            f"artifact_id: {about.name} has {about.bytes:,} bytes; a CSV to analyse may have {CSV_MAX_BYTES:,}: "
            "split it, or leave out columns that the question doesn't need"
        )
    with ctx.artifacts.open(about.id) as file:
        yield file, about.name, about.bytes


def _looked(ctx: Context, payload: Question) -> dict[str, Any]:
    with _opened(ctx, payload) as (file, name, size):
        return look.facts(file, name, size)


def _written(ctx: Context, payload: Question, messages: list[dict[str, str]]) -> completions.Said:
    said = completions.ask(ctx, messages, model=payload.model, max_tokens=CODE_TOKENS)
    said["text"] = prompts.program_of(said["text"])
    return said


def _answered(ctx: Context, payload: Question, printed: str) -> completions.Said:
    messages = [
        {"role": "system", "content": prompts.TELLER},
        {"role": "user", "content": prompts.tell(payload.question, printed)},
    ]
    return completions.ask(ctx, messages, model=payload.model, max_tokens=ANSWER_TOKENS)


def _ran(ctx: Context, n: int, code: str, data: str) -> Ran:
    """Have a program run, and wait for it without a slot. Raises: Permanent when it couldn't be run at all."""
    asked = {
        "code": code,
        "files": [{"name": "data.csv", "artifact_id": data}],
        "wall_s": WALL_S,
        "memory_mib": MEMORY_MIB,
    }
    (child,) = ctx.gather(ctx.spawn("sandbox.python", [asked], name=f"run {n}"), name=f"ran {n}")
    if not child.succeeded:
        why = (child.error or {}).get("message") or child.state
        raise Permanent(f"program {n} (task {child.task_id}) couldn't be run: {why}")
    return Ran.model_validate(child.output)


def _wrong(ran: Ran) -> str:
    """Say what is wrong with how a program ended; '' when it did what it was asked for."""
    if ran.exit_code != 0:
        return "\n".join(filter(None, [ran.reason or f"it ended with {ran.exit_code}", ran.stderr[-2_000:].strip()]))
    left = {one.name for one in ran.files if one.bytes}
    lacks = [f"no out/{name}" for name in (RESULT, CHART) if name not in left]
    if not ran.stdout.strip():
        lacks.append("nothing printed")
    return f"it ended with 0 but there is {', '.join(lacks)}" if lacks else ""


def _kept(ctx: Context, payload: Question) -> str:
    raw = (payload.content or "").encode("utf-8", "replace")
    return ctx.artifacts.put("data.csv", "text/csv", raw).id

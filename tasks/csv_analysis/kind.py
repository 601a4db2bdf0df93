"""`csv.analyse`: a question about a CSV; the model writes Python, the sandbox runs it, result and chart are artifacts.

    1 look at the columns   2 the model writes a program   3 it runs   (4 it failed: the model mends it, 3 again)
    5 the model answers in words, from what was printed

Each is a step: an attempt after a crash or a 429 asks and pays only for what is missing. The file's bytes never go to
the model: only the columns' names, types and a few values.
"""

import contextlib
import io
import uuid
from collections.abc import Iterator
from typing import Any, BinaryIO, TypedDict

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harness.kinds import Context, OneOf, Permanent, completions, kind, models, sandbox
from tasks.csv_analysis import look, prompts
from tasks.sandbox_python.kind import Kept, keep, short, told

CSV_MAX_BYTES = 64 * sandbox.MIB
CODE_TOKENS = 4_000
ANSWER_TOKENS = 400
CHART, RESULT, PROGRAM = "chart.svg", "result.json", "program.py"
LIMITS = sandbox.Limits(disk_bytes=2 * CSV_MAX_BYTES, memory_bytes=1024 * sandbox.MIB, wall_s=120, cpu_s=121)


class Question(BaseModel):
    """A question about a CSV, by exactly one of `artifact_id` and `content`."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(min_length=3, max_length=4_000)
    artifact_id: uuid.UUID | None = Field(default=None, description="an upload")
    content: str | None = Field(default=None, min_length=1, max_length=200_000, description="the CSV itself")
    model: str | None = Field(default=None, max_length=200, description="a configured model; without it: the default")
    programs: int = Field(default=3, ge=1, le=5, description="how many the model may write until one does it")

    @field_validator("model")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        models.check(name)
        return name

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


class Ran(TypedDict):
    """How a program ended. `why`: what was wrong; '' when it did it."""

    why: str
    printed: str
    files: list[dict[str, Any]]


@kind(
    "csv.analyse",
    pool="sandbox",
    input=Question,
    output=Analysed,
    resources={"sandbox": 1},
    one_of=OneOf(of=lambda payload: models.resource(payload.model), every=models.resources),
    timeout_s=1_200,
    est_s=20.0,
    costs=True,
)
def analyse(ctx: Context, payload: Question) -> Analysed:
    """Answer the question. Raises: Permanent when it is no CSV, is too large, or no program did it."""
    # 1. What lacks is told before a model is paid.
    if why := sandbox.lack():
        raise Permanent(f"the sandbox can't be used: {why}")
    models.access(payload.model)
    facts = ctx.step("look", lambda: _looked(ctx, payload))
    # 2. to 4. A program that does it, or the last one's error.
    messages = [
        {"role": "system", "content": prompts.WRITER},
        {"role": "user", "content": prompts.asked(facts, payload.question)},
    ]
    spent: list[completions.Said] = []
    for n in range(1, payload.programs + 1):
        written = ctx.step(f"write {n}", lambda: _written(ctx, payload, messages))
        spent.append(written)
        ctx.emit(f"program {n} is written ({len(written['text'].splitlines())} lines)\n")
        ran = ctx.step(f"run {n}", lambda code=written["text"]: _ran(ctx, payload, code))  # type: ignore[misc]  # mypy can't infer the default
        if not ran["why"]:
            break
        ctx.emit(f"program {n} didn't do it: {ran['why'][-200:]}\n")
        messages.append({"role": "assistant", "content": f"```python\n{written['text']}\n```"})
        messages.append({"role": "user", "content": prompts.mend(ran["why"])})
    else:
        raise Permanent(f"none of {payload.programs} programs did it; the last one: {ran['why'][-1_000:]}")
    # 5. In words.
    answer = ctx.step("answer", lambda: _answered(ctx, payload, ran["printed"]))
    spent.append(answer)
    return Analysed(
        answer=answer["text"],
        printed=ran["printed"],
        files=[Kept.model_validate(one) for one in ran["files"]],
        programs=n,
        model=spent[0]["model"],
        tokens_in=sum(one["tokens_in"] for one in spent),
        tokens_out=sum(one["tokens_out"] for one in spent),
    )


@contextlib.contextmanager
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


def _ran(ctx: Context, payload: Question, code: str) -> Ran:
    """Run a program, and keep its files when it did what it was asked for."""
    with _opened(ctx, payload) as (file, _, size):
        given = [sandbox.Given(name="data.csv", content=file, bytes=size)]
        finished = sandbox.run(code, given=given, limits=LIMITS, look=ctx.checkpoint)
    with contextlib.closing(finished):
        if finished.exit_code != 0:
            return Ran(why=f"{told(finished)}\n{finished.stderr[-2_000:]}", printed="", files=[])
        lacks = [name for name in (RESULT, CHART) if name not in {one.name for one in finished.produced if one.bytes}]
        if not finished.stdout.strip():
            lacks.append("anything printed")
        if lacks:
            return Ran(why=f"it ended with 0 but left no {', no '.join(lacks)}", printed="", files=[])
        kept = [keep(ctx, one) for one in finished.produced]
    source = ctx.artifacts.put(PROGRAM, "text/x-python", code.encode("utf-8", "replace"))
    kept.append(Kept(name=PROGRAM, artifact_id=source.id, bytes=source.bytes))
    return Ran(why="", printed=short(finished.stdout), files=[one.model_dump() for one in kept])

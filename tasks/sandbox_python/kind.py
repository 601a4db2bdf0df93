"""`sandbox.python`: Python code that nobody has read, run in a sandbox; what it prints and leaves comes back.

Code that fails is a result like another (`exit_code`, `ended`, what it printed): who asked decides. With `check` the
task fails instead. Where no sandbox can be made the task fails and says what to install; the code never runs as a plain
process.
"""

import contextlib
import mimetypes
import uuid
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from harness.kinds import Context, Permanent, kind, sandbox

GIVEN_MAX_BYTES = 64 * sandbox.MIB
TEXT_CHARS = 16_000  # of each stream; a character may take six bytes of a result's JSON
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_. -]{0,99}$"


class File(BaseModel):
    """A file for the code, in its working folder: an upload under a name."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=_NAME)
    artifact_id: uuid.UUID


class Program(BaseModel):
    """The code, and what it may take."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(min_length=1, max_length=100_000, description="Python 3; files to keep go into the folder out")
    files: Annotated[list[File], Field(max_length=20)] = Field(default_factory=list)
    wall_s: float = Field(default=60.0, ge=0.1, le=240)
    memory_mib: int = Field(default=512, ge=32, le=2048, description="of all its processes together")
    check: bool = Field(default=False, description="whether the task fails when the code doesn't end with 0")

    @field_validator("files")
    @classmethod
    def _distinct(cls, files: list[File]) -> list[File]:
        names = [one.name for one in files]
        for name in names:
            if name == "main.py" or name == "out" or names.count(name) > 1:
                raise ValueError(f"name {name!r} is taken: give each file a name of its own, not main.py or out")
        return files


class Kept(BaseModel):
    """A file that the code left in `out`, as an artifact."""

    name: str
    artifact_id: str
    bytes: int


class LeftOut(BaseModel):
    """A file that wasn't kept, and why."""

    name: str
    reason: str


class Ran(BaseModel):
    """How it ended. `ended` "exit": by itself, with `exit_code` (below 0: by that signal); else what ended it."""

    ended: Literal["exit", "time", "cpu", "memory", "output", "files", "given", "broken"]
    exit_code: int | None
    reason: str
    stdout: str
    stderr: str
    took_s: float
    files: list[Kept]
    left_out: list[LeftOut]


@kind("sandbox.python", pool="sandbox", input=Program, output=Ran, resources={"sandbox": 1}, timeout_s=300, est_s=2.0)
def run(ctx: Context, payload: Program) -> Ran:
    """Run the code once. Raises: Permanent where there is no sandbox, or by `check`."""
    ctx.checkpoint()
    limits = sandbox.Limits(
        wall_s=payload.wall_s, cpu_s=int(payload.wall_s) + 1, memory_bytes=payload.memory_mib * sandbox.MIB
    )
    with contextlib.ExitStack() as opened:
        given: list[sandbox.Given] = []
        for one in payload.files:
            about = ctx.artifacts.find(str(one.artifact_id))
            if about.bytes + sum(file.bytes for file in given) > GIVEN_MAX_BYTES:
                raise Permanent(
                    f"files: {one.name} has {about.bytes:,} bytes; all files together may have {GIVEN_MAX_BYTES:,}"
                )
            content = opened.enter_context(ctx.artifacts.open(about.id))
            given.append(sandbox.Given(name=one.name, content=content, bytes=about.bytes))
        finished = sandbox.run(payload.code, given=given, limits=limits, look=ctx.checkpoint)
    with contextlib.closing(finished):
        if payload.check and finished.exit_code != 0:
            raise Permanent(f"code: {told(finished)}")
        files = [keep(ctx, made) for made in finished.produced]
    return Ran(
        ended=finished.ended,
        exit_code=finished.exit_code,
        reason=finished.reason,
        stdout=short(finished.stdout),
        stderr=short(finished.stderr),
        took_s=finished.took_s,
        files=files,
        left_out=[LeftOut(name=name, reason=why) for name, why in finished.left_out],
    )


def keep(ctx: Context, made: sandbox.Produced) -> Kept:
    """Keep a file that the code left. Raises: as `ctx.artifacts.put`."""
    content_type = mimetypes.guess_type(made.name)[0] or "application/octet-stream"
    kept = ctx.artifacts.put(made.name, content_type, made.content)
    return Kept(name=made.name, artifact_id=kept.id, bytes=made.bytes)


def told(finished: sandbox.Finished) -> str:
    """Say in a line how code ended that didn't end well."""
    if finished.reason:
        return finished.reason
    last = (finished.stderr.strip().splitlines() or ["it printed no error"])[-1]
    return f"it ended with {finished.exit_code}: {last[:500]}"


def short(text: str) -> str:
    """Return a text's beginning and end, so that two of them fit a result whatever they hold.

    >>> short("x" * 20_000)[7_998:8_040]
    'xx\\n[4,000 characters left out]\\nxxxxxxxxxx'
    """
    if len(text) <= TEXT_CHARS:
        return text
    half = TEXT_CHARS // 2
    return f"{text[:half]}\n[{len(text) - TEXT_CHARS:,} characters left out]\n{text[-half:]}"

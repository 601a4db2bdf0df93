"""Work with a step and a call in it, that repeats what it was told in its result, or in its error."""

from pydantic import BaseModel, ConfigDict

from harness.kinds import Context, Permanent, kind


class Said(BaseModel):
    """What to repeat, and whether as an error."""

    model_config = ConfigDict(extra="forbid")

    words: str
    fail: bool = False


class Repeated(BaseModel):
    """What was said."""

    words: str


@kind("route.traced", pool="tool_read", input=Said, output=Repeated, resources={"tool:http": 1}, timeout_s=20)
def repeat(ctx: Context, payload: Said) -> Repeated:
    """Repeat it from within a step and a call."""

    def think() -> str:
        return ctx.call("tool:http", lambda: payload.words)

    words = ctx.step("think", think)
    ctx.emit(words)
    if payload.fail:
        raise Permanent(f"what you said: {words}")
    return Repeated(words=words)

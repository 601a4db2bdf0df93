"""`bench.parent`: spawns children that do nothing, and gathers them."""

from pydantic import BaseModel

from harness.kinds import Context, kind


class Family(BaseModel):
    """How many children."""

    children: int


class Gathered(BaseModel):
    """How many of them succeeded."""

    succeeded: int


@kind("bench.parent", pool="tool_read", input=Family, output=Gathered, timeout_s=600)
def parent(ctx: Context, payload: Family) -> Gathered:
    """Spawn, wait, count."""
    batch = ctx.spawn("noop", [{"i": i} for i in range(payload.children)])
    return Gathered(succeeded=sum(child.succeeded for child in ctx.gather(batch)))

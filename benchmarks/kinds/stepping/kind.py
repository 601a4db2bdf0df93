"""`bench.stepping`: steps that do nothing, each timed by the kind itself."""

import time

from pydantic import BaseModel

from benchmarks import effects
from harness.kinds import Context, kind

STEPS = 100


class Stepping(BaseModel):
    """The arguments of effects.body."""

    tag: str
    i: int
    ts: float
    sleep_s: float


class Times(BaseModel):
    """What each step took, in milliseconds."""

    ms: list[float]


@kind("bench.stepping", pool="tool_read", input=Stepping, output=Times, timeout_s=120)
def stepping(ctx: Context, payload: Stepping) -> Times:
    """Take STEPS steps, one after the other."""
    started_s = time.time()
    ms = []
    for number in range(STEPS):
        began_s = time.perf_counter()
        ctx.step(f"step {number}", lambda number=number: number)  # type: ignore[misc]  # mypy can't infer the default
        ms.append(1000 * (time.perf_counter() - began_s))
    effects.write(effects.DONE, payload.tag, payload.i, payload.ts, started_s, time.time())
    return Times(ms=ms)

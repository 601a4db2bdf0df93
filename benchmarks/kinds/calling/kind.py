"""`bench.call`: one call to the provider emulator through `ctx.call`, with an estimate of its tokens as cost."""

import time

from pydantic import BaseModel

from benchmarks import asking, effects
from harness.kinds import Context, kind
from harness.kinds.calling import Calling

RESOURCE = "llm:default"
EST_S = 5.0


class Question(BaseModel):
    """The arguments of effects.body; `sleep_s` is how long the body works besides the call."""

    tag: str
    i: int
    ts: float
    sleep_s: float = 0.0


@kind("bench.call", pool="llm", input=Question, resources={RESOURCE: 1}, timeout_s=600, est_s=EST_S)
def calling(ctx: Context, payload: Question) -> None:
    """Ask the provider, tell what it used, leave a line."""
    started_s = time.time()

    def ask(call: Calling) -> None:
        answer = asking.ask(payload.tag, payload.i, payload.ts)
        call.headers(answer.headers)
        call.used(answer.tokens)

    ctx.call(RESOURCE, ask, cost=asking.estimate_of(payload.i))
    if payload.sleep_s:
        time.sleep(payload.sleep_s)
    effects.write(effects.DONE, payload.tag, payload.i, payload.ts, started_s, time.time())

"""`bench.target`: holds a connection of the target `db:main` for a while, and tells how long it waited for it."""

import time

from pydantic import BaseModel

from benchmarks import effects
from benchmarks.peers import GOT
from harness.kinds import Context, kind

TARGET = "db:main"


class Holding(BaseModel):
    """The arguments of effects.body; `sleep_s` is how long the connection is held."""

    tag: str
    i: int
    ts: float
    sleep_s: float


@kind("bench.target", pool="target", input=Holding, resources={TARGET: 1}, timeout_s=60, est_s=0.5)
def targeting(ctx: Context, payload: Holding) -> None:
    """Hold a connection, let the target itself wait, leave two lines."""
    asked_s = time.time()
    with ctx.target(TARGET) as connection:
        got_s = time.time()
        connection.execute("SELECT pg_sleep(%s)", (payload.sleep_s,))
    effects.write(GOT, payload.tag, payload.i, asked_s, got_s, time.time())
    effects.write(effects.DONE, payload.tag, payload.i, payload.ts, asked_s, time.time())

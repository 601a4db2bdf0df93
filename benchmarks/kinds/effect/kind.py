"""`bench.effect.POOL`, `bench.steps.POOL`, `bench.brief`: work whose every execution and effect a receiver records.

The receiver stands outside of Harness: HARNESS_BENCH_RECEIVER is its host:port (benchmarks.chaos.receiver). An effect
goes through `ctx.call`, with `ctx.token`, as a webhook would; its moment is taken right after the fence check of
`ctx.call`. Without the variable the kinds fail: they are for `script/bench chaos`.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.kinds import Context, Permanent, Transient, kind

VARIABLE = "HARNESS_BENCH_RECEIVER"
RESOURCES = {
    "tool_write": "tool:webhook",
    "tool_read": "tool:http",
    "llm": "llm:default",
    "cpu": "tool:webhook",
    "ingest": "tool:webhook",
}
CHECK_EVERY_S = 0.1
ANSWER_S = 60.0  # longer than any SIGSTOP of a run: the receiver itself is never stopped
DEAF_TIMEOUT_S = 4.0  # of the kind that may be deaf, so that its time limit comes while it is


class Deed(BaseModel):
    """What to do: `effects` of them in the middle of `hold_s` seconds, after the first `fails` executions failed."""

    model_config = ConfigDict(extra="forbid")

    i: int = Field(ge=0)
    hold_s: float = Field(default=0.0, ge=0, le=120)
    effects: int = Field(default=1, ge=0, le=10)
    fails: int = Field(default=0, ge=0, le=10)
    how: Literal["transient", "permanent", "deaf"] = "transient"


class Done(BaseModel):
    """The number of the work that was done."""

    i: int


class Visit:
    """One execution, as a connection to the receiver. `number`: the how manieth of its token."""

    def __init__(self, connection: socket.socket, opening: str) -> None:
        self._file = connection.makefile("rw", encoding="ascii", newline="\n")
        self.number = int(self._say(opening))

    def effect(self, n: int, token: str = "") -> str:
        """Do an effect, in a step under a token of its own: it is done when the receiver has written it down."""
        return self._say(f"effect {n} {time.time():.6f} {token}".rstrip())

    def tell(self, what: str, *values: str) -> int:
        """Tell what this execution was told (words without blanks). Returns the how manieth time of its token."""
        return int(self._say(f"tell {what} {time.time():.6f} {' '.join(values)}".rstrip()))

    def end(self) -> None:
        """Say that it is over: exactly when, whenever the receiver gets to read it."""
        with contextlib.suppress(OSError):
            self._file.write(f"end {time.time():.6f}\n")
            self._file.flush()

    def _say(self, line: str) -> str:
        self._file.write(line + "\n")
        self._file.flush()
        answer = self._file.readline().strip()
        if not answer:
            raise ConnectionError("the receiver has gone")
        return answer


@contextmanager
def visiting(ctx: Context, deed: Deed, pool: str) -> Iterator[Visit]:
    """Be visible to the receiver from here to the end of the block, or of the process."""
    address = os.environ.get(VARIABLE)
    if not address:
        raise Permanent(f"{VARIABLE} names no receiver; these kinds are for script/bench chaos")
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_S) as connection:
        ctx.checkpoint()
        visit = Visit(connection, f"begin {ctx.token} {deed.i} {pool} {os.getpid()} {time.time():.6f}")
        try:
            yield visit
        finally:
            visit.end()


def act(ctx: Context, deed: Deed, pool: str) -> Done:
    """Hold the slot, fail as often as asked, do the effects, hold on."""
    with visiting(ctx, deed, pool) as visit:
        if deed.how == "deaf":
            time.sleep(deed.hold_s)  # no look at the context: past its time limit it can't be stopped
            ctx.checkpoint()
        hold(ctx, deed.hold_s / 2)
        if visit.number <= deed.fails and deed.how == "transient":
            raise Transient(f"execution {visit.number} of {deed.fails} that fail, as asked")
        if deed.how == "permanent":
            raise Permanent("fails for good, as asked")
        for n in range(deed.effects):
            ctx.call(RESOURCES[pool], lambda n=n: visit.effect(n))
        hold(ctx, deed.hold_s / 2)
    return Done(i=deed.i)


def act_in_steps(ctx: Context, deed: Deed, pool: str) -> Done:
    """Do each effect in a step, and hold the slot before and after it, also between effect and record."""
    rest_s = deed.hold_s / (3 * deed.effects)
    with visiting(ctx, deed, pool) as visit:
        for n in range(deed.effects):
            hold(ctx, rest_s)
            if n == 1 and visit.number <= deed.fails:
                raise Transient(f"execution {visit.number} of {deed.fails} that fail, as asked")
            ctx.step(f"write {n}", partial(write, ctx, visit, RESOURCES[pool], n, rest_s))
            hold(ctx, rest_s)
    return Done(i=deed.i)


def write(ctx: Context, visit: Visit, resource: str, n: int, rest_s: float = 0.0) -> str:
    """Do an effect under its step's own token, and rest before the step is recorded: a step's `fn`."""
    token = ctx.token
    answer = ctx.call(resource, lambda: visit.effect(n, token))
    hold(ctx, rest_s)
    return answer


def hold(ctx: Context, seconds: float) -> None:
    """Hold the slot so long, and heed the wish to stop."""
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        ctx.checkpoint()
        time.sleep(min(left_s, CHECK_EVERY_S))


def _register(pool: str) -> None:
    @kind(f"bench.effect.{pool}", pool=pool, input=Deed, output=Done, resources={RESOURCES[pool]: 1}, timeout_s=60)
    def effect(ctx: Context, deed: Deed) -> Done:
        return act(ctx, deed, pool)

    effect.__qualname__ = f"effect_{pool}"

    @kind(f"bench.steps.{pool}", pool=pool, input=Deed, output=Done, resources={RESOURCES[pool]: 1}, timeout_s=60)
    def steps(ctx: Context, deed: Deed) -> Done:
        return act_in_steps(ctx, deed, pool)

    steps.__qualname__ = f"steps_{pool}"


for _pool in RESOURCES:
    _register(_pool)


@kind(
    "bench.deaf",
    pool="tool_read",
    input=Deed,
    output=Done,
    resources={RESOURCES["tool_read"]: 1},
    timeout_s=DEAF_TIMEOUT_S,
    max_attempts=2,
)
def deaf(ctx: Context, deed: Deed) -> Done:
    """Work past its time limit and heed nothing: its lease becomes a zombie until the thread returns."""
    return act(ctx, deed, "tool_read")


@kind("bench.brief", pool="db", input=Deed, output=Done, bundle=True, est_s=0.005, timeout_s=30)
def brief(ctx: Context, deed: Deed) -> Done:
    """Short work that shares a slot: one effect behind the same fence, and no call, as a bundle promises."""
    with visiting(ctx, deed, "db") as visit:
        ctx.checkpoint()
        visit.effect(0)
    return Done(i=deed.i)

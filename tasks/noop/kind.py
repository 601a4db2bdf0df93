"""Kinds for benchmarks and fault demos: nothing, nothing unbundled, a sleep, and every way of going wrong.

With HARNESS_BENCH_LOG set to a folder, each execution appends one line to `<folder>/<pid>.rec`:
`D tag i ts start end pid`, times in Unix seconds, `ts` as submitted; what lasts writes the same line with `S` when
it starts. The lines are counted and timed by the benchmark, so that no counter of Harness's own is believed.
"""

import os
import time
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.kinds import Context, Permanent, Transient, kind

CHECK_EVERY_S = 0.2  # between two looks at whether to stop; wishes themselves are read every 0.5 s
HANG_S = 600.0  # a hang longer than any time-out of these kinds
_log: dict[int, int] = {}  # process id -> descriptor: a forked child opens a file of its own


class Mark(BaseModel):
    """What a benchmark writes on a task to find it again in the log."""

    model_config = ConfigDict(extra="forbid")

    tag: str = Field(default="noop", pattern=r"^[A-Za-z0-9_.:-]{1,40}$", description="the series it belongs to")
    i: int = Field(default=0, ge=0, le=2**53, description="its number in the series")
    ts: float = Field(default=0.0, ge=0, le=1e11, allow_inf_nan=False, description="when it was submitted, Unix s")


class Sleep(Mark):
    """A mark, and how long to sleep."""

    sleep_s: float = Field(default=1.0, ge=0, le=600, allow_inf_nan=False, description="seconds")


class Slept(BaseModel):
    """How long the sleep took, in seconds."""

    slept_s: float


class Fault(Sleep):
    """How to go wrong, after `sleep_s` seconds; a hang lasts `sleep_s`, or 10 minutes when that is 0."""

    sleep_s: float = Field(default=0.0, ge=0, le=600, allow_inf_nan=False, description="seconds")
    fail: Literal["", "transient", "permanent", "bug", "hang", "exit", "notjson"] = ""


def record(what: Literal["S", "D"], mark: Mark, start_s: float, end_s: float) -> None:
    """Append one line to this process's log, when HARNESS_BENCH_LOG names a folder. One write, so lines stay whole."""
    folder = os.environ.get("HARNESS_BENCH_LOG")
    if not folder:
        return
    pid = os.getpid()
    descriptor = _log.get(pid)
    if descriptor is None:
        path = os.path.join(folder, f"{pid}.rec")
        # Two threads may both get here: each opens the file, one descriptor stays, O_APPEND keeps both right.
        descriptor = _log.setdefault(pid, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
    os.write(descriptor, f"{what} {mark.tag} {mark.i} {mark.ts:.6f} {start_s:.6f} {end_s:.6f} {pid}\n".encode())


@kind("noop", pool="db", input=Mark, bundle=True, est_s=0.001, timeout_s=30)
@kind("noop.single", pool="db", input=Mark, est_s=0.001, timeout_s=30)
def noop(ctx: Context, payload: Mark) -> None:
    """Do nothing but leave the line."""
    start_s = time.time()
    record("D", payload, start_s, time.time())


@kind("noop.sleep", pool="tool_read", input=Sleep, output=Slept, timeout_s=630)
def sleep(ctx: Context, payload: Sleep) -> Slept:
    """Sleep, and stop early when asked to."""
    start_s = time.time()
    if payload.sleep_s:
        record("S", payload, start_s, start_s)
    _sleep(ctx, payload.sleep_s)
    end_s = time.time()
    record("D", payload, start_s, end_s)
    return Slept(slept_s=end_s - start_s)


@kind("noop.fault", pool="tool_read", input=Fault, timeout_s=10, max_attempts=3)
def fault(ctx: Context, payload: Fault) -> object:
    """Go wrong in the way that the payload names."""
    start_s = time.time()
    record("S", payload, start_s, start_s)
    if payload.fail == "hang":
        time.sleep(payload.sleep_s or HANG_S)  # deaf on purpose: no look at the context
        return None
    _sleep(ctx, payload.sleep_s)
    match payload.fail:
        case "transient":
            raise Transient("noop.fault: transient, as asked")
        case "permanent":
            raise Permanent("noop.fault: permanent, as asked")
        case "bug":
            raise RuntimeError("noop.fault: a bug, as asked")
        case "exit":
            os._exit(13)
        case "notjson":
            return {"handle": object()}
        case _:
            record("D", payload, start_s, time.time())
            return None


def _sleep(ctx: Context, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        ctx.checkpoint()
        time.sleep(min(left_s, CHECK_EVERY_S))

"""Work whose every effect is a line `WHAT I NUMBER UNIX_S PID` in a file outside the system, one file a process.

WHAT: `begun` before anything else, `effect` (through `ctx.call`, where there is a resource) and `ended` at the end.
"""

import os
import re
import signal
import time
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from harness.kinds import Context, kind

FOLDER = "RECOVERY_EFFECTS"


class Work(BaseModel):
    """`i`: its number in the test. It leaves `effects` lines, `pause_s` (deaf) after each."""

    i: int = 0
    effects: int = 1
    pause_s: float = 0.0


class Killing(Work):
    """It kills its process when `company` tasks have begun in it, and after `pause_s` in any case."""

    company: int = 0


def leave(what: str, i: int, number: int = 0) -> None:
    """Append one line, in one write."""
    path = os.path.join(os.environ[FOLDER], f"{os.getpid()}.effects")
    with open(path, "ab", buffering=0) as file:
        file.write(f"{what} {i} {number} {time.time():.6f} {os.getpid()}\n".encode())


def _work(ctx: Context, payload: Work) -> None:
    leave("begun", payload.i)
    for number in range(payload.effects):
        ctx.call("tool:http", partial(leave, "effect", payload.i, number))
        time.sleep(payload.pause_s)
    leave("ended", payload.i)


@kind("recovery.thread", pool="tool_read", input=Work, resources={"tool:http": 1}, timeout_s=300)
def in_a_thread(ctx: Context, payload: Work) -> None:
    """Leave lines from a thread."""
    _work(ctx, payload)


@kind("recovery.child", pool="ingest", input=Work, resources={"tool:http": 1}, timeout_s=300)
def in_a_child(ctx: Context, payload: Work) -> None:
    """Leave lines from a prefork child."""
    _work(ctx, payload)


def _in_steps(ctx: Context, payload: Work) -> None:
    first = not _lines_of(payload.i, "begun")
    leave("begun", payload.i)
    for number in range(payload.effects):
        ctx.step(f"write {number}", partial(_write, ctx, payload, number, stay=first and number == 1))
    leave("ended", payload.i)


def _write(ctx: Context, payload: Work, number: int, *, stay: bool) -> int:
    """Leave a line, as a write tool does, with the token that it had; then, the first time, stay for `pause_s`."""
    path = os.path.join(os.environ[FOLDER], f"{os.getpid()}.tokens")
    with open(path, "ab", buffering=0) as file:
        file.write(f"{payload.i} {number} {ctx.token}\n".encode())
    ctx.call("tool:http", partial(leave, "effect", payload.i, number))
    if stay:
        time.sleep(payload.pause_s)
    return number


def _lines_of(i: int, what: str) -> int:
    texts = [path.read_text() for path in Path(os.environ[FOLDER]).glob("*.effects")]
    return sum(line.startswith(f"{what} {i} ") for text in texts for line in text.splitlines())


@kind("recovery.steps", pool="tool_read", input=Work, resources={"tool:http": 1}, timeout_s=300)
def steps_in_a_thread(ctx: Context, payload: Work) -> None:
    """Leave each line in a step, from a thread."""
    _in_steps(ctx, payload)


@kind("recovery.child_steps", pool="ingest", input=Work, resources={"tool:http": 1}, timeout_s=300)
def steps_in_a_child(ctx: Context, payload: Work) -> None:
    """Leave each line in a step, from a prefork child."""
    _in_steps(ctx, payload)


class Family(Work):
    """It spawns `children` of recovery.thread, stays for `pause_s` the first time, and gathers them."""

    children: int = 3


@kind("recovery.parent", pool="tool_read", input=Family, timeout_s=300)
def parent(ctx: Context, payload: Family) -> int:
    """Leave lines as it begins, has spawned, and has gathered."""
    first = not _lines_of(payload.i, "begun")
    leave("begun", payload.i)
    ctx.spawn("recovery.thread", [{"i": 100 + n} for n in range(payload.children)])
    leave("effect", payload.i, 1)
    if first:
        time.sleep(payload.pause_s)
    gathered = ctx.gather()
    leave("ended", payload.i)
    return sum(one.succeeded for one in gathered)


@kind("recovery.asking", pool="tool_read", input=Work, resources={"tool:http": 1}, timeout_s=300)
def asking(ctx: Context, payload: Work) -> str:
    """Leave a line in a step, ask, leave the answer, then a line in a step in which the first attempt stays."""
    ctx.step("before", partial(_write, ctx, payload, 0, stay=False))
    answer = ctx.ask("Which way?", choices=["left", "right"])
    first = not _lines_of(payload.i, answer)
    leave(answer, payload.i)
    ctx.step("after", partial(_write, ctx, payload, 1, stay=first))
    return answer


@kind("recovery.patient", pool="tool_read", input=Work, timeout_s=300)
def patient(ctx: Context, payload: Work) -> None:
    """Leave one line and end when asked to, so that a test ends soon."""
    leave("begun", payload.i)
    until_s = time.monotonic() + payload.pause_s
    while time.monotonic() < until_s:
        ctx.checkpoint()
        time.sleep(0.05)
    leave("ended", payload.i)


@kind("recovery.killer", pool="tool_read", input=Killing, timeout_s=60)
def killer(ctx: Context, payload: Killing) -> None:
    """Take the whole process along."""
    leave("begun", payload.i)
    until_s = time.monotonic() + payload.pause_s
    while time.monotonic() < until_s and _begun_here() < payload.company:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def _begun_here() -> int:
    with open(os.path.join(os.environ[FOLDER], f"{os.getpid()}.effects"), "rb") as file:
        return sum(line.startswith(b"begun ") for line in file)


@kind("recovery.stuck", pool="tool_read", input=Work, timeout_s=0.5, max_attempts=2)
def stuck(ctx: Context, payload: Work) -> None:
    """Sit in one call of C that no Python stops; past its time limit from the start."""
    leave("begun", payload.i)
    time.sleep(payload.pause_s)
    leave("ended", payload.i)


@kind("recovery.frozen", pool="tool_read", input=Work, timeout_s=5)
def frozen(ctx: Context, payload: Work) -> None:
    """Keep the interpreter to itself in one call of C, for longer than any test: no other thread of it runs."""
    leave("begun", payload.i)
    re.match(r"(a+)+$", "a" * 64 + "b")


@kind("recovery.row", pool="tool_read", input=Work, timeout_s=300)
def row(ctx: Context, payload: Work) -> None:
    """Write a row in a transaction that stays open for `pause_s`."""
    leave("begun", payload.i)
    with ctx.db() as connection:
        connection.execute("INSERT INTO recovery_row VALUES (%s, %s)", (payload.i, os.getpid()))
        time.sleep(payload.pause_s)
    leave("ended", payload.i)

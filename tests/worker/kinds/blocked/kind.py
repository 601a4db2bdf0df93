"""A call that is stuck in a server's silence: nothing reaches it but its end."""

import time
from pathlib import Path

from pydantic import BaseModel

from harness.kinds import Context, kind


class Silence(BaseModel):
    """How long the server says nothing, and a file that tells what the call did afterwards."""

    silent_s: float
    told: str = ""


class Heard(BaseModel):
    """It came to its end."""

    heard: bool = True


@kind("child.blocked", pool="ingest", input=Silence, output=Heard, resources={"tool:http": 1}, timeout_s=5)
def blocked_child(ctx: Context, payload: Silence) -> Heard:
    """Call in a prefork child."""
    return _call(ctx, payload)


@kind("test.blocked", pool="tool_read", input=Silence, output=Heard, resources={"tool:http": 1}, timeout_s=120)
def blocked(ctx: Context, payload: Silence) -> Heard:
    """Call on a thread."""
    return _call(ctx, payload)


def _call(ctx: Context, payload: Silence) -> Heard:
    """Call once, and then wish to do more."""

    def listen() -> None:
        time.sleep(payload.silent_s)
        if payload.told:
            with Path(payload.told).open("a") as file:
                file.write("landed ")
        ctx.checkpoint()
        if payload.told:
            with Path(payload.told).open("a") as file:
                file.write("went on")

    ctx.call("tool:http", listen)
    return Heard()

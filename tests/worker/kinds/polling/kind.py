"""Work that asks for itself whether it shall stop, as a long loop does, and then ends at its checkpoint."""

import time

from pydantic import BaseModel

from harness.kinds import Context, kind


class Patience(BaseModel):
    """How long it goes on when nobody stops it."""

    polls_s: float


class Unstopped(BaseModel):
    """It came to its end."""

    unstopped: bool = True


@kind("child.polling", pool="ingest", input=Patience, output=Unstopped, timeout_s=120)
def polling_child(ctx: Context, payload: Patience) -> Unstopped:
    """Ask in a prefork child."""
    return _poll(ctx, payload)


@kind("test.polling", pool="tool_read", input=Patience, output=Unstopped, timeout_s=120)
def polling(ctx: Context, payload: Patience) -> Unstopped:
    """Ask on a thread."""
    return _poll(ctx, payload)


def _poll(ctx: Context, payload: Patience) -> Unstopped:
    until_s = time.monotonic() + payload.polls_s
    while time.monotonic() < until_s:
        if ctx.cancelled():
            ctx.checkpoint()
            raise AssertionError("told to stop, and then let through its checkpoint")
        time.sleep(0.01)
    return Unstopped()

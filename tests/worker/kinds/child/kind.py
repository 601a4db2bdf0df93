"""Work for a prefork child: polite (stops when asked), deaf (doesn't look), stuck or unkind (no signal reaches it)."""

import signal
import time

from pydantic import BaseModel

from harness.kinds import Context, kind


class Nap(BaseModel):
    """How long, and whether to listen."""

    nap_s: float
    deaf: bool = False
    stuck: bool = False
    unkind: bool = False


class Rested(BaseModel):
    """It came to its end."""

    rested: bool = True


@kind("child.nap", pool="ingest", input=Nap, output=Rested, timeout_s=120)
def nap(ctx: Context, payload: Nap) -> Rested:
    """Sleep in a child."""
    if payload.stuck:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # Celery's soft time limit
    if payload.unkind:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if payload.unkind or payload.deaf or payload.stuck:
        time.sleep(payload.nap_s)
        return Rested()
    until_s = time.monotonic() + payload.nap_s
    while time.monotonic() < until_s:
        ctx.checkpoint()
        time.sleep(0.05)
    return Rested()

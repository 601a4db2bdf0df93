"""`bench.wait.POOL` for every pool that takes work: what a worker of that pool really held is read from its lines."""

import tomllib
from pathlib import Path

from pydantic import BaseModel

from benchmarks import effects
from harness.kinds import Context, kind
from harness.policy.settings import QUARANTINE, SYSTEM

_RESOURCES = Path(__file__).resolve().parents[3] / "config" / "resources.toml"
POOLS = tuple(name for name in tomllib.loads(_RESOURCES.read_text())["pools"] if name not in (QUARANTINE, SYSTEM))


class Wait(BaseModel):
    """The arguments of effects.body."""

    tag: str
    i: int
    ts: float
    sleep_s: float


def wait(ctx: Context, payload: Wait) -> None:
    """Wait `sleep_s` seconds between two lines of the effect log; deaf to wishes, like a call that can't be stopped."""
    effects.body(payload.tag, payload.i, payload.ts, payload.sleep_s)


for _pool in POOLS:
    kind(f"bench.wait.{_pool}", pool=_pool, input=Wait, timeout_s=120, est_s=2.0)(wait)

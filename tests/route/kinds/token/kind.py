"""Work that leaves its idempotency token in a file, a line an attempt, and fails for good when told to."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from harness.kinds import Context, Permanent, kind


class Told(BaseModel):
    """Where to leave the token, and whether to fail."""

    model_config = ConfigDict(extra="forbid")

    folder: str
    name: str
    fail: bool


@kind("route.token", pool="tool_read", input=Told, timeout_s=10)
def leave(ctx: Context, payload: Told) -> None:
    """Leave the token; then fail, or not."""
    with (Path(payload.folder) / payload.name).open("a") as file:
        file.write(f"{ctx.token}\n")
    if payload.fail:
        raise Permanent("route.token: for good, as asked")

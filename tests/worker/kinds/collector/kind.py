"""Kinds that tell of the garbage collector of the process that they run in."""

import gc

from pydantic import BaseModel

from harness.kinds import Context, kind


class Asked(BaseModel):
    """No input."""


class Collector(BaseModel):
    """Whether it collects, and how many objects it leaves alone for good."""

    enabled: bool
    frozen: int


@kind("test.collector", pool="tool_read", input=Asked, output=Collector)
def on_a_thread(ctx: Context, payload: Asked) -> Collector:
    """Tell of a worker of threads."""
    return Collector(enabled=gc.isenabled(), frozen=gc.get_freeze_count())


@kind("child.collector", pool="ingest", input=Asked, output=Collector)
def in_a_child(ctx: Context, payload: Asked) -> Collector:
    """Tell of a prefork child."""
    return Collector(enabled=gc.isenabled(), frozen=gc.get_freeze_count())

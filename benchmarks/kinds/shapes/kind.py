"""`bench.family`, `bench.question`, `bench.talk`: work that waits for children, asks people, or speaks while it runs.

What they get back (which child ended how, which choice was made) they tell the receiver (benchmarks.kinds.effect) in
each attempt, so that the checker of chaos can compare it with what became of the children, and with what people said.
"""

from functools import partial
from typing import Literal

from pydantic import Field

from benchmarks.chaos import speech
from benchmarks.chaos.births import families_of, leaves_of
from benchmarks.kinds.effect.kind import RESOURCES, Deed, Done, Visit, hold, visiting, write
from harness.kinds import Child, Context, Transient, kind

POOL = "tool_read"
NEEDS = {RESOURCES[POOL]: 1}
STEPPING, PLAIN = "bench.steps.tool_write", "bench.effect.tool_read"  # what children are; only the latter fail
CHOICES = ("left", "middle", "right")


class Family(Deed):
    """How many children do one thing each, and how many spawn `children` themselves, `depth` generations deep."""

    children: int = Field(ge=1, le=20)
    families: int = Field(default=0, ge=0, le=5)
    depth: int = Field(default=0, ge=0, le=3)
    policy: Literal["all", "any"] = "all"
    failing: int = Field(default=0, ge=0, le=20)


class Question(Deed):
    """How many questions, one after the other, and what becomes of one that nobody answers."""

    asks: int = Field(default=1, ge=1, le=3)
    timeout_s: float | None = Field(default=None, ge=1, le=600)
    on_timeout: Literal["pause", "cancel"] = "pause"
    deny: Literal["cancel", "answer"] = "answer"


class Talk(Deed):
    """How many lines to say in `hold_s` seconds."""

    lines: int = Field(ge=1, le=1000)


@kind("bench.family", pool=POOL, input=Family, output=Done, resources=NEEDS, timeout_s=60)
def family(ctx: Context, deed: Family) -> Done:
    """Write, spawn, wait for them without a slot, tell how each ended, write again."""
    with visiting(ctx, deed, POOL) as visit:
        hold(ctx, deed.hold_s / 2)
        _write(ctx, visit, 0)
        some = [_leaf(deed, n, i) for n, i in enumerate(leaves_of(deed.i, deed.children))]
        batches = [ctx.spawn(PLAIN if deed.failing or deed.i % 3 == 0 else STEPPING, some, name="leaves")]
        if deed.families:
            below = [_below(deed, i) for i in families_of(deed.i, deed.families)]
            batches.append(ctx.spawn("bench.family", below, name="families"))
        children = ctx.gather(*batches, policy=deed.policy)
        _fail_sometimes(deed, visit.tell("gathered", *map(_told, children)))
        for n in range(1, deed.effects):
            _write(ctx, visit, n)
        hold(ctx, deed.hold_s / 2)
    return Done(i=deed.i)


@kind("bench.question", pool=POOL, input=Question, output=Done, resources=NEEDS, timeout_s=60)
def question(ctx: Context, deed: Question) -> Done:
    """Write, ask, tell what the answer was, write again."""
    with visiting(ctx, deed, POOL) as visit:
        hold(ctx, deed.hold_s / 2)
        _write(ctx, visit, 0)
        for n in range(deed.asks):
            answer = ctx.ask(
                f"Work {deed.i}: which way?",
                choices=CHOICES,
                timeout_s=deed.timeout_s,
                on_timeout=deed.on_timeout,
                deny=deed.deny,
                name=f"ask-{n}",
            )
            _fail_sometimes(deed, visit.tell(f"ask-{n}", answer))
        for n in range(1, deed.effects):
            _write(ctx, visit, n)
        hold(ctx, deed.hold_s / 2)
    return Done(i=deed.i)


@kind("bench.talk", pool=POOL, input=Talk, output=Done, resources=NEEDS, timeout_s=60)
def talk(ctx: Context, deed: Talk) -> Done:
    """Say line after line, and write at the end."""
    with visiting(ctx, deed, POOL) as visit:
        for n in range(deed.lines):
            ctx.emit(speech.line(n))
            hold(ctx, deed.hold_s / deed.lines)
        for n in range(deed.effects):
            _write(ctx, visit, n)
    return Done(i=deed.i)


def _write(ctx: Context, visit: Visit, n: int) -> None:
    ctx.step(f"write {n}", partial(write, ctx, visit, RESOURCES[POOL], n))


def _leaf(deed: Family, n: int, i: int) -> dict[str, object]:
    leaf = Deed(i=i, hold_s=0.2, effects=2, how="permanent" if n < deed.failing else "transient")
    return leaf.model_dump(mode="json")


def _below(deed: Family, i: int) -> dict[str, object]:
    deeper = deed.families if deed.depth > 1 else 0
    family = Family(i=i, hold_s=0.1, effects=2, children=deed.children, families=deeper, depth=max(0, deed.depth - 1))
    return family.model_dump(mode="json")


def _told(child: Child) -> str:
    return f"{child.task_id}:{child.state}:{child.output['i'] if child.succeeded else '-'}"


def _fail_sometimes(deed: Deed, told: int) -> None:
    """Fail after the first `fails` times of being told: a later attempt must be told the same."""
    if told <= deed.fails:
        raise Transient(f"told {told} of {deed.fails} times that fail, as asked")

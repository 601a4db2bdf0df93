"""Expected starts and ends in answers, beside tasks and runs: ranges with their age, or a reason instead."""

from pydantic import AwareDatetime, BaseModel, Field

from harness.engine.expect import Foreseen, Span


class SpanOut(BaseModel):
    """A moment as a range: as likely before `p50` as after it; 9 of 10 times before `p90`."""

    p50: AwareDatetime
    p90: AwareDatetime | None = Field(description="null: not in sight")


class EtaOut(BaseModel):
    """What is expected, as the last pass made it; a reason instead where nobody can tell. Ranges, never promises."""

    position: int | None = Field(description="among what waits in its pool, in the order in which it should start")
    start: SpanOut | None = Field(description="null: it has begun, or see `reason`")
    end: SpanOut | None
    reason: str | None = Field(
        description="why there is no range: a code of `why`, or `soon`, `far`, `withdrawn`, `stale`, `none`"
    )
    words: str | None = Field(description="the reason in words")
    moved: str | None = Field(
        description="what let the range jump since the last pass: slots, paused, limits or level; null: it moves slowly"
    )
    at: AwareDatetime | None = Field(description="when it was made; a pass comes every 10 s")
    age_s: float | None


def eta_out(found: Foreseen | None) -> EtaOut | None:
    """Return what is expected of a task or run."""
    if found is None:
        return None
    return EtaOut(
        position=found.position,
        start=_span(found.start),
        end=_span(found.end),
        reason=found.reason,
        words=found.words,
        moved=found.moved,
        at=found.at,
        age_s=found.age_s,
    )


def _span(found: Span | None) -> SpanOut | None:
    return None if found is None else SpanOut(p50=found.p50, p90=found.p90)

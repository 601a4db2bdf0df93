"""What `report.research` and `report.analyse` take and give."""

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from harness.kinds import models

PASSAGES_MOST = 100
Line = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f]+$")]


Model = Annotated[str | None, AfterValidator(models.check)]


class Source(BaseModel):
    """A passage that was found; `number` is how the report cites it."""

    number: int
    document_id: str
    name: str
    title: str
    text: str


class Angle(BaseModel):
    """What one analyst looks for."""

    model_config = ConfigDict(extra="forbid")

    name: Line
    search: Line | None = Field(default=None, description="words of its own to search for; else the report's")


ANGLES = [Angle(name=name) for name in ("what is known", "what speaks against it", "what is missing")]


class Research(BaseModel):
    """The question, where to search, and who says yes."""

    model_config = ConfigDict(extra="forbid")

    question: Line
    search: Line | None = Field(default=None, description="words to search for, as of rag.search; else the question")
    tags: list[Annotated[str, Field(min_length=1, max_length=60)]] = Field(default_factory=list, max_length=20)
    passages: int = Field(default=12, ge=1, le=50, description="for each angle, at most")
    angles: list[Angle] = Field(default=ANGLES, min_length=1, max_length=20, description="an analyst each")
    model: Model = None
    approve: bool = Field(default=True, description="ask a person before the report is kept")
    approve_within_s: float | None = Field(default=86_400, gt=0, le=30 * 86_400, description="null: for ever")

    @model_validator(mode="after")
    def _not_too_much(self) -> Self:
        if len(self.angles) * self.passages > PASSAGES_MOST:
            raise ValueError(f"angles and passages: {PASSAGES_MOST} passages at most for all angles together")
        return self


class Analysis(BaseModel):
    """The input of one analyst: the question, seen from one angle."""

    model_config = ConfigDict(extra="forbid")

    question: Line
    angle: Line
    sources: list[Source] = Field(min_length=1, max_length=50)
    model: Model = None


class Analysed(BaseModel):
    """What an analyst found."""

    angle: str
    text: str
    tokens_in: int
    tokens_out: int


class Report(BaseModel):
    """The report as two artifacts, and what it was made of. `decision`: what the person said; "" when nobody was asked.

    `left_out`: angles whose analyst failed.
    """

    title: str
    decision: str
    sources: list[Source]
    left_out: list[str]
    markdown_artifact_id: str
    html_artifact_id: str
    tokens_in: int
    tokens_out: int

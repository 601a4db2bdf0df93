"""What `eval.batch` and `eval.case` take and give, and the reading of a data set."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.kinds import Permanent, models

CASES_MOST = 2_000
INLINE_MOST = 200
LINE_MAX_BYTES = 65_536

Grader = Literal["contains", "equals", "words", "judge"]
Instruction = Annotated[str, Field(max_length=20_000, pattern=r"^[^\x00]*$", description="told before each prompt")]
Model = Annotated[str | None, AfterValidator(models.check)]
Tokens = Annotated[int, Field(ge=1, le=8_192)]


class Case(BaseModel):
    """One prompt, and what a good answer to it is."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(default="", max_length=60, pattern=r"^[^\x00-\x1f]*$", description="its number when left out")
    prompt: str = Field(min_length=1, max_length=20_000, pattern=r"^[^\x00]*$")
    expect: str = Field(min_length=1, max_length=4_000, pattern=r"^[^\x00]*$")
    grade: Grader = "contains"
    least: float = Field(default=0.5, gt=0, le=1, description="the score from which on it passes")
    tag: str = Field(default="", max_length=60, pattern=r"^[^\x00-\x1f]*$", description="the report groups by it")


class Batch(BaseModel):
    """A data set, inline or as an upload of JSON lines, and how to ask."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="evaluation", min_length=1, max_length=100, pattern=r"^[^\x00-\x1f]+$")
    cases: list[Case] | None = Field(default=None, min_length=1, max_length=INLINE_MOST)
    artifact_id: str | None = Field(default=None, max_length=100, description="an upload: one case a line, as JSON")
    instruction: Instruction = ""
    model: Model = None
    max_tokens: Tokens = 512
    share: float = Field(default=1.0, gt=0, le=1, description="of the cases, evenly spread over the data set")

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.cases is None) == (self.artifact_id is None):
            raise ValueError("give either cases or artifact_id")
        return self


class Asked(BaseModel):
    """One case, and how to ask it."""

    model_config = ConfigDict(extra="forbid")

    case: Case
    instruction: Instruction = ""
    model: Model = None
    max_tokens: Tokens = 512


class Graded(BaseModel):
    """A case, asked and graded. `error`: why there is no answer. `form`: the cheaper one that it was asked in."""

    answer: str = ""
    score: float = 0.0
    passed: bool = False
    error: str = ""
    model: str = ""
    form: str = ""
    tokens_in: int = 0
    tokens_out: int = 0


class Group(BaseModel):
    """The cases of one tag."""

    tag: str
    cases: int
    passed: int
    score: float


class Evaluated(BaseModel):
    """How it went. `failed_to_answer`: cases to which the model gave no answer, which count as score 0.

    `left_out`: cases of the data set that weren't asked, for the share or under pressure.
    """

    cases: int
    passed: int
    score: float
    failed_to_answer: int
    left_out: int
    groups: list[Group]
    tokens_in: int
    tokens_out: int
    report_artifact_id: str
    results_artifact_id: str


def cases_of(lines: Iterable[bytes]) -> list[Case]:
    """Read a data set of JSON lines; empty ones don't count. Raises: Permanent naming line and field.

    >>> [case.expect for case in cases_of([b'{"prompt": "a", "expect": "b"}', b"", b'{"prompt": "c", "expect": "d"}'])]
    ['b', 'd']
    """
    found: list[Case] = []
    for number, line in enumerate(lines, start=1):
        if len(line) > LINE_MAX_BYTES:
            raise Permanent(f"artifact_id: line {number} is longer than {LINE_MAX_BYTES:,} bytes")
        if not line.strip():
            continue
        if len(found) == CASES_MOST:
            raise Permanent(f"artifact_id: holds more than {CASES_MOST:,} cases: split it")
        try:
            found.append(Case.model_validate(_json(line, number)))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"])) or "the line"
            raise Permanent(f"artifact_id: line {number}: {field}: {first['msg']}") from None
    if not found:
        raise Permanent("artifact_id: holds no case; give a JSON object with prompt and expect a line")
    return found


def _json(line: bytes, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise Permanent(f"artifact_id: line {number} isn't JSON") from None

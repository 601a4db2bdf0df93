"""What `mcp.agent` and `mcp.agents` take and give."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from harness.kinds import models

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,29}$")]
Text = Annotated[str, Field(max_length=20_000, pattern=r"^[^\x00]*$")]


Model = Annotated[str | None, AfterValidator(models.check)]


class Agent(BaseModel):
    """One agent: what it is told, and which servers' tools it may use. `tools`: of those only these (server__tool)."""

    model_config = ConfigDict(extra="forbid")

    name: Name = "agent"
    instruction: Text = "Use the tools to find out what is asked, then answer briefly."
    question: Text = Field(min_length=1)
    servers: list[Name] = Field(min_length=1, max_length=8)
    tools: list[Annotated[str, Field(min_length=1, max_length=130)]] | None = Field(default=None, max_length=100)
    model: Model = None
    max_turns: int = Field(default=12, ge=1, le=40, description="answers of the model, with or without calls of tools")
    max_tokens: int = Field(default=1_024, ge=1, le=8_192)
    tool_s: float = Field(default=30, ge=0.1, le=120, description="the longest that a tool may take")


class Called(BaseModel):
    """A call of a tool: `ok`, or why not. `refused`: it may not be called, and wasn't."""

    tool: str
    ok: bool
    refused: bool
    error: str


class Answered(BaseModel):
    """What an agent found."""

    name: str
    answer: str
    calls: list[Called]
    turns: int
    tokens_in: int
    tokens_out: int


class Team(BaseModel):
    """Several agents at the same time, and what is made of their answers."""

    model_config = ConfigDict(extra="forbid")

    question: Text = Field(min_length=1)
    agents: list[Agent] = Field(min_length=1, max_length=50)
    model: Model = None
    max_tokens: int = Field(default=1_024, ge=1, le=8_192)


class Member(BaseModel):
    """How an agent's task ended: with its answer, or why without."""

    name: str
    state: str
    answer: str
    error: str


class Concluded(BaseModel):
    """The conclusion, and what it was drawn from."""

    conclusion: str
    members: list[Member]
    tokens_in: int
    tokens_out: int

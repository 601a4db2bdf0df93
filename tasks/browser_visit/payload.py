"""What `browser.visit` takes and gives."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

DEADLINE_MOST_S = 300.0
Selector = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]+$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,59}$")]


class _Action(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Open(_Action):
    """Go to another address."""

    do: Literal["open"]
    url: str = Field(min_length=1, max_length=8_192)


class Click(_Action):
    """Click what the selector finds first, and wait for the page that it leads to, if it does."""

    do: Literal["click"]
    selector: Selector


class Fill(_Action):
    """Write a text into a field."""

    do: Literal["fill"]
    selector: Selector
    text: str = Field(max_length=20_000)


class Press(_Action):
    """Press a key, such as Enter."""

    do: Literal["press"]
    selector: Selector
    key: str = Field(min_length=1, max_length=40)


class Wait(_Action):
    """Wait until something is to be seen."""

    do: Literal["wait"]
    selector: Selector


class Picture(_Action):
    """Keep a picture (PNG) as an artifact: of the window, or of the whole page."""

    do: Literal["screenshot"]
    name: Name = "screenshot"
    whole: bool = False


class Extract(_Action):
    """Read the text, or an attribute, of what the selector finds: of the first, or of all (200 at most)."""

    do: Literal["extract"]
    name: Name
    selector: Selector
    attribute: str = Field(default="", max_length=60, pattern=r"^[A-Za-z0-9_:.-]*$")
    every: bool = False


Action = Annotated[Open | Click | Fill | Press | Wait | Picture | Extract, Field(discriminator="do")]


class Visit(BaseModel):
    """Where to begin, and what to do there, in order. Times in seconds."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=8_192, description="http or https, without credentials")
    actions: list[Action] = Field(default_factory=list, max_length=50)
    deadline_s: float = Field(default=60, ge=1, le=DEADLINE_MOST_S, description="for everything; then all is killed")
    load_s: float = Field(default=30, ge=0.1, le=120, description="the longest that a page may take to load")
    find_s: float = Field(default=5, ge=0.1, le=60, description="the longest to wait for what a selector names")
    width: int = Field(default=1280, ge=200, le=3840)
    height: int = Field(default=800, ge=200, le=2160)


class Kept(BaseModel):
    """A picture that was kept."""

    name: str
    artifact_id: str


class Visited(BaseModel):
    """The page at the end, and what was gathered. `text`: what a reader sees of it, from the beginning.

    `refused`: what pages asked for and didn't get (host:port), because it isn't public.
    """

    url: str
    status: int
    title: str
    text: str
    truncated: bool
    extracted: dict[str, str | list[str]]
    screenshots: list[Kept]
    refused: list[str]

"""`llm.chat`: a conversation's next message by a configured model, shown piece by piece while it is written.

Models, addresses and the names of the variables that hold keys stand in config/models.toml; a key is read when the call
is made and goes nowhere else. The client sends each request once; trying again is the task layer's.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harness.kinds import (
    Calling,
    Context,
    Form,
    OneOf,
    Permanent,
    RateLimited,
    Transient,
    completions,
    estimates,
    kind,
    models,
)
from harness.kinds.models import Access
from tasks.llm_chat import shorter
from tasks.llm_chat.streaming import Reader

MESSAGES = 200
CONTENT_CHARS = 200_000  # of all messages together; the request as a whole has its limit at the door too
CHARS_A_TOKEN = 4  # of an estimate, where the provider counts nothing
TOKENS_A_MESSAGE = 4

_usual = estimates.Usual()


class Message(BaseModel):
    """One message of the conversation."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: str = Field(min_length=1, max_length=CONTENT_CHARS)


class Conversation(BaseModel):
    """The conversation so far; its last message is answered."""

    model_config = ConfigDict(extra="forbid")

    messages: list[Message] = Field(min_length=1, max_length=MESSAGES)
    model: str | None = Field(default=None, max_length=200, description="a configured model; without it: the default")
    max_tokens: int = Field(default=1024, ge=1, le=32_768, description="of the answer, at most")
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)

    _known = field_validator("model")(models.check)

    @model_validator(mode="after")
    def _fits(self) -> "Conversation":
        size = sum(len(message.content) for message in self.messages)
        if size > CONTENT_CHARS:
            raise ValueError(f"messages: {size:,} characters are more than the {CONTENT_CHARS:,} taken here")
        if self.messages[-1].role == "assistant":
            raise ValueError("messages: the last one must not be the assistant's own: there is nothing to answer")
        return self


class Reply(BaseModel):
    """The answer. `usage_estimated`: the provider counted nothing. `usd` null: the model has no price (`warning`)."""

    text: str
    model: str
    finish_reason: str
    tokens_in: int
    tokens_out: int
    usage_estimated: bool
    usd: float | None
    warning: str | None = None


class _Answer:
    """What has come of the answer so far."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.model = ""
        self.finish_reason = ""
        self.usage: tuple[int, int] | None = None

    def take(self, chunk: Any) -> str:
        """Take one chunk of the stream. Returns the text that it adds. Raises: Transient when it is no such chunk."""
        choices = getattr(chunk, "choices", None)
        if not isinstance(choices, list):
            raise Transient("the provider's stream holds something else than pieces of a chat completion")
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self.usage = (chunk.usage.prompt_tokens or 0, chunk.usage.completion_tokens or 0)
        if not choices:
            return ""
        self.finish_reason = choices[0].finish_reason or self.finish_reason
        text = completions.storable((choices[0].delta and choices[0].delta.content) or "")
        self.pieces.append(text)
        return text


def _shorter(payload: Conversation, by: shorter.Shorter) -> Conversation:
    """Return the conversation with its beginning left out, and a shorter answer asked for."""
    kept = shorter.messages([(one.role, one.content) for one in payload.messages], by)
    messages = [payload.messages[at].model_copy(update={"content": content}) for at, content in kept]
    return payload.model_copy(update={"messages": messages, "max_tokens": shorter.tokens(payload.max_tokens, by)})


def _brief(payload: Conversation) -> Conversation:
    return _shorter(payload, shorter.BRIEF)


def _small(payload: Conversation) -> Conversation:
    made = _shorter(payload, shorter.SMALL)
    name = models.cheaper()
    return made if name is None else made.model_copy(update={"model": name})


@kind(
    "llm.chat",
    pool="llm",
    input=Conversation,
    output=Reply,
    one_of=OneOf(of=lambda payload: models.resource(payload.model), every=models.resources),
    timeout_s=300,
    est_s=5.0,
    costs=True,
    degrade=[
        Form(name="brief", change=_brief),
        Form(name="small", change=_small, resources=models.cheaper_needs),
    ],
)
def chat(ctx: Context, payload: Conversation) -> Reply:
    """Ask once, and show the answer as it comes. Raises: Permanent when the worker isn't set up."""
    access = models.access(payload.model)
    answer = _Answer()
    used: list[tuple[int, int, bool]] = []

    def ask(call: Calling) -> None:
        reader = Reader(lambda: _begin(access, payload))
        began = False
        try:
            for chunk in reader.chunks(ctx.checkpoint):
                began = True
                text = answer.take(chunk)
                if text:
                    ctx.emit(text)
            if not answer.finish_reason:
                raise Transient("the provider's stream ended before the answer did")
        except Exception as error:
            classed = _classed(error)
            if classed is error:
                raise
            raise classed from error
        finally:
            reader.close()
            # Also of an answer that broke off or that nobody waits for: the provider charges for it all the same.
            if began:
                used.append(_used(answer, payload))
                call.used(used[0][0] + used[0][1])

    try:
        ctx.call(access.resource, ask, cost=_expected(access, payload))
    finally:
        usd = [ctx.spent(access.priced_as, tokens_in, tokens_out) for tokens_in, tokens_out, _ in used]
    tokens_in, tokens_out, estimated = used[0]
    _usual.learn(access.name, tokens_out)
    text = models.redact("".join(answer.pieces))
    if not text.strip():
        raise Permanent(f"{access.name} gave an empty answer (finish_reason: {answer.finish_reason})")
    return Reply(
        text=text,
        model=completions.storable(answer.model or access.upstream),
        finish_reason=completions.storable(answer.finish_reason),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        usage_estimated=estimated,
        usd=usd[0],
        warning=f"config/models.toml has no price for {access.priced_as!r}" if usd[0] is None else None,
    )


def _begin(access: Access, payload: Conversation) -> Any:
    import openai

    messages: Any = [message.model_dump() for message in payload.messages]  # a TypedDict for each role
    return completions.client(access).chat.completions.create(
        model=access.upstream,
        messages=messages,
        max_completion_tokens=payload.max_tokens,
        temperature=openai.omit if payload.temperature is None else payload.temperature,
        stream=True,
        stream_options={"include_usage": True},
    )


def _expected(access: Access, payload: Conversation) -> int:
    asked = sum(estimates.of_text(len(message.content)) + TOKENS_A_MESSAGE for message in payload.messages)
    return asked + _usual.expect(access.name, payload.max_tokens)


def _used(answer: _Answer, payload: Conversation) -> tuple[int, int, bool]:
    if answer.usage is not None:
        return (*answer.usage, False)
    asked = sum(len(message.content) // CHARS_A_TOKEN + TOKENS_A_MESSAGE for message in payload.messages)
    return asked, -(-sum(map(len, answer.pieces)) // CHARS_A_TOKEN), True


def _classed(error: Exception) -> Exception:
    """Return the error as the task layer understands it: a stream that breaks may hold next time."""
    import httpx2
    import openai

    match error:
        case openai.APIStatusError() | openai.APIConnectionError():
            return error  # ctx.call knows them by their status and kind
        case openai.APIError() if error.code in ("rate_limit_exceeded", "insufficient_quota"):
            return RateLimited(f"the provider broke its answer off: {error.message}"[:500])
        case openai.APIError():
            return Transient(f"the provider broke its answer off: {error.message}"[:500])
        case httpx2.TimeoutException():
            return error
        case httpx2.TransportError():
            return Transient(f"the stream broke: {type(error).__name__}: {error}"[:500])
        case ValueError() | AttributeError() | TypeError():
            return Transient(f"the provider's stream isn't what it should be: {type(error).__name__}")
    return error

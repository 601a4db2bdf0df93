"""One completion by a language model, for kinds whose work is more than one: asked once, counted, as plain JSON.

What it returns can be the result of a step. Waiting and trying again are the task layer's: the client sends once.
A kind that uses it declares the model's resource (`one_of=OneOf(of=.., every=models.resources)`) and `costs=True`.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from harness.kinds import calling, estimates, models
from harness.kinds.calling import Calling
from harness.kinds.context import Context
from harness.kinds.errors import Permanent, Transient
from harness.kinds.models import Access

if TYPE_CHECKING:
    import httpx2
    import openai

TIMEOUT_S = 60.0  # between two bytes of the answer; LLM_TIMEOUT_S changes it
CONNECT_S = 5.0
TOKENS_TO_THINK = 2_000  # models that reason count it into the answer

_clients: dict[tuple[int, str, str, float], "openai.OpenAI"] = {}
_clients_lock = threading.Lock()
_usual = estimates.Usual()


class ToolCall(TypedDict):
    """A call of a tool that the model wants. `arguments` is JSON text as the model wrote it: check it."""

    id: str
    name: str
    arguments: str


class Said(TypedDict):
    """What one completion gave. `text` is "" when the model wants tools; `calls` are those, in its order."""

    text: str
    calls: list[ToolCall]
    model: str
    finish_reason: str
    tokens_in: int
    tokens_out: int


def ask(
    ctx: Context,
    messages: Sequence[Mapping[str, Any]],
    *,
    model: str | None = None,
    max_tokens: int = 1_024,
    tools: Sequence[Mapping[str, Any]] = (),
) -> Said:
    """Ask a model of config/models.toml (None: the default one) once. `messages`, `tools`: as OpenAI has them.

    Raises: as `ctx.call`; Permanent when this worker isn't set up, or the answer is neither text nor a call of a tool.
    """
    access = models.access(model)
    endpoint = client(access)
    most = max_tokens + TOKENS_TO_THINK

    def send(call: Calling) -> Any:
        answer = _sent(endpoint, access, messages, most, tools)
        if answer.usage:  # else what was reserved stays charged
            call.used((answer.usage.prompt_tokens or 0) + (answer.usage.completion_tokens or 0))
            _usual.learn(access.name, answer.usage.completion_tokens or 0)
        return answer

    asked = sum(len(str(one.get("content") or "")) for one in messages) + sum(len(str(one)) for one in tools)
    answer = ctx.call(access.resource, send, cost=estimates.of_text(asked) + _usual.expect(access.name, most))
    tokens = (answer.usage.prompt_tokens or 0, answer.usage.completion_tokens or 0) if answer.usage else (0, 0)
    ctx.spent(access.priced_as, *tokens)
    choice = answer.choices[0] if answer.choices else None
    text = models.redact(storable((choice and choice.message.content) or "").strip())
    calls = [
        ToolCall(id=storable(one.id), name=storable(one.function.name), arguments=storable(one.function.arguments))
        for one in (choice and choice.message.tool_calls) or ()
        if one.type == "function"
    ]
    if not text and not calls:
        finished = choice.finish_reason if choice else "none"
        raise Permanent(f"{access.upstream} gave an empty answer (finish_reason: {finished})")
    return Said(
        text="" if calls else text,
        calls=calls,
        model=storable(answer.model or access.upstream),
        finish_reason=storable(str(choice.finish_reason if choice else "")),
        tokens_in=tokens[0],
        tokens_out=tokens[1],
    )


def storable(text: str) -> str:
    """Return the text without what a database refuses: NUL, and halves of surrogate pairs.

    >>> storable("a\\x00b")
    'ab'
    """
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


def _sent(
    endpoint: "openai.OpenAI",
    access: Access,
    messages: Sequence[Mapping[str, Any]],
    most: int,
    tools: Sequence[Mapping[str, Any]],
) -> Any:
    import openai

    given: Any = {"tools": list(tools)} if tools else {}  # TypedDicts of the client, for each role and kind of tool
    try:
        answer = endpoint.chat.completions.create(
            model=access.upstream,
            messages=list(messages),  # type: ignore[arg-type]  # the same
            max_completion_tokens=most,
            **given,
        )
    except (ValueError, openai.APIResponseValidationError) as error:
        raise Transient(
            f"the endpoint of model {access.name} answered what isn't JSON: {type(error).__name__}"
        ) from error
    # The client checks nothing: the page of a proxy comes as a str, another object as one without choices.
    if not isinstance(getattr(answer, "choices", None), list):
        raise Transient(f"the endpoint of model {access.name} answered, but not with a chat completion")
    return answer


def _timeout_s() -> float:
    value = os.environ.get("LLM_TIMEOUT_S", "").strip()
    try:
        seconds = float(value) if value else TIMEOUT_S
    except ValueError:
        seconds = float("nan")
    if not 0.1 <= seconds < 1e7:
        raise Permanent(f"LLM_TIMEOUT_S must be a number of at least 0.1, not {value!r}")
    return seconds


def _heard(response: "httpx2.Response") -> None:
    calling.heard(response.headers)


def client(access: Access) -> "openai.OpenAI":
    """Return this process's client for a model's endpoint: one, with one bounded pool of connections, for all threads.

    Raises: Permanent when LLM_TIMEOUT_S makes no sense.
    """
    import httpx2  # what the openai client itself speaks HTTP with
    import openai

    timeout_s = _timeout_s()
    wanted = (os.getpid(), access.base_url, access.api_key, timeout_s)
    with _clients_lock:
        if wanted not in _clients:
            limits = httpx2.Limits(max_connections=calling.CONNECTIONS, max_keepalive_connections=calling.CONNECTIONS)
            timeout = httpx2.Timeout(timeout_s, connect=CONNECT_S, pool=CONNECT_S)
            _clients[wanted] = openai.OpenAI(
                base_url=access.base_url,
                api_key=access.api_key,
                max_retries=0,
                timeout=timeout,
                http_client=httpx2.Client(
                    limits=limits, timeout=timeout, follow_redirects=False, event_hooks={"response": [_heard]}
                ),
            )
        return _clients[wanted]


def close() -> None:
    """Close this process's clients; the next call opens new ones."""
    with _clients_lock:
        while _clients:
            _clients.popitem()[1].close()

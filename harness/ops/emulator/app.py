"""The provider as an ASGI application, by hand: chat completions, models, and the switches under /admin.

One event loop and no await between asking for room and taking it, so the quota is exact. A place is given back before
the answer is sent: a client that holds at most `quota` calls never sees a 429. A client that hangs up early leaves
its place taken until the latency is over, as a provider that goes on computing would.
"""

import asyncio
import json
import math
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import asdict
from typing import Any

from harness.ops.emulator import extract
from harness.ops.emulator.behaviour import Behaviour, Counters, changed
from harness.policy.errors import Invalid

MODEL = "emulator-extractive"
BODY_MAX_BYTES = 8 * 1024 * 1024  # far above any prompt that Harness would send

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Answer(Exception):
    """An answer that isn't a 200, in OpenAI's shape."""

    def __init__(self, status: int, code: str, message: str, *, param: str | None = None, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {"message": message, "type": kind or "invalid_request_error", "param": param, "code": code}
        }
        self.headers: list[tuple[bytes, bytes]] = []


class Emulator:
    """The application and its state. `behaviour` may be replaced at any time from the event loop's thread."""

    def __init__(self, behaviour: Behaviour, *, seed: int = 0) -> None:
        self.behaviour = behaviour
        self.counters = Counters()
        self._random = random.Random(seed)
        self._serial = 0

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method, path = scope["method"], scope["path"].rstrip("/")
        headers: list[tuple[bytes, bytes]] = []
        try:
            body = await _body_of(receive)
            status, answer = 200, await self._route(method, path, body)
        except Answer as other:
            status, answer, headers = other.status, other.body, other.headers
            if path.startswith("/v1") and status != 429:
                self.counters.errors += 1
        content = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _route(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        match method, path:
            case "POST", "/v1/chat/completions":
                return await self._chat(_object_of(body))
            case "GET", "/v1/models":
                return {
                    "object": "list",
                    "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "harness"}],
                }
            case "GET", "/admin/stats":
                return asdict(self.counters)
            case "GET", "/admin/config":
                return asdict(self.behaviour)
            case "POST", "/admin/config":
                try:
                    self.behaviour = changed(self.behaviour, _object_of(body))
                except Invalid as wrong:
                    raise Answer(400, "invalid_value", wrong.message, param=wrong.field) from None
                return asdict(self.behaviour)
            case "POST", "/admin/reset":
                self.counters.reset()
                return asdict(self.counters)
            case _:
                raise Answer(404, "not_found", f"{method} {path or '/'} is not here")

    async def _chat(self, request: dict[str, Any]) -> dict[str, Any]:
        prompts = list(_texts_of(request))
        max_tokens = _max_tokens_of(request)
        if request.get("stream"):
            raise Answer(400, "unsupported_value", "stream: this provider answers in one piece", param="stream")
        behaviour = self.behaviour
        if not self.counters.admit(behaviour.quota):
            raise _too_many(behaviour)
        try:
            text, cut = extract.answer(prompts[-1], max_tokens=max_tokens)
            await asyncio.sleep(self._latency_s(behaviour))
        finally:
            self.counters.leave()
        used_in, used_out = sum(map(extract.tokens_of, prompts)), extract.tokens_of(text)
        self.counters.answered += 1
        self.counters.prompt_tokens += used_in
        self.counters.completion_tokens += used_out
        self._serial += 1
        return {
            "id": f"chatcmpl-{self._serial}",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": "length" if cut else "stop",
                }
            ],
            "usage": {"prompt_tokens": used_in, "completion_tokens": used_out, "total_tokens": used_in + used_out},
        }

    def _latency_s(self, behaviour: Behaviour) -> float:
        if behaviour.sigma == 0:
            return behaviour.latency_s
        return behaviour.latency_s * self._random.lognormvariate(0.0, behaviour.sigma)


def _too_many(behaviour: Behaviour) -> Answer:
    refusal = Answer(
        429,
        "rate_limit_exceeded",
        f"Rate limit reached: {behaviour.quota} calls are in flight. Try again in {behaviour.retry_after_s:g} s.",
        kind="requests",
    )
    refusal.headers = [
        (b"retry-after", b"%d" % math.ceil(behaviour.retry_after_s)),
        (b"retry-after-ms", b"%d" % math.ceil(behaviour.retry_after_s * 1000)),
    ]
    return refusal


async def _body_of(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Answer(400, "disconnected", "the request was cut off")
        part = message.get("body", b"")
        size_bytes += len(part)
        if size_bytes > BODY_MAX_BYTES:
            raise Answer(413, "too_large", f"the body is larger than {BODY_MAX_BYTES} bytes")
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _object_of(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Answer(400, "invalid_json", "the body is not JSON") from None
    if not isinstance(value, dict):
        raise Answer(400, "invalid_json", "the body must be a JSON object")
    return value


def _texts_of(request: dict[str, Any]) -> Iterator[str]:
    """Yield the text of each message; the last one is the prompt. Raises: Answer naming the parameter."""
    if not isinstance(request.get("model"), str) or not request["model"]:
        raise Answer(400, "missing_value", "model: name one, for example " + MODEL, param="model")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Answer(400, "missing_value", "messages: give at least one", param="messages")
    for n, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            parts = [part.get("text") if isinstance(part, dict) else None for part in content]
            content = "\n".join(part for part in parts if isinstance(part, str))
        if not isinstance(content, str):
            where = f"messages[{n}].content"
            raise Answer(400, "invalid_type", f"{where}: a text, or a list of text parts", param=where)
        yield content


def _max_tokens_of(request: dict[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = request.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Answer(400, "invalid_value", f"{name}: a whole number of at least 1", param=name)
        return value
    return None

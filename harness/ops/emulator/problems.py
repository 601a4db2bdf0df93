"""Answers that are no 200, in OpenAI's shape; and the reading of requests that end in one."""

import json
import math
from email.utils import formatdate
from typing import Any

from harness.ops.emulator.gate import Refusal

_ABSURD = {
    "day": b"retry-after: 86400\r\n",
    "negative": b"retry-after: -5\r\n",
    "words": b"retry-after: in a moment\r\n",
}


class Problem(Exception):
    """An answer that isn't a 200. `head` are header lines of its own."""

    def __init__(self, status: int, code: str, message: str, *, param: str | None = None, type_: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.head = b""
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": type_ or "invalid_request_error", "param": param, "code": code}
        }


def too_many(refusal: Refusal, written: str = "seconds", now_s: float = 0.0) -> Problem:
    """Return the 429 of a refusal; Retry-After is in whole seconds, retry-after-ms exact to the millisecond.

    `written` otherwise: one of behaviour.RETRY_AFTER; `now_s` (epoch) is what a date counts from.
    """
    problem = Problem(429, refusal.code, refusal.message, type_=refusal.type)
    # Less a billionth: a wait of 1.5 s made of ns must not become 1501 ms.
    wait_ms = math.ceil(refusal.wait_s * 1000 - 1e-9)
    match written:
        case "seconds":
            problem.head = b"retry-after: %d\r\nretry-after-ms: %d\r\n" % (-(-wait_ms // 1000), wait_ms)
        case "date":
            until = formatdate(math.ceil(now_s + wait_ms / 1000), usegmt=True)
            problem.head = f"retry-after: {until}\r\n".encode()
        case _:
            problem.head = _ABSURD.get(written, b"")
    return problem


def server_error(status: int) -> Problem:
    """Return a 5xx that was asked for by error_rate."""
    code = "overloaded" if status in {503, 529} else "server_error"
    return Problem(status, code, "The server had an error while processing your request.", type_="server_error")


def object_of(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body. Raises: Problem."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "invalid_json", "the body is not JSON") from None
    if not isinstance(value, dict):
        raise Problem(400, "invalid_json", "the body must be a JSON object")
    return value


def model_of(request: dict[str, Any], example: str) -> str:
    """Return the model's name; any will do. Raises: Problem."""
    model = request.get("model")
    if not isinstance(model, str) or not model or "\x00" in model:
        raise Problem(400, "missing_value", f"model: name one, for example {example}", param="model")
    return model


def flag_of(values: dict[str, Any], name: str, *, param: str) -> bool:
    """Return a true-or-false value, false when it is missing or null. Raises: Problem naming `param`."""
    value = values.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise Problem(400, "invalid_type", f"{param}: true or false", param=param)
    return value


def count_of(request: dict[str, Any], name: str, *, most: int | None = None) -> int | None:
    """Return a whole number of at least 1, None when it is missing or null. Raises: Problem naming it."""
    value = request.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or (most is not None and value > most):
        bounds = "of at least 1" if most is None else f"from 1 to {most}"
        raise Problem(400, "invalid_value", f"{name}: a whole number {bounds}", param=name)
    return value

"""Chat completions: what a request asks for, and its answer, whole or as the events of a stream. No network."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.ops.emulator import extract, program, script
from harness.ops.emulator.problems import Problem, count_of, flag_of, model_of

MODEL = "emulator-extractive"
DONE = b"data: [DONE]\n\n"

ANSWERS_KEPT = 4096  # a few MB; choosing sentences costs more than all the rest of a call

_GAP = "\x00"  # its JSON can stand nowhere else: a model's name with a NUL is refused
_GAP_JSON = b'"\\u0000"'
_PIECE = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Chat:
    """A request together with its answer: that is known before it is let in, so its tokens are charged exactly.

    `charged_max` is what a provider would charge that reckons with max_tokens.
    """

    model: str
    text: str
    cut: bool
    pieces: tuple[bytes, ...]
    tokens_in: int
    tokens_out: int
    charged_max: int
    stream: bool
    usage_wanted: bool
    call: script.Call | None = None  # of a tool, in place of a text

    def whole(self, serial: int, now_s: int, *, usage: bool = True) -> bytes:
        """Return the answer in one piece, with or without its usage."""
        choice = {
            "index": 0,
            "message": self._message(self.text),
            "logprobs": None,
            "finish_reason": self._finish,
        }
        answer = {
            "id": f"chatcmpl-{serial}",
            "object": "chat.completion",
            "created": now_s,
            "model": self.model,
            "choices": [choice],
        }
        return _utf8(answer | {"usage": self._usage} if usage else answer)

    def events(self, serial: int, now_s: int) -> list[bytes]:
        """Return the events that carry the answer, a word each; `tail` follows them."""
        first = self._event(serial, now_s, self._message(""), None)
        # All events of an answer differ in the word alone: one is made, and taken apart around its word.
        before, after = self._event(serial, now_s, {"content": _GAP}, None).split(_GAP_JSON)
        return [first, *(before + piece + after for piece in self.pieces)]

    def tail(self, serial: int, now_s: int, *, usage: bool = True) -> bytes:
        """Return what ends the stream: the reason, the usage if it was asked for and isn't hidden, [DONE]."""
        end = self._event(serial, now_s, {}, self._finish)
        if self.usage_wanted and usage:
            counted = self._chunk(serial, now_s) | {"choices": [], "usage": self._usage}
            end += b"data: " + _utf8(counted) + b"\n\n"
        return end + DONE

    def _message(self, text: str) -> dict[str, Any]:
        if self.call is None:
            return {"role": "assistant", "content": text, "refusal": None}
        return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [{"index": 0} | self.call.told()]}

    @property
    def _finish(self) -> str:
        if self.call is not None:
            return "tool_calls"
        return "length" if self.cut else "stop"

    @property
    def _usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.tokens_in,
            "completion_tokens": self.tokens_out,
            "total_tokens": self.tokens_in + self.tokens_out,
        }

    def _chunk(self, serial: int, now_s: int) -> dict[str, Any]:
        name = f"chatcmpl-{serial}"
        return {"id": name, "object": "chat.completion.chunk", "created": now_s, "model": self.model}

    def _event(self, serial: int, now_s: int, delta: dict[str, Any], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk = self._chunk(serial, now_s) | {"choices": [choice]}
        if self.usage_wanted:
            chunk["usage"] = None
        return b"data: " + _utf8(chunk) + b"\n\n"


class Answers:
    """Answers by the hash of their prompt: the oldest goes first when there are too many."""

    def __init__(self) -> None:
        self._kept: dict[tuple[bytes, int | None], tuple[str, bool, tuple[bytes, ...]]] = {}

    def of(self, prompt: str, most: int | None) -> tuple[str, bool, tuple[bytes, ...]]:
        """Return extract.answer of a prompt and its words in JSON, worked out once."""
        key = hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=16).digest(), most
        found = self._kept.get(key)
        if found is None:
            text, cut = extract.answer(prompt, max_tokens=most)
            found = self._kept[key] = text, cut, tuple(map(_utf8, _PIECE.findall(text)))
            if len(self._kept) > ANSWERS_KEPT:
                del self._kept[next(iter(self._kept))]
        return found


def read(request: dict[str, Any], answers: Answers) -> Chat:
    """Return what is asked for, with its answer. Raises: Problem naming the parameter."""
    model = model_of(request, MODEL)
    prompts = list(_texts_of(request))
    most = count_of(request, "max_completion_tokens")
    if most is None:
        most = count_of(request, "max_tokens")
    stream = flag_of(request, "stream", param="stream")
    played = (
        script.turn(request["messages"])
        if request.get("tools")
        else script.verdict(prompts[-1]) or program.written(request["messages"])
    )
    call = played if isinstance(played, script.Call) else None
    if isinstance(played, str):
        text, cut, pieces = played, False, tuple(map(_utf8, _PIECE.findall(played)))
    elif call is not None:
        text, cut, pieces = call.arguments, False, ()
    else:
        text, cut, pieces = answers.of(prompts[-1], most)
    used_in, used_out = sum(map(extract.tokens_of, prompts)), extract.tokens_of(text)
    return Chat(
        model=model,
        text=text,
        cut=cut,
        pieces=pieces,
        tokens_in=used_in,
        tokens_out=used_out,
        charged_max=used_in + (used_out if most is None else most),
        stream=stream,
        usage_wanted=_usage_wanted(request, stream),
        call=call,
    )


def _usage_wanted(request: dict[str, Any], stream: bool) -> bool:
    options = request.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise Problem(400, "invalid_type", "stream_options: an object", param="stream_options")
    if not stream:
        message = "stream_options: only allowed when stream is true"
        raise Problem(400, "invalid_value", message, param="stream_options")
    return flag_of(options, "include_usage", param="stream_options.include_usage")


def _texts_of(request: dict[str, Any]) -> Iterator[str]:
    """Yield the text of each message; the last one is the prompt. Raises: Problem naming the parameter."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Problem(400, "missing_value", "messages: give at least one", param="messages")
    for n, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        if content is None and isinstance(message, dict) and message.get("tool_calls"):
            content = ""
        if isinstance(content, list):
            parts = [part.get("text") if isinstance(part, dict) else None for part in content]
            content = "\n".join(part for part in parts if isinstance(part, str))
        if not isinstance(content, str):
            where = f"messages[{n}].content"
            raise Problem(400, "invalid_type", f"{where}: a text, or a list of text parts", param=where)
        yield content


def _utf8(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

"""Embeddings without a model: words hashed into a vector of length 1.

Deterministic, on every machine and in every process. Texts that share words lie close to each other (the cosine is
that of their word counts, but for collisions), which is enough to try retrieval out; words of like meaning don't.
"""

import array
import base64
import hashlib
import json
import math
import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from harness.ops.emulator import extract
from harness.ops.emulator.problems import Problem, count_of, model_of

MODEL = "emulator-hashed"
DIMENSIONS = 256
DIMENSIONS_MAX = 4096
INPUTS_MAX = 2048  # as with OpenAI
WORD_CHARS = 64  # the hashes of longer words aren't kept: they are rare, and could be megabytes

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedding:
    """A request for vectors. `tokens_out` is 0: there is no answer in tokens."""

    model: str
    texts: tuple[str, ...]
    dimensions: int
    as_base64: bool
    tokens_in: int
    tokens_out: int = 0

    @property
    def charged_max(self) -> int:
        """What is charged to tpm: always the tokens of the texts."""
        return self.tokens_in

    def whole(self, serial: int, now_s: int, *, usage: bool = True) -> bytes:
        """Return the answer, with or without its usage."""
        data = [
            {"object": "embedding", "index": n, "embedding": self._written(vector(text, self.dimensions))}
            for n, text in enumerate(self.texts)
        ]
        answer: dict[str, Any] = {"object": "list", "data": data, "model": self.model}
        if usage:
            answer["usage"] = {"prompt_tokens": self.tokens_in, "total_tokens": self.tokens_in}
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def _written(self, values: tuple[float, ...]) -> str | tuple[float, ...]:
        if not self.as_base64:
            return values
        packed = array.array("f", values)
        if sys.byteorder == "big":
            packed.byteswap()
        return base64.b64encode(packed.tobytes()).decode()


def read(request: dict[str, Any]) -> Embedding:
    """Return what is asked for. Raises: Problem naming the parameter."""
    model = model_of(request, MODEL)
    texts, tokens = _texts_of(request.get("input"))
    written = request.get("encoding_format")
    if written not in (None, "float", "base64"):
        raise Problem(400, "invalid_value", "encoding_format: float or base64", param="encoding_format")
    dimensions = count_of(request, "dimensions", most=DIMENSIONS_MAX) or DIMENSIONS
    return Embedding(model=model, texts=texts, dimensions=dimensions, as_base64=written == "base64", tokens_in=tokens)


def vector(text: str, dimensions: int = DIMENSIONS) -> tuple[float, ...]:
    """Return the vector of a text, its length 1. A text without words gets that of its characters as one word."""
    words = Counter(_WORD.findall(text.casefold())) or Counter((text,))
    values = [0.0] * dimensions
    for word, times in words.items():
        number = _hash_of_word(word) if len(word) <= WORD_CHARS else _hash(word)
        values[(number >> 1) % dimensions] += math.sqrt(times) if number & 1 else -math.sqrt(times)
    length = math.sqrt(sum(value * value for value in values))
    if length == 0:
        # Two words that cancel each other in one place: rare, but a vector of length 0 has no direction.
        values[_hash(text) % dimensions] = length = 1.0
    return tuple(value / length for value in values)


def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest(), "little")


_hash_of_word = lru_cache(maxsize=65_536)(_hash)


def _texts_of(given: object) -> tuple[tuple[str, ...], int]:
    """Return the texts and how many tokens they have; a list of tokens is taken as words."""
    if isinstance(given, str) or (isinstance(given, list) and given and _is_tokens(given)):
        given = [given]
    if not isinstance(given, list) or not 0 < len(given) <= INPUTS_MAX:
        raise Problem(400, "missing_value", f"input: a text, or a list of 1 to {INPUTS_MAX}", param="input")
    texts: list[str] = []
    tokens = 0
    for n, one in enumerate(given):
        if isinstance(one, str) and one:
            texts.append(one)
            tokens += extract.tokens_of(one)
        elif isinstance(one, list) and one and _is_tokens(one):
            texts.append(" ".join(map(str, one)))
            tokens += len(one)
        else:
            where = f"input[{n}]"
            raise Problem(400, "invalid_type", f"{where}: a text that is not empty, or its tokens", param=where)
    return tuple(texts), tokens


def _is_tokens(values: list[Any]) -> bool:
    return all(type(value) is int for value in values)

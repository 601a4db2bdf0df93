"""Payloads as JSON text: what PostgreSQL's jsonb can't hold, or what is too large, is refused with its path.

Fast where nothing is wrong: the text is written once, and looked through value by value only when it holds a sign of
trouble.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from harness.policy.errors import Invalid, TooLarge

_SURROGATE = re.compile("[\ud800-\udfff]")
_SIGNS = (b"\\u0000", b"NaN", b"Infinity")  # also in innocent text: then the look finds nothing
DIGITS_MOST = 4300  # of a whole number: Python reads no more of them, so such a row could never be read again
_LONG_NUMBER = re.compile(rb"\d{%d}" % (DIGITS_MOST + 1))  # also in innocent text
LEVELS_MOST = 1000  # looked into: what goes deeper, or holds itself, can't be written anyhow
LEAVES_MOST = 1_000_000  # looked at, for the same reason: more than a body may hold


def encode(value: object, field: str, *, max_bytes: int) -> str:
    """Return the payload as JSON text. Raises: TooLarge, Invalid, naming the field with its path."""
    try:
        raw = to_json(value)
    except (PydanticSerializationError, ValueError, RecursionError):
        refuse_unfit(value, field)
        raise Invalid(f"{field}: can't be written as JSON", field=field) from None
    if len(raw) > max_bytes:
        raise TooLarge(
            f"{field}: {len(raw):,} bytes as JSON are more than the limit of {max_bytes:,}: pass a reference to the "
            "content instead (an artifact's id: /api/v1/artifacts), or split it",
            field=field,
        )
    if any(sign in raw for sign in _SIGNS):
        refuse_unfit(value, field)
    if len(raw) > DIGITS_MOST and _LONG_NUMBER.search(raw):
        try:
            json.loads(raw)
        except ValueError:
            raise Invalid(
                f"{field}: holds a number of more than {DIGITS_MOST:,} digits: pass it as text", field=field
            ) from None
    return raw.decode()


def refuse_unfit(value: object, field: str) -> None:
    """Look through a value. Raises: Invalid naming the first text or number that can't be stored."""
    for path, one in islice(_leaves(value, field), LEAVES_MOST):
        if isinstance(one, str):
            if "\x00" in one:
                raise Invalid(f"{path}: holds a NUL character (\\u0000), which can't be stored", field=path)
            if _SURROGATE.search(one):
                raise Invalid(f"{path}: holds half of a surrogate pair, which is not valid Unicode", field=path)
        elif isinstance(one, float) and not math.isfinite(one):
            raise Invalid(f"{path}: must be a finite number", field=path)


def path_of(location: Sequence[int | str], field: str = "") -> str:
    """Return a path as people write it.

    >>> path_of(("nodes", 17, "input", "text")), path_of(("text",), "input")
    ('nodes[17].input.text', 'input.text')
    """
    for part in location:
        field += f"[{part}]" if isinstance(part, int) else f".{part}" if field else str(part)
    return field


def told(field: str, message: str) -> dict[str, str]:
    """Return one wrong value as answers list it."""
    return {"field": field, "message": message}


def told_by_pydantic(error: ValidationError, field: str = "") -> list[dict[str, str]]:
    """Return the wrong values that pydantic found under `field`. The values themselves are not repeated."""
    return [
        told(path_of(one["loc"], field), one["msg"])
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    ]


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Every text (keys too) and number of a JSON value with its path, in order, as deep as LEVELS_MOST."""
    stack: list[tuple[str, object, int]] = [(path, value, 0)]
    while stack:
        path, one, level = stack.pop()
        if isinstance(one, dict | list | tuple) and level >= LEVELS_MOST:
            continue
        if isinstance(one, dict):
            yield from ((path, key) for key in one)
            stack += [(path_of((str(key),), path), inner, level + 1) for key, inner in reversed(one.items())]
        elif isinstance(one, list | tuple):
            stack += [(path_of((i,), path), inner, level + 1) for i, inner in reversed(list(enumerate(one)))]
        else:
            yield path, one

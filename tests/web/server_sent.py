"""A client's side of server-sent events."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass
class Event:
    id: str
    name: str
    data: Any
    at_s: float


def events(response: httpx.Response, *, comments: list[str] | None = None) -> Iterator[Event]:
    """Read server-sent events."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if line.startswith(":") and comments is not None:
            comments.append(line)
        elif line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "event" in fields:
            yield Event(fields["id"], fields["event"], json.loads(fields["data"]), time.monotonic())
            fields = {}
        else:
            fields = {}

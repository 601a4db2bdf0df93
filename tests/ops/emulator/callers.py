"""What the tests of the emulator call it with: a clock to pass, the real client, and a crowd on raw sockets."""

import asyncio
import contextlib
import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import openai

from harness.ops.emulator import server
from harness.ops.emulator.app import Emulator
from harness.ops.emulator.behaviour import Behaviour
from harness.ops.emulator.counters import ENDS

SECOND_NS = 1_000_000_000
TEXT = "The dispatcher waits for room. Room is counted in the database. A dispatcher that waits counts nothing twice."
CHAT = {"model": "m", "messages": [{"role": "user", "content": TEXT}]}


class Clock:
    """A clock that only passes when told."""

    def __init__(self) -> None:
        self.now_ns = 5 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns

    def passes(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND_NS)


@contextlib.contextmanager
def emulated(clock: Clock | None = None, **behaviour: Any) -> Iterator[server.Running]:
    """Serve with a behaviour, by default without latency."""
    wanted = Behaviour(**({"latency_s": 0.0} | behaviour))
    emulator = Emulator(wanted, clock_ns=clock) if clock else None
    with server.running(wanted, emulator=emulator) as running:
        yield running


def client_of(provider: server.Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=provider.base_url, api_key="none", max_retries=0)


def http(url: str, body: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    """Call an address. Returns status, JSON, headers."""
    content = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, content)) as answer:
            return answer.status, json.load(answer), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error), dict(error.headers)


def chat(provider: server.Running, **more: Any) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    return http(f"{provider.base_url}/chat/completions", CHAT | more)


def change(provider: server.Running, **settings: Any) -> None:
    """Change settings as an operator does, at /admin/config."""
    assert http(f"{provider.url}/admin/config", settings)[0] == 200


def stats(provider: server.Running) -> dict[str, int]:
    """Return /admin/stats; every call must have had one end."""
    found: dict[str, int] = http(f"{provider.url}/admin/stats")[1]
    assert found["calls"] == sum(found[name] for name in ENDS) + found["in_flight"]
    assert found["errors"] == found["client_errors"] + found["server_errors"]
    assert found["rejected_429"] == sum(number for name, number in found.items() if name.startswith("rejected_")) / 2
    return found


def crowd(provider: server.Running, *, clients: int, calls: int, body: Mapping[str, Any] = CHAT) -> Counter[str]:
    """Let `clients` connections make `calls` calls each, all at the same time. Returns the ends by error code."""
    content = json.dumps(body).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(content), content)
    ends: Counter[str] = Counter()
    host, port = provider.url.removeprefix("http://").split(":")

    async def caller(ready: asyncio.Barrier) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        await ready.wait()
        for _ in range(calls):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            ends[answer["error"]["code"] if "error" in answer else "answered"] += 1
        writer.close()
        await writer.wait_closed()

    async def all_of_them() -> None:
        ready = asyncio.Barrier(clients)
        await asyncio.gather(*(caller(ready) for _ in range(clients)))

    asyncio.run(all_of_them())
    return ends

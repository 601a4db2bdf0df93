"""How many calls the emulator answers, and what they cost it: `python -m harness.ops.emulator.measure`.

The emulator runs in a process of its own (so on one core: it has one thread); the client here is raw bytes over
asyncio, so that it isn't what is measured. Figures are of the machine and of the moment.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from collections import Counter
from typing import Any, cast

import psutil

_SENTENCE = "The dispatcher releases task number {n} when every limit of it has room, and says so in the trace. "
KINDS = ("chat", "stream", "embeddings")


class _Client(asyncio.Protocol):
    """One caller: sends a request, waits for the whole answer, sends the next."""

    def __init__(self, load: "_Load") -> None:
        self._load = load
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._load.next_request())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        lines = bytes(self._buffer[:head]).lower()
        length = re.search(rb"content-length: (\d+)", lines)
        if length is None:
            whole = self._buffer.endswith(b"\r\n0\r\n\r\n")
        else:
            whole = len(self._buffer) >= head + 4 + int(length.group(1))
        if whole:
            self._load.statuses[int(self._buffer[9:12])] += 1
            self._buffer.clear()
            if self._load.is_over():
                self._transport.close()
            else:
                self._transport.write(self._load.next_request())

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.left += 1
        if self._load.left == self._load.clients:
            self._load.done.set()


class _Load:
    def __init__(self, kind: str, prompt_chars: int, prompts: int, clients: int) -> None:
        self.clients, self.left = clients, 0
        self.statuses: Counter[int] = Counter()
        self.done = asyncio.Event()
        self.until_s = 0.0
        self._requests = [_request(kind, prompt_chars, n) for n in range(prompts)]
        self._sent = 0

    def next_request(self) -> bytes:
        self._sent += 1
        return self._requests[self._sent % len(self._requests)]

    def is_over(self) -> bool:
        return time.monotonic() >= self.until_s


def calls(
    port: int,
    *,
    kind: str = "chat",
    clients: int = 50,
    seconds: float = 3.0,
    prompt_chars: int = 2_000,
    prompts: int = 8,
) -> tuple[Counter[int], float]:
    """Call an emulator on this machine with `clients` callers at a time. Returns answers by status, and seconds."""

    async def run() -> tuple[Counter[int], float]:
        load = _Load(kind, prompt_chars, prompts, clients)
        began_s = time.monotonic()
        load.until_s = began_s + seconds
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(loop.create_connection(lambda: _Client(load), "127.0.0.1", port) for _ in range(clients))
        )
        await load.done.wait()
        return load.statuses, time.monotonic() - began_s

    return asyncio.run(run())


def measured(*, kind: str = "chat", options: tuple[str, ...] = (), **load: Any) -> dict[str, Any]:
    """Start an emulator, warm it up, call it. Returns calls_per_s and cpu_s_per_1000 of the emulator alone."""
    command = [sys.executable, "-m", "harness.ops.emulator", "--port", "0", "--latency-s", "0", "--quota", "1000"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            port = int(line.partition("http://127.0.0.1:")[2].partition("/")[0])
            server = psutil.Process(process.pid)
            calls(port, kind=kind, **(load | {"seconds": 0.3}))
            before = server.cpu_times()
            statuses, took_s = calls(port, kind=kind, **load)
            after = server.cpu_times()
        finally:
            process.terminate()
    number = statuses.total()
    cpu_s = after.user + after.system - before.user - before.system
    return {
        "calls": number,
        "statuses": dict(statuses),
        "calls_per_s": round(number / took_s, 1),
        "cpu_s_per_1000": round(1000 * cpu_s / number, 4),
        "cores": round(cpu_s / took_s, 2),
    }


def _request(kind: str, prompt_chars: int, n: int) -> bytes:
    sentences = (_SENTENCE.format(n=n * 1_000_000 + k) for k in range(prompt_chars // len(_SENTENCE) + 1))
    text = "".join(sentences)[:prompt_chars]
    body: dict[str, Any] = {"model": "m"}
    if kind == "embeddings":
        body |= {"input": text, "encoding_format": "base64"}
    else:
        body |= {"messages": [{"role": "user", "content": text}], "stream": kind == "stream"}
    content = json.dumps(body).encode()
    path = "embeddings" if kind == "embeddings" else "chat/completions"
    return (
        f"POST /v1/{path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\nauthorization: Bearer none\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    ).encode() + content


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m harness.ops.emulator.measure", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="chat")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--prompt-chars", type=int, default=2_000)
    parser.add_argument("--prompts", type=int, default=8, help="how many different prompts, taken in turn")
    given, options = parser.parse_known_args()
    sys.stdout.write(json.dumps(measured(options=tuple(options), **vars(given))) + "\n")


if __name__ == "__main__":
    main()

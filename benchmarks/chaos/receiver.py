"""The receiver of effects, outside of Harness: it writes down who came, what was done and when the caller was gone.

One asyncio server on a thread of the benchmark, one connection an execution, lines of text:

    worker: `begin TOKEN I POOL PID BEGAN_S`   receiver: `NUMBER`, the how manieth execution of this token it is
    worker: `effect N SENT_S [TOKEN]`          receiver: a number, once it is written down; TOKEN: of its step
    worker: `tell WHAT AT_S [WORD ..]`         receiver: the how manieth time that this token tells WHAT
    worker: `end ENDED_S`                      and the connection is closed

Without an `end` the end of the connection ends the execution: the kernel closes it for a process that gets kill -9.
Nothing here refuses or deduplicates: whether something came twice is the checker's to say.
"""

import asyncio
import contextlib
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Self

from benchmarks.chaos.history import Effect, Told, Visit

FOREVER_S = 4e9  # the end of what has not ended yet


class Receiver:
    """Use as a context manager; `address` is host:port. What it wrote down can be read at any time."""

    def __init__(self) -> None:
        self.address = ""
        self._visits: list[Visit] = []
        self._open: dict[int, Visit] = {}
        self._effects: list[Effect] = []
        self._told: list[Told] = []
        self._numbers: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def visits(self) -> tuple[Visit, ...]:
        """Return the executions so far; those under way end in a far future."""
        return (*self._visits, *self._open.copy().values())

    def effects(self) -> tuple[Effect, ...]:
        """Return the effects so far."""
        return tuple(self._effects)

    def told(self) -> tuple[Told, ...]:
        """Return what executions said that they were told, so far."""
        return tuple(self._told)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512))
        host, port = server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        self._ready.set()
        self._loop.run_forever()
        server.close()
        callers = asyncio.all_tasks(self._loop)
        for one in callers:
            one.cancel()
        self._loop.run_until_complete(asyncio.gather(*callers, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = id(writer)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while line := await reader.readline():
                if not line.endswith(b"\n"):
                    break  # half a line: the caller died in the middle of it
                words = line.decode().split()
                if words[0] == "end":
                    self._end(key, float(words[1]))
                    break
                writer.write(f"{self._take(key, *words)}\n".encode())
                await writer.drain()
        self._end(key, time.time())
        writer.close()

    def _take(self, key: int, word: str, *words: str) -> int:
        match word:
            case "begin":
                return self._begin(key, *words)
            case "effect":
                return self._effect(key, *words)
            case _:
                return self._tell(key, *words)

    def _tell(self, key: int, what: str, at_s: str, *values: str) -> int:
        visit = self._open[key]
        self._told.append(Told(token=visit.token, what=what, at_s=float(at_s), values=values))
        return sum((one.token, one.what) == (visit.token, what) for one in self._told)

    def _begin(self, key: int, token: str, i: str, pool: str, pid: str, began_s: str) -> int:
        self._numbers[token] += 1
        number = self._numbers[token]
        self._open[key] = Visit(
            token=token, i=int(i), pool=pool, pid=int(pid), number=number, began_s=float(began_s), ended_s=FOREVER_S
        )
        return number

    def _end(self, key: int, at_s: float) -> None:
        visit = self._open.pop(key, None)
        if visit is not None:
            self._visits.append(replace(visit, ended_s=at_s))

    def _effect(self, key: int, n: str, sent_s: str, step: str = "") -> int:
        visit = self._open[key]
        self._effects.append(
            Effect(
                token=visit.token,
                i=visit.i,
                n=int(n),
                pid=visit.pid,
                sent_s=float(sent_s),
                came_s=time.time(),
                step=step,
            )
        )
        return len(self._effects)

"""The provider: chat completions, embeddings, models, its manners and mishaps, and the switches under /admin.

A place is given back before the end of the answer is sent: a client that holds at most `quota` calls never sees a 429.
A client that hangs up early leaves its place taken until the latency is over, as a provider that goes on computing
would; only a call that hangs ends with its client.
"""

import asyncio
import dataclasses
import json
import random
import time
from collections.abc import Callable
from typing import Any

from harness.ops.emulator import chat, embeddings, problems
from harness.ops.emulator.behaviour import Behaviour, changed
from harness.ops.emulator.chat import Chat
from harness.ops.emulator.connection import Connection
from harness.ops.emulator.counters import Counters
from harness.ops.emulator.embeddings import Embedding
from harness.ops.emulator.gate import Gate
from harness.ops.emulator.http1 import Request
from harness.ops.emulator.law import Dice, Fault
from harness.ops.emulator.problems import Problem
from harness.policy.errors import Invalid

STREAM_TICK_S = 0.02  # a stream writes at most so often: words that are due by then travel together


class Emulator:
    """The application and its state. `behaviour` may be replaced at any time."""

    def __init__(self, behaviour: Behaviour, *, seed: int = 0, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.behaviour = behaviour
        self._gate = Gate(behaviour, clock_ns, seed)
        self._dice = Dice(random.Random(seed))
        self._answers = chat.Answers()
        self._serial = 0

    @property
    def counters(self) -> Counters:
        """What was counted so far."""
        return self._gate.counters

    def stats(self) -> dict[str, int]:
        """Return the counters, the quota now and the worst minutes: calls offered, requests and tokens let in."""
        gate = self._gate
        return dataclasses.asdict(gate.counters) | {
            "quota_now": gate.quota(self.behaviour),
            "worst_minute_calls": gate.worst_calls.amount_max,
            "worst_minute_requests": gate.worst_requests.amount_max,
            "worst_minute_tokens": gate.worst_tokens.amount_max,
        }

    async def __call__(self, request: Request, client: Connection) -> None:
        """Answer one request, or let it end as the dice say."""
        path = request.path.rstrip("/")
        is_admin = path.startswith("/admin")
        self._gate.pass_time(self.behaviour)
        if not is_admin:
            self.counters.calls += 1
        try:
            match request.method, path:
                case "POST", "/v1/chat/completions":
                    await self._work(chat.read(problems.object_of(request.body), self._answers), client)
                case "POST", "/v1/embeddings":
                    await self._work(embeddings.read(problems.object_of(request.body)), client)
                case "GET", "/v1/models":
                    self.counters.models += 1
                    client.send(200, _json(_models()), self._headers())
                case _ if is_admin:
                    client.send(200, _json(self._admin(request.method, path, request.body)))
                case _ if request.malformed is not None:
                    raise Problem(request.malformed.status, "malformed", str(request.malformed))
                case _:
                    raise Problem(404, "not_found", f"{request.method} {path or '/'} is not here")
        except Problem as problem:
            if not is_admin and problem.status != 429:
                self.counters.fail(problem.status)
            head = problem.head if is_admin else problem.head + self._headers()
            client.send(problem.status, _json(problem.body), head)

    def _admin(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        match method, path:
            case "GET", "/admin/stats":
                return self.stats()
            case "GET", "/admin/config":
                return dataclasses.asdict(self.behaviour)
            case "POST", "/admin/config":
                try:
                    self.behaviour = changed(self.behaviour, problems.object_of(body))
                except Invalid as wrong:
                    raise Problem(400, "invalid_value", wrong.message, param=wrong.field) from None
                return dataclasses.asdict(self.behaviour)
            case "GET", "/admin/timeline":
                return self._gate.timeline.told() | {"now_s": time.time()}
            case "POST", "/admin/reset":
                self._gate.reset()
                return self.stats()
            case _:
                raise Problem(404, "not_found", f"{method} {path} is not here")

    async def _work(self, work: Chat | Embedding, client: Connection) -> None:
        # 1. In, or not: nothing awaits between asking and taking.
        behaviour = self.behaviour
        if behaviour.down:
            await asyncio.sleep(behaviour.refusal_latency_s)
            raise problems.server_error(behaviour.error_status)
        tokens = work.charged_max if behaviour.reserve_max_tokens else work.tokens_in + work.tokens_out
        refusal = self._gate.enter(behaviour, tokens)
        if refusal is not None:
            refused = problems.too_many(refusal, behaviour.retry_after, time.time())
            if behaviour.refusal_latency_s:
                await asyncio.sleep(behaviour.refusal_latency_s)
            raise refused
        # 2. The place is taken for as long as it takes, and given back whatever happens.
        self._serial += 1
        serial, now_s, usage = self._serial, int(time.time()), not behaviour.hide_usage
        streamed = work if isinstance(work, Chat) and work.stream else None
        fault = self._dice.fault(behaviour)
        latency_s = self._dice.latency_s(behaviour, self.counters.in_flight)
        try:
            if fault is Fault.HANG:
                await client.left(behaviour.hang_s)
            elif fault is Fault.ERROR:
                await asyncio.sleep(behaviour.refusal_latency_s)
            elif streamed is not None and fault is not Fault.DROP:
                events = streamed.events(serial, now_s)
                await self._stream(events, behaviour, latency_s, fault is Fault.CUT, client)
            else:
                await asyncio.sleep(latency_s)
        finally:
            self._gate.leave(self.behaviour)
        # 3. Counted, and then the client sees the end.
        if self.behaviour.down and fault in (None, Fault.CUT):
            fault = Fault.ERROR if streamed is None else Fault.CUT
        self._count(work, fault, client)
        match fault:
            case Fault.HANG | Fault.DROP:
                client.drop()
            case Fault.ERROR:
                raise problems.server_error(behaviour.error_status)
            case Fault.CUT if streamed is None:
                client.cut(work.whole(serial, now_s, usage=usage), self._headers())
            case Fault.CUT:
                client.cut()
            case None if streamed is None:
                client.send(200, work.whole(serial, now_s, usage=usage), self._headers())
            case None:
                client.end(streamed.tail(serial, now_s, usage=usage))

    async def _stream(
        self, events: list[bytes], behaviour: Behaviour, latency_s: float, cut: bool, client: Connection
    ) -> None:
        """Send the events over the latency: the first after its share of it, the last at its end."""
        loop = asyncio.get_running_loop()
        first_s = latency_s * behaviour.first_token_ratio
        await asyncio.sleep(first_s)
        client.begin(self._headers())
        began_s, last = loop.time(), len(events) - 1
        gap_s = (latency_s - first_s) / last if last else 0.0
        number = max(1, len(events) // 2) if cut else len(events)
        sent = 0
        while True:
            due = number if gap_s <= 0 else min(number, 1 + int((loop.time() - began_s) / gap_s))
            if due > sent:
                client.write(b"".join(events[sent:due]))
                sent = due
            if sent >= number:
                return
            await asyncio.sleep(max(STREAM_TICK_S, began_s + sent * gap_s - loop.time()))

    def _headers(self) -> bytes:
        return self._gate.headers(self.behaviour)

    def _count(self, work: Chat | Embedding, fault: Fault | None, client: Connection) -> None:
        """Count how an accepted call ended; a 5xx is counted with the other errors."""
        counters = self.counters
        if fault is None or fault is Fault.CUT:
            counters.prompt_tokens += work.tokens_in
            counters.completion_tokens += work.tokens_out
        match fault:
            case Fault.HANG:
                counters.hung += 1
            case Fault.DROP:
                counters.dropped += 1
            case Fault.CUT:
                counters.cut += 1
            case None if client.gone:
                counters.abandoned += 1
            case None:
                counters.answered += 1
                counters.embeddings += isinstance(work, Embedding)
                counters.streamed += isinstance(work, Chat) and work.stream
            case Fault.ERROR:
                pass


def _models() -> dict[str, Any]:
    names = (chat.MODEL, embeddings.MODEL)
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "harness"} for name in names]
    return {"object": "list", "data": data}


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")

"""`ctx.acall`: a call whose work is a coroutine on the kind's own loop.

What waits (for a permit, for Redis) does so on a thread of the process's, so that the loop goes on. A coroutine can be
stopped: on a wish it is cancelled, and its permit ends when it has.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from harness.engine.asking import Asking
from harness.engine.calls import Call, Hands
from harness.engine.passage import Passage
from harness.engine.process import DRAIN, Running
from harness.kinds.errors import Cancelled

T = TypeVar("T")


class _Stop:
    """In `Running.calls` like a call: a wish stirs it, and it looks on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.wished = asyncio.Event()
        self._loop = loop

    def stir(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing is left to stop
            self._loop.call_soon_threadsafe(self.wished.set)


async def run(
    hands: Hands,
    running: Running,
    asking: Asking,
    resource: str | tuple[str, ...],
    fn: Callable[..., Awaitable[T]],
    cost: int | Mapping[str, int],
) -> T:
    """Call once. Raises: as `Context.call`; asyncio.CancelledError when the caller itself was cancelled."""
    entering: Future[Passage] = _beside(hands, lambda: asking.enter(resource, cost))
    try:
        passage = await asyncio.wrap_future(entering)
    except asyncio.CancelledError:
        entering.add_done_callback(_undo)
        raise
    stop = _Stop(asyncio.get_running_loop())
    running.calls.add(stop)
    work = asyncio.ensure_future(passage.arun(fn, lambda do: asyncio.shield(asyncio.wrap_future(_beside(hands, do)))))
    wish = asyncio.ensure_future(_wished(stop, running))
    try:
        most_s = None if passage.most_s == math.inf else passage.most_s
        await asyncio.wait({work, wish}, return_when=asyncio.FIRST_COMPLETED, timeout=most_s)
        if work.done():
            return work.result()
        if not wish.done():
            raise passage.time_out()
    finally:
        running.calls.discard(stop)
        wish.cancel()
        if not work.done():
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work
    raise Cancelled(running.stop or "stop")


async def _wished(stop: _Stop, running: Running) -> None:
    while running.stop in (None, DRAIN):
        stop.wished.clear()
        await stop.wished.wait()


def _beside(hands: Hands, do: Callable[[], Any]) -> "Future[Any]":
    """Do it on a thread of the process's, which goes back when it is done."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # who awaits it may be cancelled; what it does goes on to its end
    hand = hands.take()

    def work() -> None:
        try:
            result = do()
        except BaseException as error:  # noqa: BLE001  # whoever awaits it raises it
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            hands.give_back(hand)

    hand.begin(Call(work, lambda call: None))
    return future


def _undo(entering: "Future[Passage]") -> None:
    if not entering.cancelled() and entering.exception() is None:
        entering.result().undo()

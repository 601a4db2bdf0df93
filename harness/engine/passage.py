"""A call that has its permits, from there to its report. It ends once: by what `run` or `arun` meets, or by `undo`.

What it meets is an error of work for the task (engine.answers), and a report for those who protect the resource.
"""

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from harness.engine import answers
from harness.engine.room import Room
from harness.kinds import calling
from harness.policy import ratelimit_headers
from harness.policy.permits import Granted, Report, Want

TOKENS_MOST = 10**9  # of one call
T = TypeVar("T")
Over = Callable[["Passage", Granted, Report, Report], None]


class Passage:
    """One call with its permits and its places for a connection. Implements kinds.calling.Calling."""

    __slots__ = ("_granted", "_heard", "_learns", "_over", "_tokens", "_wants", "rooms")

    def __init__(self, granted: Granted | None, *, learns: Callable[[str], bool], over: Over) -> None:
        """`granted` None: no resource of the call is held by calls. `learns`: whether a resource is told how it ended;

        `over` gets what was met and what may be told of it.
        """
        self.rooms: list[Room] = []
        self._granted = granted
        self._wants: tuple[Want, ...] = granted.wants if granted is not None else ()
        self._learns = learns
        self._over = over
        self._tokens: dict[str, int] = {}
        self._heard = ratelimit_headers.NOTHING

    def used(self, tokens: int, resource: str = "") -> None:
        """Say how many tokens were used. What can't be is not believed: what was reserved then stays charged."""
        if type(tokens) is not int or not 0 <= tokens <= TOKENS_MOST:
            return
        for want in self._wants:
            if resource in ("", want.resource):
                self._tokens[want.resource] = tokens

    def headers(self, headers: Mapping[str, str]) -> None:
        """Say what an answer's headers were."""
        found = answers.rates_of(headers)
        if not found.is_empty:
            self._heard = found

    def run(self, fn: Callable[..., T]) -> T:
        """Call, on the thread that this runs on. Raises: what `fn` raises, classed (engine.answers)."""
        began_s = time.monotonic()
        error: BaseException | None = None
        try:
            with calling.inside(self):
                return fn(self) if takes_call(fn) else fn()
        except BaseException as raised:
            error = raised
            classed = self._classed(raised)
            if classed is raised:
                raise
            raise classed from raised
        finally:
            self._end(error, time.monotonic() - began_s)

    async def arun(self, fn: Callable[..., Awaitable[T]], beside: Callable[[Callable[[], None]], Awaitable[Any]]) -> T:
        """The same for a coroutine, on its loop; `beside` runs on another thread what waits for Redis."""
        began_s = time.monotonic()
        error: BaseException | None = None
        try:
            with calling.inside(self):
                return await (fn(self) if takes_call(fn) else fn())
        except BaseException as raised:
            error = raised
            classed = self._classed(raised)
            if classed is raised:
                raise
            raise classed from raised
        finally:
            latency_s = time.monotonic() - began_s
            await beside(lambda: self._end(error, latency_s))

    def undo(self) -> None:
        """The call wasn't made after all: nothing was used, and nothing is learnt."""
        if self._granted is not None:
            unused = Report(
                outcome="ignore", resource=self._wants[0].resource, tokens={want.resource: 0 for want in self._wants}
            )
            self._over(self, self._granted, unused, unused)

    def _classed(self, error: BaseException) -> BaseException:
        classed = answers.classify(error) if isinstance(error, Exception) else None
        if classed is None:
            return error
        if not classed.resource:
            classed.resource = self._about()
        return classed

    def _about(self) -> str:
        """The resource that the outcome is about: the first that learns from it, else the first."""
        learning = (want.resource for want in self._wants if self._learns(want.resource))
        return next(learning, self._wants[0].resource if self._wants else "")

    def _end(self, error: BaseException | None, latency_s: float) -> None:
        if self._granted is None:
            return
        about = self._about()
        met = answers.report(error, resource=about, tokens=self._tokens or None, latency_s=latency_s, heard=self._heard)
        if met.outcome == "drop" and not self._tokens:
            met = replace(met, tokens={want.resource: 0 for want in self._wants})  # what is refused uses nothing
        told = met
        if not self._learns(about):
            told = Report(
                outcome="success" if met.outcome == "success" else "ignore",
                resource=about,
                tokens=met.tokens,
                latency_s=latency_s,
            )
        self._over(self, self._granted, met, told)


def takes_call(fn: Callable[..., Any]) -> bool:
    """Whether a function wants the call itself: it has one parameter without a default.

    >>> takes_call(lambda: 1), takes_call(lambda call: 1), takes_call(lambda n=1: n)
    (False, True, False)
    """
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # of C, without a signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional and one.default is inspect.Parameter.empty for one in parameters) == 1

"""A call that has its permits, from there to its report. It ends once: by what `run` or `arun` meets, or by `undo`.

What it meets is an error of work for the task (engine.answers), and a report for those who protect the resource.
"""

import inspect
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from harness.engine import answers
from harness.engine.room import Room
from harness.kinds import calling
from harness.kinds.errors import TimedOut
from harness.policy import ratelimit_headers
from harness.policy.permits import Granted, Report, Want

TOKENS_MOST = 10**9  # of one call
T = TypeVar("T")
Over = Callable[["Passage", Granted, Report, Report], None]


@dataclass(slots=True)
class Met:
    """What a call met: whether it was begun, how long it took, and its error, if any, as it was raised."""

    begun: bool = False
    latency_s: float = 0.0
    error: BaseException | None = None


class Passage:
    """One call with its permits and its places for a connection. Implements kinds.calling.Calling."""

    __slots__ = (
        "_granted",
        "_heard",
        "_learns",
        "_look",
        "_over",
        "_timed_out",
        "_tokens",
        "_wants",
        "most_s",
        "rooms",
    )

    def __init__(
        self,
        granted: Granted | None,
        *,
        look: Callable[[], None],
        learns: Callable[[str], bool],
        over: Over,
        most_s: float = math.inf,
    ) -> None:
        """`granted` None: no resource of the call is held by calls. `look` raises when it must not begin any more:

        between the permit and the call a process may have been stopped for longer than anybody waits for it.
        `learns`: whether a resource is told how it ended; `over` gets what was met and what may be told of it;
        `most_s`: how long the call may take.
        """
        self.rooms: list[Room] = []
        self.most_s = most_s
        self._timed_out: TimedOut | None = None
        self._granted = granted
        self._wants: tuple[Want, ...] = granted.wants if granted is not None else ()
        self._look = look
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
        """Call, on the thread that this runs on. Raises: what `look` and `fn` raise, classed (engine.answers)."""
        met = Met()
        try:
            with self._meeting(met):
                return fn(self) if takes_call(fn) else fn()
        finally:
            self._end(met)

    async def arun(self, fn: Callable[..., Awaitable[T]], beside: Callable[[Callable[[], None]], Awaitable[Any]]) -> T:
        """The same for a coroutine, on its loop; `beside` runs on another thread what waits for Redis."""
        met = Met()
        try:
            with self._meeting(met):
                return await (fn(self) if takes_call(fn) else fn())
        finally:
            await beside(lambda: self._end(met))

    def time_out(self) -> TimedOut:
        """Note that it took too long and was left or stopped, and return that as the task's error."""
        self._timed_out = TimedOut(f"the call took longer than the {self.most_s:g} s that its resource allows")
        self._timed_out.resource = self._about()
        return self._timed_out

    def undo(self) -> None:
        """The call wasn't made after all: nothing was used, and nothing is learnt."""
        if self._granted is not None:
            unused = Report(
                outcome="ignore", resource=self._wants[0].resource, tokens={want.resource: 0 for want in self._wants}
            )
            self._over(self, self._granted, unused, unused)

    @contextmanager
    def _meeting(self, met: Met) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            self._look()
            met.begun = True
            with calling.inside(self):
                yield
        except BaseException as raised:
            met.error = raised
            classed = self._classed(raised)
            if classed is raised:
                raise
            raise classed from raised
        finally:
            met.latency_s = time.monotonic() - began_s

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

    def _end(self, met: Met) -> None:
        if self._granted is None:
            return
        if not met.begun:
            self.undo()
            return
        about, tokens = self._about(), self._tokens or None
        error = self._timed_out or met.error  # however it ended after that: nobody waited for it
        report = answers.report(error, resource=about, tokens=tokens, latency_s=met.latency_s, heard=self._heard)
        if report.outcome == "drop" and not tokens:
            report = replace(report, tokens={want.resource: 0 for want in self._wants})  # what is refused uses nothing
        told = report
        if not self._learns(about):
            told = Report(
                outcome="success" if report.outcome == "success" else "ignore",
                resource=about,
                tokens=report.tokens,
                latency_s=met.latency_s,
            )
        self._over(self, self._granted, report, told)


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

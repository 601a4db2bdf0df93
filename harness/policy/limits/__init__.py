"""Limits on what is in flight at one resource: learned (csl, aimd, gradient) or fixed. Pure; Lua steps them alike.

Per call: `asked`, `tick`, then `seen` (fewer in flight: it may go) and `sent`; at its end one of `succeeded`, `ended`,
`dropped`. Before any of them: `clamp`, since an operator may have moved the bounds. A module is a strategy.
"""

from collections.abc import Mapping
from typing import Protocol

from harness.policy.limits import aimd, csl, fixed, gradient
from harness.policy.limits.state import Reason, State, Terms


class Strategy(Protocol):
    """What each strategy can do; see csl.py for what the facts mean."""

    def seen(self, state: State, terms: Terms, now_s: float, priority: int) -> int:
        """Return the limit for a call of this priority: it may be sent while fewer are in flight."""

    def sent(self, state: State, terms: Terms, now_s: float, n_send: int) -> Reason:
        """Note a call that is sent now."""

    def succeeded(
        self, state: State, terms: Terms, now_s: float, n_send: int, sent_s: float, latency_s: float
    ) -> Reason:
        """Note a success."""

    def ended(self, state: State, terms: Terms, now_s: float, *, timed_out: bool) -> Reason:
        """Note a call that ended as neither success nor drop."""

    def dropped(
        self,
        state: State,
        terms: Terms,
        now_s: float,
        n_send: int,
        sent_s: float,
        latency_s: float,
        in_flight: int,
        retry_after_s: float,
        overload: bool,
    ) -> Reason:
        """Note a refusal for concurrency."""

    def tick(self, state: State, terms: Terms, now_s: float, in_flight: int, waiting: int) -> Reason:
        """Take the slow steps that are due."""


STRATEGIES: Mapping[str, Strategy] = {"fixed": fixed, "csl": csl, "aimd": aimd, "gradient": gradient}

"""Who is let in: quota, requests a minute, tokens a minute and the penalty for hammering, all of them or none.

One event loop and no await between asking and taking, so every limit is exact. A refusal takes nothing from any
limit. When several refuse, the rate is named before the quota: a client that hears of the quota may believe that the
rate had room.
"""

from collections.abc import Callable
from dataclasses import dataclass

from harness.ops.emulator.behaviour import Behaviour
from harness.ops.emulator.bucket import Bucket
from harness.ops.emulator.counters import Counters, WorstMinute
from harness.ops.emulator.law import quota_at
from harness.ops.emulator.timeline import Timeline

_ABSURD_HEADERS = (
    b"x-ratelimit-limit-requests: 0\r\nx-ratelimit-limit-tokens: many\r\nx-ratelimit-remaining-requests: -7\r\n"
    b"x-ratelimit-remaining-tokens: 1e400\r\nx-ratelimit-reset-requests: yesterday\r\nx-ratelimit-reset-tokens: -1s\r\n"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why not: `why` is one of Counters' rejected_*; `code`, `type` and `wait_s` go into the answer."""

    why: str
    code: str
    type: str
    message: str
    wait_s: float


class Gate:
    """The limits and what they let in. Only the event loop may call it."""

    def __init__(self, behaviour: Behaviour, clock_ns: Callable[[], int], seed: int = 0) -> None:
        self.counters = Counters()
        self.timeline = Timeline(clock_ns())
        self.worst_calls, self.worst_requests, self.worst_tokens = WorstMinute(), WorstMinute(), WorstMinute()
        self._clock_ns = clock_ns
        self._seed, self._began_ns = seed, clock_ns()
        self._seen = behaviour
        now = clock_ns()
        self._requests = Bucket(per_minute=behaviour.rpm, burst_s=behaviour.burst_s, now_ns=now)
        self._tokens = Bucket(per_minute=behaviour.tpm, burst_s=behaviour.burst_s, now_ns=now)
        self._closed_until_ns = now

    def enter(self, behaviour: Behaviour, tokens: int) -> Refusal | None:
        """Take a place, a request and `tokens`, or nothing and say why. Who got None calls `leave` once."""
        now = self.pass_time(behaviour)
        self.worst_calls.add(now, 1)
        refusal = self._hammering(behaviour, now) or self._refusal(behaviour, tokens, now)
        if refusal is not None:
            self._closed_until_ns = max(self._closed_until_ns, now + round(refusal.wait_s * 1e9))
            self.counters.reject(refusal.why)
            return refusal
        self._requests.take(1, now)
        self._tokens.take(tokens, now)
        self.counters.enter()
        self.worst_requests.add(now, 1)
        self.worst_tokens.add(now, tokens)
        return None

    def leave(self, behaviour: Behaviour) -> None:
        """Give the place back."""
        self.pass_time(behaviour)
        self.counters.leave()

    def pass_time(self, behaviour: Behaviour) -> int:
        """Account for the time until now, as it was. Call it before anything changes. Returns now, in ns."""
        now = self._now_ns(behaviour)
        self.timeline.advance(now, self.counters, lambda at_ns: self._quota(behaviour, at_ns))
        return now

    def quota(self, behaviour: Behaviour) -> int:
        """Return how many calls at a time are let in now."""
        return self._quota(behaviour, self._clock_ns())

    def headers(self, behaviour: Behaviour) -> bytes:
        """Return the x-ratelimit-* lines as things stand now; reset is when the bucket is full again."""
        if behaviour.rate_headers != "true":
            return _ABSURD_HEADERS if behaviour.rate_headers == "absurd" else b""
        now = self._now_ns(behaviour)
        requests, tokens = self._requests, self._tokens
        return (
            f"x-ratelimit-limit-requests: {behaviour.rpm}\r\nx-ratelimit-limit-tokens: {behaviour.tpm}\r\n"
            f"x-ratelimit-remaining-requests: {requests.left(now)}\r\n"
            f"x-ratelimit-remaining-tokens: {tokens.left(now)}\r\n"
            f"x-ratelimit-reset-requests: {duration(requests.full_in_ns(now))}\r\n"
            f"x-ratelimit-reset-tokens: {duration(tokens.full_in_ns(now))}\r\n"
        ).encode()

    def reset(self) -> None:
        """Count from zero and forget penalties; the buckets stay as full as they are."""
        self.counters.reset()
        self.timeline = Timeline(self._clock_ns())
        for worst in (self.worst_calls, self.worst_requests, self.worst_tokens):
            worst.reset()
        self._closed_until_ns = self._clock_ns()

    def _quota(self, behaviour: Behaviour, at_ns: int) -> int:
        return quota_at(behaviour, self._seed, (at_ns - self._began_ns) / 1e9)

    def _now_ns(self, behaviour: Behaviour) -> int:
        now = self._clock_ns()
        if behaviour is not self._seen:
            self._seen = behaviour
            self._requests.change(per_minute=behaviour.rpm, burst_s=behaviour.burst_s, now_ns=now)
            self._tokens.change(per_minute=behaviour.tpm, burst_s=behaviour.burst_s, now_ns=now)
        return now

    def _hammering(self, behaviour: Behaviour, now: int) -> Refusal | None:
        left_s = (self._closed_until_ns - now) / 1e9
        if behaviour.penalty_s == 0 or left_s <= 0:
            return None
        # A wait that was longer than the cap before anyone hammered stays as it is.
        wait_s = max(left_s, min(left_s + behaviour.penalty_s, behaviour.penalty_max_s))
        return Refusal(
            why="penalty",
            code="retry_after_ignored",
            type="requests",
            message=f"Called {left_s:.3f} s before Retry-After was over. Now wait {wait_s:.3f} s.",
            wait_s=wait_s,
        )

    def _refusal(self, behaviour: Behaviour, tokens: int, now: int) -> Refusal | None:
        wait_ns = self._requests.wait_ns(1, now)
        if wait_ns != 0:
            wait_s = behaviour.retry_after_s if wait_ns is None else wait_ns / 1e9
            return Refusal(
                why="requests",
                code="requests_per_minute_exceeded",
                type="requests",
                message=f"Rate limit reached: {behaviour.rpm} requests per min. Try again in {wait_s:.3f} s.",
                wait_s=wait_s,
            )
        wait_ns = self._tokens.wait_ns(tokens, now)
        if wait_ns is None and behaviour.tpm > 0:
            return Refusal(
                why="too_large",
                code="request_too_large",
                type="tokens",
                message=f"Request too large: {tokens} tokens, and at most {self._tokens.size} are let in at once.",
                wait_s=behaviour.retry_after_s,
            )
        if wait_ns != 0:
            wait_s = behaviour.retry_after_s if wait_ns is None else wait_ns / 1e9
            return Refusal(
                why="tokens",
                code="tokens_per_minute_exceeded",
                type="tokens",
                message=f"Rate limit reached: {behaviour.tpm} tokens per min, {tokens} requested. "
                f"Try again in {wait_s:.3f} s.",
                wait_s=wait_s,
            )
        if self.counters.in_flight >= self._quota(behaviour, now):
            return Refusal(
                why="concurrency",
                code="rate_limit_exceeded",
                type="requests",
                message=f"Rate limit reached: {behaviour.quota} calls are in flight. "
                f"Try again in {behaviour.retry_after_s:g} s.",
                wait_s=behaviour.retry_after_s,
            )
        return None


def duration(wait_ns: int) -> str:
    """Return a duration as OpenAI's headers write it, rounded up to a millisecond.

    >>> duration(8_640_000_000), duration(12_000_000), duration(360_000_000_000), duration(0)
    ('8.64s', '12ms', '6m0s', '0s')
    """
    ms = -(-wait_ns // 1_000_000)
    if 0 < ms < 1000:
        return f"{ms}ms"
    minutes, ms = divmod(ms, 60_000)
    seconds = f"{ms / 1000:g}s"
    if minutes < 60:
        return f"{minutes}m{seconds}" if minutes else seconds
    return f"{minutes // 60}h{minutes % 60}m{seconds}"

"""What the provider saw since its start or the last reset; only its event loop writes here."""

import dataclasses
from collections import deque
from dataclasses import dataclass, field

MINUTE_MS = 60_000


@dataclass(kw_only=True, slots=True)
class Counters:
    """Every call to /v1 has one end, so `calls` = the sum of `ENDS` + `in_flight` at every moment.

    `accepted` calls took a place in the quota. `answered`: whole 200s, `streamed` and `embeddings` of them by what they
    were. `rejected_429` is the sum of the rejected_* by reason; `errors` (neither 200 nor 429) of client_errors and
    server_errors. `hung`, `dropped` and `cut` are the faults; `abandoned` calls were worked on, but their client had
    left. Tokens are those of answered, cut and abandoned calls.
    """

    calls: int = 0
    accepted: int = 0
    answered: int = 0
    streamed: int = 0
    embeddings: int = 0
    models: int = 0
    rejected_429: int = 0
    rejected_concurrency: int = 0
    rejected_requests: int = 0
    rejected_tokens: int = 0
    rejected_too_large: int = 0
    rejected_penalty: int = 0
    errors: int = 0
    client_errors: int = 0
    server_errors: int = 0
    hung: int = 0
    dropped: int = 0
    cut: int = 0
    abandoned: int = 0
    in_flight: int = 0
    in_flight_max: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def enter(self) -> None:
        """Take a place. Whoever called this calls `leave` once."""
        self.accepted += 1
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)

    def leave(self) -> None:
        """Give the place back."""
        self.in_flight -= 1

    def reject(self, why: str) -> None:
        """Count a 429 for a reason, one of the rejected_* fields' ends."""
        self.rejected_429 += 1
        name = f"rejected_{why}"
        setattr(self, name, getattr(self, name) + 1)

    def fail(self, status: int) -> None:
        """Count an answer that is neither 200 nor 429."""
        self.errors += 1
        if status >= 500:
            self.server_errors += 1
        else:
            self.client_errors += 1

    def reset(self) -> None:
        """Set all to zero but the calls that are in flight right now."""
        now = self.in_flight
        for one in dataclasses.fields(self):
            setattr(self, one.name, 0)
        self.in_flight = self.in_flight_max = self.calls = now


ENDS = ("answered", "models", "rejected_429", "errors", "hung", "dropped", "cut", "abandoned")


@dataclass(kw_only=True, slots=True)
class WorstMinute:
    """The most that any 60 seconds held: a window that slides with every event, not one cut by the clock.

    Kept by the millisecond, so that a minute of hammering fits in memory; the window is up to 1 ms longer for it.
    """

    amount_max: int = 0
    _amount: int = 0
    _events: deque[tuple[int, int]] = field(default_factory=deque)

    def add(self, now_ns: int, amount: int) -> None:
        """Count `amount` at `now_ns`; times never go back."""
        events, now_ms = self._events, now_ns // 1_000_000
        if events and events[-1][0] == now_ms:
            events[-1] = (now_ms, events[-1][1] + amount)
        else:
            events.append((now_ms, amount))
        self._amount += amount
        while events[0][0] < now_ms - MINUTE_MS:
            self._amount -= events.popleft()[1]
        self.amount_max = max(self.amount_max, self._amount)

    def reset(self) -> None:
        """Forget everything."""
        self._events.clear()
        self._amount = self.amount_max = 0

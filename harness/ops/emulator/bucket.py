"""A rate limit as a bucket (GCRA in its bucket form) in whole numbers: what it lets in is exact, to the nanosecond.

A bucket of rate r a minute and burst b seconds holds r * b / 60 (at least 1) and refills at r a minute all the time,
as the big providers do it; with b = 60 the bucket is one minute's worth. So in any w seconds it lets in at most
r * (b + w) / 60: after a rest, a minute can hold twice r at b = 60, and 1.08 r at b = 5.
A refusal takes nothing. The time is passed in, never read.
"""

UNIT = 60_000_000_000  # of one request or token: with time in ns, a rate of r a minute is r units a ns


class Bucket:
    """Room for requests or tokens. Times are ns of one clock; a clock that goes back changes nothing."""

    __slots__ = ("_at_ns", "_capacity", "_rate", "_spent")

    def __init__(self, *, per_minute: int, burst_s: float, now_ns: int) -> None:
        self._at_ns = now_ns
        self._spent = 0
        self._rate = self._capacity = 0
        self.change(per_minute=per_minute, burst_s=burst_s, now_ns=now_ns)

    def change(self, *, per_minute: int, burst_s: float, now_ns: int) -> None:
        """Set rate and size from now on; what was spent stays spent and comes back at the new rate."""
        self._refill(now_ns)
        self._rate = per_minute
        self._capacity = max(per_minute * round(burst_s * 1e9), UNIT) if per_minute else 0

    def wait_ns(self, amount: int, now_ns: int) -> int | None:
        """Return how long until there is room for `amount`: 0 is now, None is never (rate 0, or larger than it)."""
        self._refill(now_ns)
        over = self._spent + amount * UNIT - self._capacity
        if over <= 0:
            return 0
        if amount * UNIT > self._capacity:
            return None
        return -(-over // self._rate)

    def take(self, amount: int, now_ns: int) -> None:
        """Spend `amount`; ask `wait_ns` first."""
        self._refill(now_ns)
        self._spent += amount * UNIT

    def left(self, now_ns: int) -> int:
        """Return how many whole ones there is room for."""
        self._refill(now_ns)
        return max(0, self._capacity - self._spent) // UNIT

    def full_in_ns(self, now_ns: int) -> int:
        """Return how long until nothing is spent any more; a day when the rate is 0."""
        self._refill(now_ns)
        return -(-self._spent // self._rate) if self._rate else 86_400_000_000_000

    @property
    def size(self) -> int:
        """The most that can be let in at once."""
        return self._capacity // UNIT

    def _refill(self, now_ns: int) -> None:
        passed_ns = now_ns - self._at_ns
        if passed_ns > 0:
            self._at_ns = now_ns
            if self._spent:
                self._spent = max(0, self._spent - self._rate * passed_ns)

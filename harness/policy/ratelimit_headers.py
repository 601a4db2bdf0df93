"""What a provider says of its limits in the headers of an answer: numbers that may be believed, or nothing.

`read` takes any mapping, from any server, and never raises. A value that is malformed, negative, not finite or absurd
is ignored, a limit of 0 too (a provider that lets nobody in says so with a 429); waits are clamped. So whoever gets a
`RateHeaders` may compute with it: 1 <= limit, 0 <= remaining <= limit, waits finite and >= 0.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.policy.retry import RETRY_AFTER_CAP_S

RESET_MOST_S = 86_400.0  # a bucket of a day
COUNT_MOST = 10**12  # requests or tokens a minute: beyond, it is no limit
_CHARACTERS = 64  # longer is no number, and no date

_NUMBER = re.compile(r"\+?(\d{1,15}(?:\.\d{0,9})?|\.\d{1,9})(?:[eE]\+?(\d))?")
_WHOLE = re.compile(r"\+?(\d{1,15})(?:\.0*)?")
_DURATION = re.compile(r"(?:(\d{1,9}(?:\.\d{1,9})?)d)?(?:(\d{1,9}(?:\.\d{1,9})?)h)?(?:(\d{1,9}(?:\.\d{1,9})?)m(?!s))?"
                       r"(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,9}(?:\.\d{1,9})?)ms)?")  # fmt: skip
_UNITS_S = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = r"(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})"
# Of RFC 9110: the one that servers should write, and two that they once did.
_DATES = (
    re.compile(
        r"(?:[A-Za-z]{3,9},\s*)?(?P<day>\d{1,2})[ -](?P<month>[A-Za-z]{3})[ -](?P<year>\d{4}|\d{2}) "
        + _CLOCK
        + r"(?: (?:GMT|UTC|Z|[+-]0000))?"
    ),
    re.compile(r"[A-Za-z]{3} (?P<month>[A-Za-z]{3})\s+(?P<day>\d{1,2}) " + _CLOCK + r" (?P<year>\d{4})"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RateHeaders:
    """What was said, and can be so. `reset_*_s`: seconds until the bucket is full; `retry_after_s`: a floor."""

    limit_requests: int | None = None
    remaining_requests: int | None = None
    reset_requests_s: float | None = None
    limit_tokens: int | None = None
    remaining_tokens: int | None = None
    reset_tokens_s: float | None = None
    retry_after_s: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said."""
        return self == NOTHING

    @property
    def used_up(self) -> bool:
        """Whether a bucket has nothing left: then a 429 is of the rate, not of calls at a time."""
        return self.remaining_requests == 0 or self.remaining_tokens == 0


NOTHING = RateHeaders()


def read(headers: Mapping[str, str], *, now_s: float) -> RateHeaders:
    """Return what headers say, whatever the case of their names. `now_s`: epoch seconds, for Retry-After as a date.

    >>> read({"X-RateLimit-Remaining-Tokens": "70", "x-ratelimit-limit-tokens": "50", "Retry-After": "-1"}, now_s=0.0)
    RateHeaders(limit_requests=None, remaining_requests=None, reset_requests_s=None, limit_tokens=50, \
remaining_tokens=50, reset_tokens_s=None, retry_after_s=None)
    """
    said: dict[str, str] = {}
    for name, value in headers.items():
        lower = _text(name).lower()
        if lower.startswith(("x-ratelimit-", "retry-after")):
            said[lower] = _text(value)
    if not said:
        return NOTHING
    requests, tokens = _bucket(said, "requests"), _bucket(said, "tokens")
    return RateHeaders(
        limit_requests=requests[0],
        remaining_requests=requests[1],
        reset_requests_s=requests[2],
        limit_tokens=tokens[0],
        remaining_tokens=tokens[1],
        reset_tokens_s=tokens[2],
        retry_after_s=_wait_s(said, now_s),
    )


def retry_after_s(value: str, *, now_s: float) -> float | None:
    """Return the seconds that a Retry-After asks for, 0 to RETRY_AFTER_CAP_S; None when it says nothing usable.

    A date that has passed is 0. `now_s`: epoch seconds.

    >>> retry_after_s("2", now_s=0.0), retry_after_s("86400", now_s=0.0), retry_after_s("-5", now_s=0.0)
    (2.0, 900.0, None)
    >>> retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", now_s=50.0), retry_after_s("soon", now_s=50.0)
    (10.0, None)
    """
    text = value.strip()
    seconds = _seconds(text)
    if seconds is None:
        at_s = _date_s(text)
        seconds = None if at_s is None else max(0.0, at_s - now_s)
    return None if seconds is None else min(seconds, RETRY_AFTER_CAP_S)


def _text(value: object) -> str:
    """Some clients hand headers over as bytes, as numbers, or as nothing."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _wait_s(said: Mapping[str, str], now_s: float) -> float | None:
    # The exact one goes before the one in whole seconds.
    ms = _seconds(said.get("retry-after-ms", "").strip())
    if ms is not None:
        return min(ms / 1000, RETRY_AFTER_CAP_S)
    return retry_after_s(said.get("retry-after", ""), now_s=now_s)


def _bucket(said: Mapping[str, str], unit: str) -> tuple[int | None, int | None, float | None]:
    """Return (limit, remaining, seconds until it is full) of one bucket."""
    limit = _count(said.get(f"x-ratelimit-limit-{unit}", ""))
    remaining = _count(said.get(f"x-ratelimit-remaining-{unit}", ""))
    if limit == 0:  # nonsense, and what it says beside it as well
        return None, None, None
    if limit is not None and remaining is not None:
        remaining = min(limit, remaining)
    return limit, remaining, _duration_s(said.get(f"x-ratelimit-reset-{unit}", "").strip())


def _count(text: str) -> int | None:
    found = _WHOLE.fullmatch(text.strip()[:_CHARACTERS])
    number = int(found[1]) if found and found[1].isascii() else COUNT_MOST + 1
    return number if number <= COUNT_MOST else None


def _seconds(text: str) -> float | None:
    found = _NUMBER.fullmatch(text) if len(text) <= _CHARACTERS and text.isascii() else None
    return float(found[0]) if found else None


def _duration_s(text: str) -> float | None:
    """Return a reset in seconds: a number of them, or as Go writes it ('6m0s', '12ms').

    >>> _duration_s("1h2m3.5s"), _duration_s("12ms"), _duration_s("8"), _duration_s(""), _duration_s("tomorrow")
    (3723.5, 0.012, 8.0, None, None)
    """
    seconds = _seconds(text)
    if seconds is None:
        found = _DURATION.fullmatch(text) if 0 < len(text) <= _CHARACTERS and text.isascii() else None
        if found is None:
            return None
        seconds = sum(float(part) * unit_s for part, unit_s in zip(found.groups(), _UNITS_S, strict=True) if part)
    return min(seconds, RESET_MOST_S)


def _date_s(text: str) -> float | None:
    """Return an HTTP date in epoch seconds.

    >>> _date_s("Sun, 06 Nov 1994 08:49:37 GMT") == _date_s("Sunday, 06-Nov-94 08:49:37 GMT") == 784111777.0
    True
    >>> _date_s("Sun Nov  6 08:49:37 1994"), _date_s("Sun, 31 Feb 2027 08:49:37 GMT")
    (784111777.0, None)
    """
    if len(text) > _CHARACTERS or not text.isascii():
        return None
    found = next((match for date in _DATES if (match := date.fullmatch(text))), None)
    if found is None or found["month"].lower() not in _MONTHS:
        return None
    year, month, day = int(found["year"]), _MONTHS.index(found["month"].lower()) + 1, int(found["day"])
    if len(found["year"]) == 2:
        year += 1900 if year >= 70 else 2000
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"])
    if not (1970 <= year <= 9999 and 1 <= day <= _days_of(year, month) and hour < 24 and minute < 60 and second <= 60):
        return None
    return float(_days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)


def _days_of(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01, by the calendar in which March begins the year."""
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    return year * 365 + year // 4 - year // 100 + year // 400 + (month * 153 + 2) // 5 + day - 719_469

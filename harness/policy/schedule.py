"""When a schedule fires: a cron expression and a time zone in, moments out, in epoch seconds.

Rules:
S1  Five fields (minute hour day-of-month month day-of-week), as Debian's cron reads them; the zone is an IANA name.
S2  An expression that names hours goes by the wall clock: each local time that it names is one firing. A time in a
    skipped hour fires once, when the clock has jumped; several of one gap fire together, as one. A time in a repeated
    hour fires the first time only.
S3  An expression whose hour field is `*` goes by elapsed time: nothing is skipped, a repeated hour fires as any other.
S4  After an outage `catch_up` decides: `skip` fires only what is at most LATE_S late, `one` fires once for all that was
    missed, `all` fires each, the newest CATCH_UP_MAX of them.
S5  What doesn't fire within 50 years never fires, and is refused.

No clock is read here: datetime and zoneinfo only do the calendar's arithmetic.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Literal, get_args
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from harness.policy.errors import Invalid

CatchUp = Literal["skip", "one", "all"]
CATCH_UPS: tuple[CatchUp, ...] = get_args(CatchUp)
CRON_MAX_CHARS = 200
LATE_S = 60.0  # a leader that changes, or a busy sweep, is late by seconds; a minute's job must not be skipped for that
CATCH_UP_MAX = 100  # tasks that one schedule may bring at once after an outage

_FIRST_WINDOW_S = 3600.0
_NOT_ZONES = {"localtime", "Factory"}  # they say something else on each machine, or nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """What one look decides. `fire`: the moments to fire for, oldest first; `next_s`: the next one (None: never)."""

    fire: tuple[float, ...]
    next_s: float | None
    dropped: bool = False


def check(cron: str, zone: str, *, now_s: float) -> float:
    """Check an expression and its zone. Returns the first firing after now. Raises: Invalid naming cron or zone."""
    zone_info(zone)
    if len(cron) > CRON_MAX_CHARS or len(cron.split()) != 5:
        raise Invalid(
            'cron: needs five fields (minute hour day-of-month month day-of-week), as in "30 6 * * MON-FRI"',
            field="cron",
        )
    try:
        first = next_after(cron, zone, now_s)
    except Invalid:
        minute, hour, day, _, weekday = cron.split()
        next_after(f"{minute} {hour} {day} * {weekday}", zone, now_s)  # raises, unless only the months have no such day
        next_after(f"{minute} {hour} 1 {cron.split()[3]} {weekday}", zone, now_s)
        first = None
    if first is None:
        raise Invalid("cron: never fires: no date of the next 50 years fits it", field="cron")
    return first


def next_after(cron: str, zone: str, after_s: float) -> float | None:
    """Return the first moment after `after_s` (None: there is none). Raises: Invalid naming cron or zone.

    >>> utc = next_after("0 12 * * *", "UTC", 0.0)
    >>> utc, next_after("0 12 * * *", "Asia/Tokyo", 0.0)
    (43200.0, 10800.0)
    """
    return next(moments(cron, zone, after_s), None)


def moments(cron: str, zone: str, after_s: float) -> Iterator[float]:
    """Yield the moments after `after_s`, in order, each once. Raises: Invalid naming cron or zone."""
    info = zone_info(zone)
    by_wall_clock = cron.split()[1:2] != ["*"]
    start = datetime.fromtimestamp(after_s, info)
    try:
        ticks = CronSim(cron, start.replace(tzinfo=None, fold=0) if by_wall_clock else start)
    except CronSimError as error:
        reason = str(error)
        raise Invalid(f"cron: {reason[:1].lower()}{reason[1:]} in {cron[:80]!r}", field="cron") from None
    last_s = after_s
    try:
        for tick in ticks:
            moment_s = _moment(tick, info) if by_wall_clock else tick.timestamp()
            if moment_s > last_s:  # else the second pass through a repeated hour, or one gap's second firing
                last_s = moment_s
                yield moment_s
    except OverflowError:  # the calendar ends
        return


def due(cron: str, zone: str, catch_up: CatchUp, *, next_s: float, now_s: float) -> Due:
    """Decide what to fire of a schedule that was to fire at `next_s`. Raises: Invalid naming cron or zone.

    >>> minute, hour = 60.0, 3600.0
    >>> due("0 * * * *", "UTC", "one", next_s=hour, now_s=4 * hour + 5 * minute)
    Due(fire=(14400.0,), next_s=18000.0, dropped=True)
    >>> due("0 * * * *", "UTC", "skip", next_s=hour, now_s=4 * hour + 5 * minute).fire
    ()
    >>> due("0 * * * *", "UTC", "all", next_s=hour, now_s=4 * hour + 5 * minute).fire
    (3600.0, 7200.0, 10800.0, 14400.0)
    """
    if next_s > now_s:
        return Due(fire=(), next_s=next_s)
    missed, dropped = _newest(cron, zone, next_s, now_s, CATCH_UP_MAX if catch_up == "all" else 1)
    missed = missed or [next_s]  # promised, though the zone's rules have changed since
    if catch_up == "skip" and now_s - missed[-1] > LATE_S:
        missed, dropped = [], True
    return Due(fire=tuple(missed), next_s=next_after(cron, zone, now_s), dropped=dropped)


def _newest(cron: str, zone: str, first_s: float, now_s: float, most: int) -> tuple[list[float], bool]:
    """The newest `most` moments from first_s to now_s, and whether there were more. Cost: `most`, not the span."""
    window_s = _FIRST_WINDOW_S
    while True:
        start_s = max(first_s, now_s - window_s)
        found: list[float] = []
        for moment_s in moments(cron, zone, start_s - 1):
            if moment_s > now_s:
                break
            if moment_s >= start_s:
                found.append(moment_s)
        if len(found) > most or (found and most == 1) or start_s == first_s:
            more = len(found) > most or (start_s > first_s and bool(found))
            return found[-most:], more
        window_s *= 8


def _moment(local: datetime, info: tzinfo) -> float:
    """The moment of a wall-clock time: the first of two; of one that was skipped, when the clock had jumped."""
    while True:
        moment_s = local.replace(tzinfo=info).timestamp()
        if datetime.fromtimestamp(moment_s, info).replace(tzinfo=None, fold=0) == local:
            return moment_s
        local += timedelta(minutes=1)


def zone_info(name: str) -> tzinfo:
    """Return a time zone. Raises: Invalid (zone)."""
    if name == "UTC":
        return UTC  # needs no database of zones
    if name not in _zones():
        raise Invalid(
            f"zone: there is no time zone {name[:80]!r}; name one of the IANA database, as in Europe/Berlin, or UTC",
            field="zone",
        )
    return ZoneInfo(name)


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones() - _NOT_ZONES)

"""Times as people read them: clock times in UTC, durations, ranges. A number and its unit never part."""

from datetime import UTC, datetime

from django.utils.html import format_html
from django.utils.safestring import SafeString

NB = "\u00a0"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


def clock(at: datetime, now: datetime, *, seconds: bool = False) -> str:
    """Return a moment: its time, with its day where that is another one than today's.

    >>> from datetime import timedelta
    >>> noon = datetime(2026, 5, 4, 12, 0, 9, tzinfo=UTC)
    >>> clock(noon, noon), clock(noon, noon, seconds=True), clock(noon, noon + timedelta(days=1))
    ('12:00', '12:00:09', '12:00 on 4\\xa0May')
    """
    moment, today = at.astimezone(UTC), now.astimezone(UTC)
    said = f"{moment:%H:%M:%S}" if seconds else f"{moment:%H:%M}"
    if moment.date() == today.date():
        return said
    year = "" if moment.year == today.year else f"{NB}{moment.year}"
    return f"{said} on {moment.day}{NB}{moment:%b}{year}"


def stamp(at: datetime, now: datetime, *, seconds: bool = False) -> SafeString:
    """Return a moment as an element that programs can read, too."""
    return format_html(
        '<time datetime="{}">{}</time>',
        at.astimezone(UTC).isoformat(timespec="seconds"),
        clock(at, now, seconds=seconds),
    )


def lasted(seconds: float) -> str:
    """Return how long something took.

    >>> [lasted(s) for s in (0.4, 48, 378, 7260, 90000, 1e7)]
    ['0.4\\xa0s', '48\\xa0s', '6\\xa0min\\xa018\\xa0s', '2\\xa0h\\xa001\\xa0min', '1\\xa0d\\xa01\\xa0h', '115\\xa0d']
    """
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}{NB}s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole}{NB}s"
    if whole < HOUR:
        return f"{whole // 60}{NB}min{NB}{whole % 60:02d}{NB}s"
    if whole < DAY:
        return f"{whole // 3600}{NB}h{NB}{whole % 3600 // 60:02d}{NB}min"
    days, rest = divmod(whole, 86_400)
    return f"{days}{NB}d{NB}{rest // 3600}{NB}h" if days < 10 and rest >= 3600 else f"{days}{NB}d"


def about(seconds: float) -> str:
    """Return a length of time as a forecast may say it: to the minute below an hour, then coarser.

    >>> [about(s) for s in (4, 50, 130, 4000, 30000, 200000)]
    ['a few seconds', '1\\xa0min', '2\\xa0min', '1\\xa0h\\xa005\\xa0min', '8\\xa0h\\xa030\\xa0min', '2\\xa0d']
    """
    if seconds < 30:
        return "a few seconds"
    step = MINUTE if seconds < HOUR else 5 * MINUTE if seconds < 6 * HOUR else 30 * MINUTE
    minutes = max(1, round(seconds / step) * round(step / MINUTE))
    if minutes < 60:
        return f"{minutes}{NB}min"
    if minutes < 48 * 60:
        return f"{minutes // 60}{NB}h" + (f"{NB}{minutes % 60:02d}{NB}min" if minutes % 60 else "")
    return f"{round(minutes / 1440)}{NB}d"


def between(first: datetime, last: datetime | None, now: datetime) -> str:
    """Return a range of moments: "between 14:41 and 14:52", or "at about" where both are the same minute.

    >>> from datetime import timedelta
    >>> noon = datetime(2026, 5, 4, 12, tzinfo=UTC)
    >>> between(noon, noon + timedelta(minutes=9), noon), between(noon, noon, noon)
    ('between 12:00 and 12:09', 'at about 12:00')
    >>> between(noon, None, noon)
    'at 12:00 or later'
    """
    early = clock(_coarse(first, now, up=False), now)
    if last is None:
        return f"at {early} or later"
    late = clock(_coarse(last, now, up=True), now)
    return f"at about {early}" if early == late else f"between {early} and {late}"


def length(first: datetime, last: datetime | None, now: datetime) -> str:
    """Return a range of moments as lengths from now: "in 10 to 21 min".

    >>> from datetime import timedelta
    >>> noon = datetime(2026, 5, 4, 12, tzinfo=UTC)
    >>> length(noon + timedelta(minutes=10), noon + timedelta(minutes=21), noon)
    'in 10 to 21\\xa0min'
    >>> length(noon, noon + timedelta(seconds=9), noon), length(noon, noon + timedelta(hours=2), noon)
    ('in a few seconds', 'within 2\\xa0h')
    """
    early_s = (first - now).total_seconds()
    if last is None:
        return f"in {about(early_s)} or more"
    late = about((last - now).total_seconds())
    if early_s < 30:
        return f"in {late}" if late == "a few seconds" else f"within {late}"
    early = about(early_s)
    if early == late:
        return f"in {early}"
    number, _, unit = early.partition(NB)
    return f"in {number} to {late}" if late.endswith(f"{NB}{unit}") and late.count(NB) == 1 else f"in {early} to {late}"


def _coarse(at: datetime, now: datetime, *, up: bool) -> datetime:
    """To the minute within an hour, to 5 minutes within 6, else to the half hour; never narrower than it was."""
    away_s = abs((at - now).total_seconds())
    step = 60 if away_s < HOUR else 300 if away_s < 6 * HOUR else 1800
    whole = int(at.timestamp()) // step * step
    if up and whole < at.timestamp():
        whole += step
    return datetime.fromtimestamp(whole, UTC)

"""When schedules fire: tables of the days on which clocks change, outages, and what is refused."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.policy import schedule
from harness.policy.errors import Invalid
from harness.policy.schedule import CATCH_UP_MAX, CATCH_UPS, LATE_S, CatchUp, due, moments, next_after

BERLIN, NEW_YORK, LORD_HOWE, APIA = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"


def at(text: str) -> float:
    """Epoch seconds of an ISO time with offset."""
    return datetime.fromisoformat(text).timestamp()


def local(cron: str, zone: str, after: str, n: int) -> list[str]:
    return [
        datetime.fromtimestamp(moment, ZoneInfo(zone)).isoformat()
        for moment in islice(moments(cron, zone, at(after)), n)
    ]


# In Berlin 2026-03-29 02:00 becomes 03:00, and on 2026-10-25 03:00 becomes 02:00 again.
CLOCK_CHANGES = [
    # a time in the skipped hour fires once, when the clock has jumped
    ("30 2 * * *", BERLIN, "2026-03-28T12:00+01:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
    # several times of one gap are one firing, also with one that is due at the jump anyway
    ("*/20 2,3 * * *", BERLIN, "2026-03-29T00:00+01:00", ["2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00"]),
    ("0 2,3 * * *", BERLIN, "2026-03-29T00:00+01:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"]),
    # a time in the repeated hour fires the first time only
    ("30 2 * * *", BERLIN, "2026-10-24T12:00+02:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
    ("0,45 2 * * *", BERLIN, "2026-10-25T00:00+02:00", ["2026-10-25T02:00:00+02:00", "2026-10-25T02:45:00+02:00"]),
    # also when the schedule is made in the second pass through that hour
    ("30 2 * * *", BERLIN, "2026-10-25T02:10+01:00", ["2026-10-26T02:30:00+01:00"]),
    ("30 2 * * *", BERLIN, "2026-10-25T02:40+02:00", ["2026-10-26T02:30:00+01:00"]),
    # every hour goes by elapsed time: nothing is skipped, and the repeated hour has its own firing
    ("30 * * * *", BERLIN, "2026-03-29T01:00+01:00", ["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"]),
    ("30 * * * *", BERLIN, "2026-10-25T02:00+02:00", ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]),
    # every second hour names hours
    (
        "0 */2 * * *",
        BERLIN,
        "2026-03-28T23:00+01:00",
        ["2026-03-29T00:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"],
    ),
    ("0 */2 * * *", BERLIN, "2026-10-25T01:00+02:00", ["2026-10-25T02:00:00+02:00", "2026-10-25T04:00:00+01:00"]),
    ("15 2 * * *", NEW_YORK, "2026-03-07T12:00-05:00", ["2026-03-08T03:00:00-04:00", "2026-03-09T02:15:00-04:00"]),
    ("15 1 * * *", NEW_YORK, "2026-10-31T12:00-04:00", ["2026-11-01T01:15:00-04:00", "2026-11-02T01:15:00-05:00"]),
    # half an hour is skipped, and repeated
    ("15 2 * * *", LORD_HOWE, "2026-10-03T12:00+10:30", ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"]),
    ("45 1 * * *", LORD_HOWE, "2026-04-04T12:00+11:00", ["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"]),
    # a whole day that never was
    ("0 9 * * *", APIA, "2011-12-29T12:00-10:00", ["2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00"]),
    # midnight itself is skipped
    ("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00+02:00", ["2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00"]),
]


@pytest.mark.parametrize(("cron", "zone", "after", "expected"), CLOCK_CHANGES)
def test_clock_changes_neither_lose_nor_double_a_firing(cron: str, zone: str, after: str, expected: list[str]) -> None:
    assert local(cron, zone, after, len(expected)) == expected
    assert list(islice(moments(cron, zone, at(after)), 20)) == sorted(set(islice(moments(cron, zone, at(after)), 20)))


@pytest.mark.parametrize(
    ("cron", "zone", "field", "says"),
    [
        ("0 0 30 2 *", "UTC", "cron", "never fires"),
        ("0 0 31 4,6,9,11 *", "UTC", "cron", "never fires"),
        ("0 0 31 feb *", "UTC", "cron", "never fires"),
        ("60 * * * *", "UTC", "cron", "bad minute"),
        ("0 0 32 * *", "UTC", "cron", "bad day-of-month"),
        ("0 0 * 13 *", "UTC", "cron", "bad month"),
        ("* * * *", "UTC", "cron", "five fields"),
        ("0 * * * * *", "UTC", "cron", "five fields"),
        ("@daily", "UTC", "cron", "five fields"),
        ("", "UTC", "cron", "five fields"),
        ("*/0 * * * *", "UTC", "cron", "bad minute"),
        ("a b c d e", "UTC", "cron", "bad minute"),
        ("0 0 * * *", "Mars/Base", "zone", "Europe/Berlin"),
        ("0 0 * * *", "Europe", "zone", "no time zone"),
        ("0 0 * * *", "localtime", "zone", "no time zone"),
        ("0 0 * * *", "../../etc/passwd", "zone", "no time zone"),
        ("0 0 * * *", "", "zone", "no time zone"),
        ("0 0 * * *", "UTC\x00", "zone", "no time zone"),
    ],
)
def test_what_never_fires_or_names_no_zone_is_refused_naming_the_field(
    cron: str, zone: str, field: str, says: str
) -> None:
    with pytest.raises(Invalid, match=says) as raised:
        schedule.check(cron, zone, now_s=at("2026-01-01T00:00Z"))
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("cron", "first"),
    [
        ("0 0 29 2 *", "2028-02-29T00:00:00+00:00"),
        ("0 0 * 2 MON#5", "2044-02-29T00:00:00+00:00"),  # the only leap February with five Mondays for 28 years
        ("0 0 L * *", "2026-01-31T00:00:00+00:00"),
        ("0 0 13 * FRI", "2026-01-02T00:00:00+00:00"),  # either day, as in Debian's cron
        ("0 0 31 2 FRI", "2026-02-06T00:00:00+00:00"),
    ],
)
def test_rare_dates_are_found(cron: str, first: str) -> None:
    assert schedule.check(cron, "UTC", now_s=at("2026-01-01T00:00Z")) == at(first)


@given(st.text(max_size=20), st.text(max_size=10))
def test_any_text_is_a_schedule_or_is_refused(cron: str, zone: str) -> None:
    for text, where in ((cron, "UTC"), ("0 0 * * *", zone)):
        field: str | None = "cron"
        try:
            assert schedule.check(text, where, now_s=1.8e9) > 1.8e9
        except Invalid as error:
            field = error.field
        assert field in {"cron", "zone"}


@st.composite
def crons(draw: st.DrawFn) -> str:
    minute = draw(st.sampled_from(["0", "30", "*/7", "0,15,59", "*"]))
    hour = draw(st.sampled_from(["*", "2", "0,1,2,3", "*/3", "23"]))
    day = draw(st.sampled_from(["*", "1", "28-31", "L"]))
    return f"{minute} {hour} {day} * {draw(st.sampled_from(['*', 'SUN', '1-5']))}"


ZONES = [BERLIN, NEW_YORK, LORD_HOWE, "UTC", "Asia/Kathmandu", "America/Havana"]


@settings(max_examples=200)
@given(crons(), st.sampled_from(ZONES), st.integers(1_700_000_000, 1_900_000_000))
def test_each_wall_clock_time_fires_at_most_once_and_each_moment_fits_unless_it_was_shifted(
    cron: str, zone: str, after: int
) -> None:
    found = list(islice(moments(cron, zone, after), 30))
    assert all(one > after for one in found) and found == sorted(set(found))
    assert next_after(cron, zone, after) == found[0]
    if len(found) > 1:  # asked again from what was answered, the answer goes on
        assert next_after(cron, zone, found[0]) == found[1]
    if cron.split()[1] != "*":
        walls = [datetime.fromtimestamp(one, ZoneInfo(zone)).replace(tzinfo=None) for one in found]
        assert len(set(walls)) == len(walls)


@settings(max_examples=60, deadline=None)
@given(crons(), st.sampled_from(ZONES), st.integers(1_700_000_000, 1_900_000_000), st.integers(0, 400_000))
def test_an_outage_is_caught_up_as_the_schedule_says(cron: str, zone: str, start: int, outage_s: int) -> None:
    first = next_after(cron, zone, start)
    assert first is not None
    now = first + outage_s
    missed = [first]
    for moment in moments(cron, zone, first):
        if moment > now:
            break
        missed.append(moment)
    following = next_after(cron, zone, now)
    decided = {one: due(cron, zone, one, next_s=first, now_s=now) for one in CATCH_UPS}
    assert {one.next_s for one in decided.values()} == {following}
    assert decided["one"].fire == (missed[-1],)
    assert decided["all"].fire == tuple(missed[-CATCH_UP_MAX:])
    assert decided["all"].dropped == (len(missed) > CATCH_UP_MAX)
    assert decided["skip"].fire == ((missed[-1],) if now - missed[-1] <= LATE_S else ())


@pytest.mark.parametrize("catch_up", CATCH_UPS)
def test_a_moment_fires_within_a_minute_whatever_the_catch_up(catch_up: CatchUp) -> None:
    noon = at("2026-06-01T12:00Z")
    assert due("0 12 * * *", "UTC", catch_up, next_s=noon, now_s=noon + 59).fire == (noon,)
    early = due("0 12 * * *", "UTC", catch_up, next_s=noon, now_s=noon - 0.001)
    assert (early.fire, early.next_s) == ((), noon)


def test_an_outage_of_years_costs_no_more_than_what_is_fired() -> None:
    decided = due("* * * * *", BERLIN, "all", next_s=at("2020-01-01T00:00Z"), now_s=at("2026-01-01T00:00:30Z"))
    assert len(decided.fire) == CATCH_UP_MAX and decided.dropped
    assert decided.fire[-1] == at("2026-01-01T00:00Z")
    assert decided.next_s == at("2026-01-01T00:01Z")


def test_the_last_moment_of_the_calendar_is_the_last() -> None:
    last = datetime(9999, 12, 31, 12, tzinfo=UTC)
    assert next_after("0 0 1 1 *", "UTC", (last - timedelta(days=1)).timestamp()) is None

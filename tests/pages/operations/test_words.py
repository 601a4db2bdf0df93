"""What the operations page says and draws, from a look made by hand: the right driver, honest times, whole charts."""

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.letters import Groups
from harness.policy.pressure import SIGNALS, Level, Memory, Reading, State
from harness.policy.pressure.course import Stood
from harness.policy.resources import Live
from harness.store.evaluations import Evaluation, Used
from harness.store.operations import Now, Refused, Waiting
from harness.store.pressure import Stored
from harness.store.resources import Change, ResourceNow
from harness.web.pages.operations import banner, changes, charts, rows, signs
from harness.web.pages.operations.charts import Point
from harness.web.pages.operations.seen import Seen

AT_S = 1_790_000_000.0
LIVE = {name: Live(resource=one) for name, one in settings.HARNESS_TOPOLOGY.resources.items()}
NOBODY = Now(sessions=(), in_use={}, zombies={}, leader=None, leads=False, retries=0, retry_in_s=None)
CALM = {name: Reading(value=0.0, score=0) for name in SIGNALS}


def stored(level: Level, *, calm_s: float | None = None, age_s: float = 1.0) -> Stored:
    state = State(level=level, now_s=1000.0, asked=level, calm_s=calm_s)
    return Stored(level=level, state=state, memory=Memory(), since_s=AT_S - 1320.0, seen_s=AT_S - age_s, now_s=AT_S)


def seen(**more: object) -> Seen:
    found = Seen(
        at_s=AT_S,
        level=stored(Level.NORMAL),
        readings=CALM,
        turns=(),
        now=NOBODY,
        waiting=(),
        advice={},
        live=LIVE,
        kept={},
        limits=(),
        pauses=(),
        hour=(),
        used=(),
        refused=(),
        tenants={},
        acts=(),
        letters=Groups(items=(), looked=0, more=False),
        forecasts={},
        findings=0,
    )
    return replace(found, **more)  # type: ignore[arg-type]  # each by its name


def hot(**scores: int) -> dict[str, Reading]:
    return CALM | {name: Reading(value=1.0, score=score) for name, score in scores.items()}


def hour(**stood: Stood) -> tuple[Evaluation, ...]:
    named = {name.replace("_", ":"): one for name, one in stood.items()}
    return (Evaluation(at_s=AT_S - 5.0, level=Level.HIGH, signals={}, resources=named),)


# -- the level


def test_every_signal_has_words_and_every_level_a_sentence() -> None:
    assert signs.WORDS.keys() == SIGNALS.keys()
    for level in Level:
        told = banner.banner(seen(level=stored(level), readings=hot(demand=2)), SIGNALS)
        assert told.word == level.word.capitalize() and told.in_force and told.next and told.can


def test_the_driver_is_what_refuses_most_then_the_database_then_the_pool_with_most_behind_it() -> None:
    full = hour(llm_default=Stood(18, 18, 100, 9), tool_http=Stood(20, 19, 50, 0))
    assert banner.driver(seen(readings=hot(llm_rate_limit=2), hour=full)) == "llm:default"
    assert banner.driver(seen(readings=hot(db_pool_wait=3, llm_rate_limit=2), hour=full)) == banner.DATABASE
    waiting = (Waiting("cpu", 2, 1, 40, 9.0), Waiting("db", 2, 1, 7, 9.0))
    empty = hour(llm_default=Stood(50, 3, 0, 0))
    assert banner.driver(seen(readings=hot(queue_depth=1), waiting=waiting, hour=empty)) == "the pool cpu"
    assert banner.driver(seen()) == ""
    kept = {"llm:default": ResourceNow(resource="llm:default", limit_now=50, in_flight=49)}
    assert banner.driver(seen(readings=hot(llm_in_use=1), kept=kept)) == "llm:default", "before there is an hour"
    assert banner.shown_resource(seen(hour=full)) == "llm:default", "at normal the chart is of the busiest"


@pytest.mark.parametrize("level", [Level.ELEVATED, Level.HIGH, Level.CRITICAL])
def test_an_easing_level_says_the_earliest_moment_and_a_held_one_what_holds_it(level: Level) -> None:
    eases = banner.banner(seen(level=stored(level, calm_s=990.0)), SIGNALS).next
    lower = Level(level - 1).word
    found = re.search(rf"{lower} at (\d\d):(\d\d) at the earliest", eases)
    assert found, eases
    dwell_s = {Level.ELEVATED: 60.0, Level.HIGH: 90.0, Level.CRITICAL: 120.0}[level]
    earliest_s = AT_S + dwell_s - 10.0 - 1.0
    said_s = (int(found[1]) * 60 + int(found[2])) * 60
    assert 0.0 <= said_s - earliest_s % 86_400 < 60.0, "never early, and at most a minute late"
    high = {"retry_storm": Reading(value=1.0, score=3)}
    assert (
        "once retries has been below 80" in banner.banner(seen(level=stored(level), readings=CALM | high), SIGNALS).next
    )


def test_a_level_that_nobody_evaluates_says_so_instead_of_promising() -> None:
    told = banner.banner(seen(level=stored(Level.HIGH, calm_s=990.0, age_s=45.0)), SIGNALS).next
    assert "so the level holds" in told and "Is beat running" in told
    gone = CALM | {"llm_rate_limit": Reading(value=0.0, score=0, missing=True)}
    told = banner.banner(seen(level=stored(Level.HIGH), readings=gone), SIGNALS).next
    assert "provider 429s can’t be read" in told


# -- tables


def test_tenants_stand_by_name_with_their_share_and_the_rest_in_one_row() -> None:
    used = [Used(n, f"t{n:02}", 1.0, 20.0 - n) for n in range(1, 13)]
    waiting = (Waiting("db", 2, 1, 5, 9.0), Waiting("db", 2, 2, 5, 9.0))
    found, of_all = rows.tenants(
        seen(used=used, waiting=waiting, tenants={1: ("t01", 1.0), 2: ("t02", 3.0)}, refused=[Refused(12, "t12", 9, 0)])
    )
    assert of_all == 12 and [one.name for one in found] == [f"t{n:02}" for n in range(1, 9)] + [""]
    assert (found[0].now, found[1].now, found[2].now) == ("above its share", "below its share", "asks for no more")
    assert found[-1].refused == 9
    shares = [int(one.used.split("\u00a0")[0]) for one in found]
    assert abs(sum(shares) - 100) <= len(shares) / 2


def test_a_pool_without_workers_where_work_waits_needs_somebody() -> None:
    waiting = (Waiting("cpu", 1, 1, 40, 9.0),)
    found = {one.name: one for one in rows.pools(seen(waiting=waiting), ["cpu", "db", "system", "quarantine"])}
    assert found.keys() == {"cpu", "db"}
    assert (found["cpu"].says, found["cpu"].calm, found["cpu"].waiting) == ("No worker runs", False, (0, 40, 0, 0))
    assert (found["db"].says, found["db"].calm) == ("No worker runs", True)


# -- what changed


def test_a_limit_that_an_algorithm_moves_is_one_line_a_direction_and_small_moves_are_none() -> None:
    moves = [50, 42, 30, 18, 19, 24, 31]
    made = [
        Change(resource="a", at_s=AT_S + 5.0 * n, old=old, new=new, reason="429s", mode="drain")
        for n, (old, new) in enumerate(pairwise(moves))
    ]
    small = [Change(resource="b", at_s=AT_S, old=50, new=49, reason="", mode="drain")]
    people = [Change(resource="c", at_s=AT_S, old=50, new=5, reason="", mode="override")]
    told = [(one.what, one.detail) for one in changes.turns([*reversed(made), *small, *people])]
    assert told == [("a’s limit fell to 18", "from 50: 429s"), ("a’s limit rose to 31", "from 18: 429s")]
    assert changes.turns([]) == []


# -- charts

POINTS = st.lists(
    st.tuples(st.floats(0, 3600), st.integers(0, 500), st.integers(0, 500), st.floats(0, 1)), min_size=2, max_size=40
)


@given(POINTS, st.integers(1, 500))
def test_a_limits_chart_is_well_formed_stays_within_its_bounds_and_has_no_style(
    found: list[tuple[float, int, int, float]], quota: int
) -> None:
    points = sorted((Point(*one) for one in found), key=lambda one: one.at_s)
    drawn = charts.limit_over_time(points, name='<b>"x"', quota=quota, from_s=0.0, to_s=3600.0)
    root = ElementTree.fromstring(drawn)
    assert "style" not in drawn and root.attrib["role"] == "img" and '<b>"x"' in root.attrib["aria-label"]
    for path in root.iter("path"):
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.attrib["d"]):
            assert 0.0 <= float(x) <= 100.0 and 0.0 <= float(y) <= 150.0
    assert len([one for one in root.iter("rect") if one.attrib["class"] == "hit"]) == sum(one.hit > 0 for one in points)


@given(st.lists(st.tuples(st.floats(0, 3600), st.floats(0, 1e6)), max_size=40), st.none() | st.floats(0.001, 1e6))
def test_a_signals_line_is_well_formed_and_within_its_bounds(
    values: list[tuple[float, float]], threshold: float | None
) -> None:
    drawn = charts.line(sorted(values), from_s=0.0, to_s=3600.0, threshold=threshold)
    if not values:
        assert drawn == ""
        return
    root = ElementTree.fromstring(drawn)
    (path,) = root.iter("path")
    points = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.attrib["d"])
    assert len(points) == len(values)
    assert all(0.0 <= float(x) <= 100.0 and 0.0 <= float(y) <= 26.0 for x, y in points)


def test_where_nobody_looked_the_chart_has_a_gap() -> None:
    minutes = [*range(0, 1200, 30), *range(2400, 3600, 30)]
    points = [Point(float(at_s), 50, 10, 0.0) for at_s in minutes]
    drawn = charts.limit_over_time(points, name="x", quota=50, from_s=0.0, to_s=3600.0)
    area = re.search(r'<path d="([^"]+)" class="area"', drawn)
    assert area and area[1].count("M") == 2
    line = charts.line([(one.at_s, 1.0) for one in points], from_s=0.0, to_s=3600.0, threshold=None)
    assert line.count("M") == 2

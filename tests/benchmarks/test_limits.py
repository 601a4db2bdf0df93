"""How the scenarios about downstreams judge what a provider saw: planted courses are told for what they are."""

import doctest
import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from unittest import mock

import pytest

from benchmarks import asking
from benchmarks.drive import endless
from benchmarks.limits import chart, judge
from benchmarks.limits.judge import Row

EVERY_S = 0.25


def rows(busy: Iterable[float], quota: Iterable[float], calls: int = 2, refused: int = 0) -> list[Row]:
    """Return a row for each quarter of a second with so many in flight under such a quota."""
    return [
        Row(
            begin_s=n * EVERY_S,
            quota_s=of * EVERY_S,
            busy_s=one * EVERY_S,
            calls=calls,
            accepted=calls - refused,
            answered=calls - refused,
            rejected_429=refused,
            errors=0,
        )
        for n, (one, of) in enumerate(zip(busy, quota, strict=True))
    ]


def test_what_is_in_flight_beyond_a_quota_that_has_fallen_is_no_use_of_it() -> None:
    assert judge.utilisation(rows([50, 30, 10], [20, 20, 20])) == 0.8333
    assert judge.utilisation(rows([0, 0], [0, 0])) == 0.0


def test_the_rate_of_429_is_of_all_calls() -> None:
    assert judge.rate_429(rows([1] * 4, [1] * 4, calls=4, refused=1)) == 0.25
    assert judge.rate_429(rows([1], [1], calls=0)) == 0.0


def test_a_fall_is_over_when_the_rest_has_ended_and_the_new_quota_is_in_use() -> None:
    # 50 in flight, 20 let in from now on: 4 s until they have ended, then 2 s of too few.
    busy = [50.0] * 16 + [12.0] * 8 + [19.5] * 200
    found = judge.settled_s(rows(busy, [20] * len(busy)), EVERY_S, 0.0, 100.0)
    assert found is not None and 5.5 <= found <= 6.0
    assert judge.settled_s(rows([50] * 200, [20] * 200), EVERY_S, 0.0, 100.0) is None


def test_a_rise_is_over_when_ten_seconds_use_95_percent() -> None:
    busy = [20 + n / 4 for n in range(120)] + [50.0] * 100
    found = judge.settled_s(rows(busy, [50] * len(busy)), EVERY_S, 0.0, 60.0)
    assert found is not None and 27 <= found <= 28, "27.5 s after the step 47.5 are in flight"
    assert judge.settled_s(rows([20] * 100, [50] * 100), EVERY_S, 0.0, 25.0) is None


def test_a_step_is_followed_in_the_first_second_near_the_quota() -> None:
    busy = [50.0] * 16 + [12.0] * 8 + [19.5] * 200
    assert judge.followed_s(rows(busy, [20] * len(busy)), EVERY_S, 0.0, 56.0) == 7.0
    assert judge.followed_s(rows([12] * 40, [20] * 40), EVERY_S, 0.0, 10.0) is None


def test_calls_have_fallen_when_few_come_for_as_long_as_it_counts() -> None:
    calls = [40] * 20 + [0] * 40 + [40] * 4 + [0] * 160
    found = [
        Row(begin_s=n / 4, quota_s=0, busy_s=0, calls=one, accepted=0, answered=0, rejected_429=one, errors=0)
        for n, one in enumerate(calls)
    ]
    assert judge.falls_below_s(found, EVERY_S, 0.0, 56.0, 0.5, over_s=10.0) == 5.0
    assert judge.falls_below_s(found, EVERY_S, 0.0, 56.0, 0.5, over_s=11.0) == 16.0
    assert judge.falls_below_s(found[:64], EVERY_S, 0.0, 16.0, 0.5, over_s=11.0) is None
    assert judge.by_second(found[18:26], EVERY_S, lambda row: row.calls) == [80.0, 0.0]


def test_estimates_are_wrong_both_ways_and_the_same_in_every_process() -> None:
    wanted = {"url": "http://nobody", "tokens": 1000, "spread": 0.7, "wrong": 2.0}
    asking._wanted.cache_clear()
    with mock.patch.dict(os.environ, {asking.VARIABLE: json.dumps(wanted)}):
        tokens = [asking.tokens_of(i) for i in range(4000)]
        assert tokens == [asking.tokens_of(i) for i in range(4000)]
        assert sum(tokens) / 4000 == pytest.approx(1000, rel=0.05)
        assert all(
            asking.estimate_of(i) == pytest.approx(tokens[i] * (2 if i % 2 == 0 else 0.5), abs=1) for i in (4, 7)
        )
    asking._wanted.cache_clear()


def test_the_arguments_of_an_endless_command_outlive_the_filling_in_of_places() -> None:
    line = endless("a.module", "feed", of="call", keep=3).format(python="py")
    assert line == """py -m benchmarks.drive a.module feed '{"of": "call", "keep": 3}'"""


def test_the_chart_is_a_picture_with_a_line_for_each_arm() -> None:
    one = {"calls_by_s": [10.0, 0.2, 9.0], "in_flight_by_s": [50.0, 0.0, 50.0], "refused_at_s": [1.0, 2.0]}
    picture = ElementTree.fromstring(chart.sustained({"harness": one, "celery": one}))
    assert len(picture.findall("{http://www.w3.org/2000/svg}polyline")) == 4


def test_the_examples_hold() -> None:
    assert doctest.testmod(judge).failed == 0

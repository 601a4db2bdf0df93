"""How the scenario autoscale judges a number of workers, and how Celery's expert scales."""

import doctest

from benchmarks.scaling import judge, rules


def test_what_left_again_does_not_make_up_for_what_was_added() -> None:
    counts = [(0.0, 1), (10.0, 3), (20.0, 1), (30.0, 2)]
    assert judge.added(counts, 5.0, 25.0) == 2
    assert judge.added(counts, 5.0, 30.0) == 3
    assert judge.added(counts, 12.0, 19.0) == 0


def test_a_count_that_only_grows_or_only_shrinks_has_no_change_of_direction() -> None:
    grows = [(0.0, 1), (10.0, 2), (20.0, 5)]
    assert judge.direction_changes(grows, 0.0, 30.0) == 0
    assert judge.direction_changes([*grows, (25.0, 4), (26.0, 3)], 0.0, 30.0) == 1
    assert judge.direction_changes([*grows, (25.0, 4), (26.0, 3)], 21.0, 30.0) == 0


def test_the_best_count_is_the_smallest_that_gives_nearly_all() -> None:
    assert judge.best({1: 4.0, 2: 8.0, 3: 10.0, 4: 10.2, 5: 10.5}) == 3
    assert judge.best({1: 1.0}) == 1


def test_a_count_is_near_from_when_on_it_stays_near() -> None:
    counts = [(0.0, 1), (20.0, 3), (40.0, 6), (50.0, 4)]
    assert judge.near_after_s(counts, 3, 10.0, 90.0) == 40.0
    assert judge.near_after_s(counts, 3, 10.0, 45.0) is None
    assert judge.near_after_s(counts, 4, 60.0, 90.0) == 0.0


def test_the_expert_goes_up_at_once_and_down_after_five_minutes() -> None:
    rule = rules.ByLength(least=1, most=4)
    asked = [(1000, 0.0), (0, 15.0), (0, 299.0), (0, 301.0), (30, 316.0)]
    assert [rule.desired(waiting, at_s).desired for waiting, at_s in asked] == [4, 4, 4, 1, 2]


def test_the_products_advice_is_read_by_pool_with_its_reason() -> None:
    rows = [
        {"pool": "cpu", "desired": 1, "binds": "floor", "reason": "nothing waits", "holds": False},
        {"pool": "llm", "desired": 3, "binds": "llm:default", "reason": "adding workers will not help", "holds": True},
    ]
    told = rules.read({"pools": rows}, "llm")
    assert told == rules.Advice(3, "llm:default", "adding workers will not help", holds=True)
    assert told.same(rules.Advice(3, "llm:default", "in other words", holds=True))
    assert rules.read({"pools": []}, "llm").holds


def test_the_examples_hold() -> None:
    assert [doctest.testmod(module).failed for module in (judge, rules)] == [0, 0]

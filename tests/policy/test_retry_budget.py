"""Retries are a share of first attempts, and no quiet hour buys a storm."""

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.retry_budget import KEEP_S, MOST, OWED_S, PER_S, RATIO, Budget, first, grown, owe, take

NOW_S = 1000.0


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 5)), max_size=300))
def test_retries_are_a_tenth_of_first_attempts_and_one_in_two_seconds(asks: list[tuple[bool, float]]) -> None:
    budget, now_s, firsts, retries = Budget(), NOW_S, 0, 0
    for retry, passed_s in asks:
        now_s += passed_s
        if retry:
            retries += take(budget, now_s) == 0
        else:
            first(budget, now_s)
            firsts += 1
        assert retries <= RATIO * firsts + PER_S * (now_s - NOW_S) + PER_S * KEEP_S + 1e-6
        assert budget.tokens <= MOST


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 5)), max_size=50))
def test_the_wait_that_it_names_suffices_and_taking_nothing_changes_no_balance(asks: list[tuple[bool, float]]) -> None:
    budget, now_s = Budget(), NOW_S
    for retry, passed_s in asks:
        now_s += passed_s
        if not retry:
            first(budget, now_s)
            continue
        grown(budget, now_s)
        tokens = budget.tokens
        named_s = take(budget, now_s)
        if named_s:
            assert budget.tokens == tokens
            now_s += named_s + 1e-6
            assert take(budget, now_s) == 0


def test_a_good_hour_buys_no_bad_minute() -> None:
    budget = Budget()
    for index in range(36_000):
        first(budget, NOW_S + index / 10)
    now_s = NOW_S + 3600
    assert sum(take(budget, now_s) == 0 for _ in range(1000)) <= RATIO * 10 * KEEP_S * 2 + PER_S * KEEP_S
    later = Budget()
    for index in range(36_000):
        first(later, NOW_S + index / 10)
    assert sum(take(later, NOW_S + 3600 + 2 * KEEP_S) == 0 for _ in range(1000)) <= PER_S * KEEP_S


def test_little_traffic_can_retry_too() -> None:
    budget = Budget()
    first(budget, NOW_S)
    assert take(budget, NOW_S + 2) == 0


def test_there_are_never_more_than_a_hundred() -> None:
    budget = Budget()
    for index in range(100_000):
        first(budget, NOW_S + index / 10_000)
    assert sum(take(budget, NOW_S + 10) == 0 for _ in range(1000)) == MOST


@given(st.lists(st.floats(0, 3), min_size=1, max_size=100))
def test_debts_come_due_no_faster_than_the_budget_allows(passed: list[float]) -> None:
    budget, now_s, due = Budget(at_s=NOW_S, began_s=NOW_S), NOW_S, list[float]()
    for passed_s in passed:
        now_s += passed_s
        due.append(now_s + owe(budget, now_s))
    for end_s in due:
        assert sum(at_s <= end_s for at_s in due) <= PER_S * (end_s - NOW_S + KEEP_S) + 1 + 1e-6


def test_a_debt_ends_at_a_quarter_of_an_hour() -> None:
    budget = Budget(at_s=NOW_S, began_s=NOW_S)
    assert max(owe(budget, NOW_S) for _ in range(2000)) == OWED_S
    assert take(budget, NOW_S + OWED_S + 2) == 0

"""Retries by error class: row B6."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy.errors import ErrorClass, Invalid
from harness.policy.retry import (
    CAP_S,
    OUTAGE_POSTPONEMENTS_MOST,
    REFINABLE,
    RETRY_AFTER_CAP_S,
    VERDICTS,
    Decision,
    Rule,
    Verdict,
    backoff_s,
    decide,
    refine,
)


def test_every_error_class_has_a_verdict() -> None:
    assert set(VERDICTS) == set(ErrorClass)


@given(st.integers(0, 60), st.floats(0, 1, exclude_max=True))
def test_the_backoff_is_never_above_its_cap(n: int, jitter: float) -> None:
    assert 0 <= backoff_s(n, retry_after_s=None, jitter=jitter) <= CAP_S


@given(st.integers(0, 60), st.floats(0.01, 1e6), st.floats(0, 1, exclude_max=True))
def test_nothing_is_tried_again_before_retry_after(n: int, retry_after_s: float, jitter: float) -> None:
    assert backoff_s(n, retry_after_s=retry_after_s, jitter=jitter) >= min(retry_after_s, RETRY_AFTER_CAP_S)


@given(st.sampled_from(list(ErrorClass)), st.integers(0, 10), st.integers(1, 10), st.integers(0, 40))
def test_no_class_takes_more_attempts_than_allowed(
    error_class: ErrorClass, used: int, most: int, postponements: int
) -> None:
    decision = decide(
        error_class,
        attempts_used=used,
        max_attempts=most,
        postponements=postponements,
        retry_after_s=None,
        jitter=0.5,
    )
    if decision.verdict == "retry":
        assert used + 1 < most
    assert (decision.delay_s is None) == (decision.verdict == "fail")


def test_a_rate_limit_never_fails_a_task_and_a_permission_always_does() -> None:
    for used in range(20):
        arguments = {"attempts_used": used, "max_attempts": 1, "postponements": used, "retry_after_s": None}
        assert decide(ErrorClass.RATE_LIMIT, **arguments, jitter=0.0).verdict == "postpone"  # type: ignore[arg-type]
        assert decide(ErrorClass.PERMISSION, **arguments, jitter=0.0).verdict == "fail"  # type: ignore[arg-type]


def after(error_class: ErrorClass, **facts: object) -> Decision:
    known = {"attempts_used": 0, "max_attempts": 4, "postponements": 0, "retry_after_s": None, "jitter": 0.5} | facts
    return decide(error_class, **known)  # type: ignore[arg-type]  # facts by name


@pytest.mark.parametrize(
    ("error_class", "verdicts"),
    [
        (ErrorClass.RATE_LIMIT, ["postpone"] * 6),
        (ErrorClass.NO_PERMIT, ["postpone"] * 6),
        (ErrorClass.TIMEOUT, ["retry", "retry", "fail", "fail", "fail", "fail"]),
        (ErrorClass.VALIDATION, ["fail"] * 6),
        (ErrorClass.PERMISSION, ["fail"] * 6),
        (ErrorClass.SERVER_ERROR, ["retry", "retry", "retry", "retry", "retry", "fail"]),
    ],
)
def test_row_b6_of_the_mission_is_what_the_table_decides(error_class: ErrorClass, verdicts: list[Verdict]) -> None:
    assert [after(error_class, attempts_used=n, max_attempts=6).verdict for n in range(6)] == verdicts


def test_what_fails_in_an_outage_spends_no_attempt_until_the_task_itself_is_suspect() -> None:
    for error_class in (ErrorClass.SERVER_ERROR, ErrorClass.NETWORK, ErrorClass.TIMEOUT):
        assert after(error_class, attempts_used=9, outage=True).verdict == "postpone"
        late = after(error_class, attempts_used=9, outage=True, postponements=OUTAGE_POSTPONEMENTS_MOST)
        assert late.verdict == "fail"
    for error_class in (ErrorClass.BUG, ErrorClass.PERMISSION, ErrorClass.VALIDATION):
        assert after(error_class, attempts_used=9, outage=True).verdict == "fail"


def test_a_kind_refines_its_own_table_and_nobody_elses() -> None:
    mine = refine({"server_error": Rule(verdict="retry", most_attempts=2, base_s=8.0, cap_s=60.0)}, repairs=False)
    assert after(ErrorClass.SERVER_ERROR, rules=mine) == Decision(verdict="retry", delay_s=4.0)
    assert after(ErrorClass.SERVER_ERROR, rules=mine, attempts_used=1).verdict == "fail"
    assert after(ErrorClass.SERVER_ERROR).delay_s == 0.25
    assert after(ErrorClass.TIMEOUT, rules=mine) == after(ErrorClass.TIMEOUT)


@given(st.sampled_from(list(ErrorClass)), st.sampled_from(["retry", "postpone", "repair", "fail"]))
def test_no_kind_can_make_an_error_of_its_own_come_back_for_ever(error_class: ErrorClass, verdict: Verdict) -> None:
    rule = Rule(verdict=verdict)
    if verdict not in REFINABLE.get(error_class, frozenset()):
        with pytest.raises(Invalid, match="may be"):
            refine({str(error_class): rule}, repairs=True)
        return
    rules = refine({str(error_class): rule}, repairs=True)
    spends = [after(error_class, rules=rules, attempts_used=n, max_attempts=3).verdict for n in range(4)]
    assert error_class is ErrorClass.RATE_LIMIT or spends[-1] == "fail"


@pytest.mark.parametrize(
    ("name", "rule", "words"),
    [
        ("timeuot", Rule(verdict="fail"), "may be one of bug, network"),
        ("lost", Rule(verdict="fail"), "may be one of"),
        ("no_permit", Rule(verdict="fail"), "may be one of"),
        ("timeout", Rule(verdict="postpone"), "may be fail or retry"),
        ("timeout", Rule(verdict="retry", most_attempts=0), "most_attempts"),
        ("timeout", Rule(verdict="retry", base_s=9.0, cap_s=1.0), "base_s <= cap_s"),
        ("timeout", Rule(verdict="retry", base_s=0.0), "0 < base_s"),
        ("timeout", Rule(verdict="retry", cap_s=1e9), "3600"),
        ("validation", Rule(verdict="repair"), "no repair function"),
    ],
)
def test_a_refinement_that_makes_no_sense_is_refused_with_what_would(name: str, rule: Rule, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        refine({name: rule}, repairs=False)

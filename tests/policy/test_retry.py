"""Retries by error class: row B6."""

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.errors import ErrorClass
from harness.policy.retry import CAP_S, RETRY_AFTER_CAP_S, VERDICTS, backoff_s, decide


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

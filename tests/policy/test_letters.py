"""Reasons of dead letters: what differs from task to task doesn't part them, and nothing makes them long."""

import re
import uuid

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.letters import KEY_CHARS, PATTERN_MAX_CHARS, pattern_of, reason_of

_DIGITS = st.text(st.characters(codec="ascii", categories=["Nd"]), min_size=1, max_size=9)


@given(st.text())
def test_any_message_has_a_pattern_of_bounded_length_on_one_line(message: str) -> None:
    pattern = pattern_of(message)
    assert len(pattern) <= PATTERN_MAX_CHARS
    assert pattern == " ".join(pattern.split())


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.randoms(use_true_random=False))
def test_messages_that_differ_in_digits_alone_are_one_reason(message: str, dice: object) -> None:
    other = re.sub(r"[0-9]", lambda _: str(dice.randrange(10)), message)  # type: ignore[attr-defined]
    assert pattern_of(other) == pattern_of(message)


@given(_DIGITS, _DIGITS, st.uuids(), st.uuids())
def test_numbers_of_any_length_and_ids_are_left_out(one: str, other: str, first: uuid.UUID, second: uuid.UUID) -> None:
    assert pattern_of(f"job {one} of {first} timed out") == pattern_of(f"job {other} of {second} timed out")


@given(st.text(st.characters(codec="utf-8", exclude_characters="'"), max_size=80))
def test_what_stands_in_quotes_is_left_out(value: str) -> None:
    assert pattern_of(f"column '{value}' is missing") == "column '…' is missing"


def test_an_apostrophe_is_no_quote() -> None:
    assert pattern_of("it didn't stop and can't be asked") == "it didn't stop and can't be asked"


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_kind_and_class_part_reasons(kind: str, error_class: str) -> None:
    one = reason_of(kind=kind, error_class=error_class, message="boom")
    assert len(one.key) == KEY_CHARS
    assert one != reason_of(kind=kind + "x", error_class=error_class, message="boom")
    assert one.key != reason_of(kind=kind, error_class=error_class + "x", message="boom").key


def test_a_long_message_takes_no_longer_than_its_beginning() -> None:
    assert pattern_of("'" * 1_000_000) == pattern_of("'" * 500)

"""Terms: bounded whatever is put in, and a search finds what was put in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy import terms
from harness.policy.errors import Invalid

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(title=st.text(max_size=200), value=JSON)
def test_a_task_has_a_bounded_number_of_different_terms_of_bounded_length(title: str, value: object) -> None:
    found = terms.of_task(title=title, tags=["a", "b"], kind="noop", value=value, schedule="s")
    assert found[:3] == ["#a", "#b", "@s"]
    assert len(found) == len(set(found)) <= terms.WORDS_MAX + 3
    assert all(0 < len(term) <= terms.WORD_MAX_CHARS + 1 for term in found)


@given(title=st.text(max_size=100))
def test_a_search_for_the_words_of_a_title_finds_it(title: str) -> None:
    found = terms.of_task(title=title, tags=[], kind="noop", value={})
    for word in list(terms.words(title))[:5]:
        assert set(terms.of_query(word)) <= set(found)


def test_the_title_comes_before_a_long_input_and_the_input_is_cut() -> None:
    value = {"deep": [{"text": "x " * terms.INPUT_MAX_CHARS}], "late": "unreachable"}
    found = terms.of_task(title="Quarterly report", tags=["red"], kind="noop", value=value)
    assert {"quarterly", "report", "red", "noop", "x"} <= set(found) and "unreachable" not in found


@pytest.mark.parametrize("tags", [[""], ["a b"], ["#a"], ["a,b"], ["x" * 65], ["a\x00"], ["-a"], ["a\n"]])
def test_a_tag_that_does_not_fit_is_named_with_its_place(tags: list[str]) -> None:
    with pytest.raises(Invalid) as raised:
        terms.check_tags(["fine", *tags])
    assert raised.value.field == "tags[1]"


def test_no_more_than_ten_tags() -> None:
    with pytest.raises(Invalid) as raised:
        terms.check_tags([str(i) for i in range(11)])
    assert raised.value.field == "tags"


@pytest.mark.parametrize("q", ["", "  ", "!!!", "a b c d e f g h i"])
def test_a_search_without_words_or_with_too_many_is_refused(q: str) -> None:
    with pytest.raises(Invalid) as raised:
        terms.of_query(q)
    assert raised.value.field == "q"

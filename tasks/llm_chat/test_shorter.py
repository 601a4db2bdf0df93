"""A degraded conversation: what is asked stays, what was said first goes, and the whole is never longer than before."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.kinds import models
from harness.kinds.forms import changed
from harness.kinds.registry import find
from harness.policy.models import parse
from tasks.llm_chat.kind import Conversation, Message
from tasks.llm_chat.shorter import BRIEF, SMALL, Shorter, messages, tokens

ROLES = st.sampled_from(["system", "user", "assistant"])
TEXT = st.text(min_size=1, max_size=30)
SAID = st.builds(lambda said, last: [*said, ("user", last)], st.lists(st.tuples(ROLES, TEXT), max_size=12), TEXT)


@given(SAID, st.sampled_from([BRIEF, SMALL, Shorter(chars_ratio=0.5, message_chars=12, tokens=8, tokens_ratio=0.5)]))
def test_the_order_the_last_message_and_what_the_system_says_stay(said: list[tuple[str, str]], by: Shorter) -> None:
    kept = messages(said, by)
    places = [at for at, _ in kept]
    assert places == sorted(places) and places[-1] == len(said) - 1
    assert {at for at, (role, _) in enumerate(said) if role == "system"} <= set(places)
    assert all(len(content) <= max(by.message_chars, 1) for _, content in kept)
    assert sum(len(content) for _, content in kept) <= sum(len(content) for _, content in said)
    turns = [at for at in places if said[at][0] != "system"]
    assert turns == [at for at in range(min(turns, default=0), len(said)) if said[at][0] != "system"], "nothing between"


@given(st.integers(1, 32_768))
def test_an_answer_is_never_longer_than_asked_for_and_shorter_the_cheaper_the_form(asked: int) -> None:
    assert 1 <= tokens(asked, SMALL) <= tokens(asked, BRIEF) <= asked


def test_what_was_said_first_goes_and_an_answer_without_its_question_too() -> None:
    said = [("system", "s" * 10), *[(("user", "assistant")[n % 2], str(n) * 100) for n in range(6)], ("user", "why?")]
    assert [at for at, _ in messages(said, BRIEF)] == [0, 5, 6, 7]


def test_the_forms_change_an_input_into_one_that_the_kind_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = find("llm.chat")
    assert kind is not None
    asked = Conversation(messages=[Message(role="user", content="x" * 10_000)], max_tokens=1000, model="emulator-1")
    brief, small = [changed(form, asked) for form in kind.degrade]
    for made, most, answer in ((brief, 8_000, 256), (small, 4_000, 128)):
        again = Conversation.model_validate(made.model_dump())
        assert (len(again.messages[0].content), again.max_tokens, again.model) == (most, answer, "emulator-1")
    assert asked.max_tokens == 1000


def test_the_small_form_asks_the_cheaper_model_where_there_is_one() -> None:
    kind, before = find("llm.chat"), models.configured()
    assert kind is not None
    file: dict[str, Any] = {
        "default": "large",
        "cheaper": "small",
        "unpriced_usd_per_million_tokens": 1.0,
        "providers": {"p": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"large": {"provider": "p"}, "small": {"provider": "p", "resource": "llm:small"}},
    }
    models.configure(parse(file))
    try:
        asked = Conversation(messages=[Message(role="user", content="hello")])
        found = {form.name: (changed(form, asked).model_dump()["model"], form.signature) for form in kind.degrade}
    finally:
        models.configure(before)
    assert found == {"brief": (None, None), "small": ("small", "llm:small=1")}

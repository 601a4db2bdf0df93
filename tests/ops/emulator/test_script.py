"""What the emulator plays by script: calls of tools in their order, and a judge's verdicts; with the real client."""

from typing import Any

import pytest

from harness.ops.emulator import script
from tests.ops.emulator.callers import client_of, emulated

PROMPT = """Look both up, then say what you found.
1. call stock {"item": "bolts"}
- call forbidden.tool {}
call stock not JSON
please call stock {"item": "inside a sentence"}
"""
TOOLS: Any = [{"type": "function", "function": {"name": "stock", "parameters": {"type": "object"}}}]


def test_calls_come_one_by_one_and_then_what_the_tools_said() -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}]
    with emulated() as provider, client_of(provider) as client:
        for name, arguments, said in (
            ("stock", '{"item": "bolts"}', "There are 40 bolts."),
            ("forbidden.tool", "{}", "refused"),
        ):
            choice = client.chat.completions.create(model="m", messages=messages, tools=TOOLS).choices[0]
            assert choice.finish_reason == "tool_calls" and choice.message.content is None
            (call,) = choice.message.tool_calls or []
            assert call.type == "function" and (call.function.name, call.function.arguments) == (name, arguments)
            messages.append(choice.message.model_dump(exclude_none=True))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
        choice = client.chat.completions.create(model="m", messages=messages, tools=TOOLS).choices[0]
        assert (choice.finish_reason, choice.message.content) == ("stop", "There are 40 bolts.\nrefused")


def test_a_stream_carries_the_call_of_a_tool() -> None:
    asked: Any = [{"role": "user", "content": 'call stock {"item": "nuts"}'}]
    with emulated() as provider, client_of(provider) as client:
        chunks = list(client.chat.completions.create(model="m", messages=asked, tools=TOOLS, stream=True))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert [(call.function.name, call.function.arguments) for call in calls if call.function] == [
        ("stock", '{"item": "nuts"}')
    ]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_without_tools_a_prompt_that_names_calls_is_a_text_like_others() -> None:
    with emulated() as provider, client_of(provider) as client:
        asked: Any = [{"role": "user", "content": 'Rain falls on the old town.\ncall stock {"item": "nuts"}'}]
        choice = client.chat.completions.create(model="m", messages=asked).choices[0]
    assert choice.message.tool_calls is None and "Rain falls" in (choice.message.content or "")


@pytest.mark.parametrize(
    ("expected", "answer", "score"),
    [("Paris", "paris!", 10), ("Paris", "London", 0), ("", "", 0), ("one two three four", "one two", 7)],
)
def test_the_judge_scores_by_shared_words(expected: str, answer: str, score: int) -> None:
    prompt = f"Judge.\n<expected>{expected}</expected>\n<answer>{answer}</answer>"
    assert script.verdict(prompt) == f"SCORE: {score}"

"""The program that the emulator writes about a CSV: the same each time, of the columns that the question names."""

import json
from typing import Any

import pytest

from harness.ops.emulator import program
from tests.ops.emulator.callers import client_of, emulated

FACTS: dict[str, Any] = {
    "file": "data.csv",
    "encoding": "utf-8",
    "delimiter": ",",
    "columns": [
        {"name": "city", "type": "text", "distinct_in_sample": 4},
        {"name": "team'); import os", "type": "text", "distinct_in_sample": 3},
        {"name": "rain", "type": "number", "distinct_in_sample": 9},
        {"name": "sun", "type": "number", "distinct_in_sample": 9},
    ],
}


def asked(question: str, facts: Any = FACTS) -> list[Any]:
    text = f"<columns>\n{json.dumps(facts)}\n</columns>\n<question>\n{question}\n</question>"
    return [{"role": "system", "content": "Write."}, {"role": "user", "content": text}]


def test_the_program_takes_the_columns_that_the_question_names_and_else_the_first_ones() -> None:
    for question, group, value in (("How much sun?", "city", "sun"), ("What?", "city", "rain")):
        text = program.written(asked(question))
        assert text is not None and f"= ('data.csv', 'utf-8', ',', '{group}', '{value}')" in text
        compile(text.removeprefix("```python\n").removesuffix("```"), "program.py", "exec")


def test_a_column_s_name_stays_a_text_in_the_program() -> None:
    text = program.written(asked("By team'); import os and rain"))
    assert text is not None and '"team\'); import os"' in text


def test_programs_are_broken_as_often_as_the_question_wants_and_then_whole() -> None:
    messages = asked("Rain? [broken 1]")
    with emulated() as provider, client_of(provider) as client:
        first = client.chat.completions.create(model="m", messages=messages).choices[0].message.content or ""
        assert "raise ValueError('program 1 is broken" in first
        messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "Mend it."}]
        second = client.chat.completions.create(model="m", messages=messages).choices[0].message.content or ""
    assert second == program.written(messages) and "csv.DictReader" in second


@pytest.mark.parametrize("facts", [{}, {"columns": 3}, {"columns": [{}]}, {**FACTS, "columns": [{"name": 1}]}])
def test_columns_that_are_none_get_no_program(facts: Any) -> None:
    assert program.written(asked("What?", facts)) is None

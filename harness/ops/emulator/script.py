"""What the provider plays by script, so that agents and judges come out the same each time. Pure.

Tools: a line `call NAME {"argument": ..}` of the last user's message is one call, made in its turn, whether NAME was
offered or not (a model may be told to call what it mustn't). When all were made, the answer is what the tools said.
Judge: an <expected> and an <answer> in the prompt get `SCORE: 0` to `SCORE: 10`, by the words that they share.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CALLS_MOST = 50  # of one prompt

_CALL = re.compile(r"^[ \t]*(?:[-*][ \t]+|\d{1,2}\.[ \t]+)?call[ \t]+([A-Za-z0-9_.-]{1,64})[ \t]+(\{.*\})[ \t]*$", re.M)
_JUDGED = re.compile(r"<expected>(.*?)</expected>.*<answer>(.*?)</answer>", re.DOTALL)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call of a tool that the model wants. `arguments` is JSON text, as the interface has it."""

    number: int
    name: str
    arguments: str

    def told(self) -> dict[str, Any]:
        """Return it as a message holds it."""
        return {
            "id": f"call_{self.number}",
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


def turn(messages: Sequence[Mapping[str, Any]]) -> Call | str | None:
    """Return what comes next by the script: a call, or the answer; None when there is no script.

    >>> asked = {"role": "user", "content": 'call stock {"item": "nut"}'}
    >>> turn([asked]).arguments, turn([{"role": "user", "content": "hello"}])
    ('{"item": "nut"}', None)
    >>> made = {"role": "assistant", "content": None, "tool_calls": [turn([asked]).told()]}
    >>> turn([asked, made, {"role": "tool", "tool_call_id": "call_1", "content": "Four nuts."}])
    'Four nuts.'
    """
    users = [n for n, one in enumerate(messages) if one.get("role") == "user"]
    since = messages[users[-1] :] if users else []
    calls = calls_of(_text(since[0])) if since else []
    made = sum(len(one.get("tool_calls") or ()) for one in since if one.get("role") == "assistant")
    if made < len(calls):
        name, arguments = calls[made]
        return Call(number=made + 1, name=name, arguments=arguments)
    if calls:
        return "\n".join(text for one in since if one.get("role") == "tool" and (text := _text(one).strip()))
    return None


def calls_of(prompt: str) -> list[tuple[str, str]]:
    """Return the calls that a prompt names, in order, as (tool, arguments in JSON); what isn't JSON is no call."""
    return [(found[1], found[2]) for found in _CALL.finditer(prompt) if _is_object(found[2])][:CALLS_MOST]


def verdict(prompt: str) -> str | None:
    """Return the judge's answer to a prompt that holds what was expected and what was answered; None: it doesn't.

    >>> verdict("<expected>two red cats</expected><answer>two cats</answer>")
    'SCORE: 8'
    """
    found = _JUDGED.search(prompt)
    if found is None:
        return None
    wanted, given = (Counter(_WORD.findall(text.lower())) for text in found.groups())
    shared = (wanted & given).total()
    both = wanted.total() + given.total()
    return f"SCORE: {round(20 * shared / both) if both else 0}"


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False

"""A conversation made shorter, for times of pressure: what was said last is kept, what was said long ago goes first.

Pure. What the system says and the last message stay, a very long one without its middle; the order never changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MARK = "\n[..]\n"  # where the middle of a message was left out

Said = tuple[str, str]  # role, content


@dataclass(frozen=True, slots=True)
class Shorter:
    """How much is kept: `chars_ratio` of the conversation, `message_chars` of a message, `tokens` of an answer.

    `tokens_ratio`: of what was asked for, at most.
    """

    chars_ratio: float
    message_chars: int
    tokens: int
    tokens_ratio: float


BRIEF = Shorter(chars_ratio=0.6, message_chars=8_000, tokens=256, tokens_ratio=0.5)
SMALL = Shorter(chars_ratio=0.4, message_chars=4_000, tokens=128, tokens_ratio=0.25)


def tokens(asked: int, by: Shorter) -> int:
    """Return how many tokens an answer may have.

    >>> tokens(1024, BRIEF), tokens(1024, SMALL), tokens(100, BRIEF), tokens(1, SMALL)
    (256, 128, 50, 1)
    """
    return max(1, min(by.tokens, int(asked * by.tokens_ratio)))


def messages(said: Sequence[Said], by: Shorter) -> list[tuple[int, str]]:
    """Return what is kept of a conversation whose last message isn't an answer: (which, its content), in order.

    >>> messages([("user", "a" * 40), ("assistant", "b" * 40), ("user", "c" * 20)], BRIEF)
    [(2, 'cccccccccccccccccccc')]
    """
    left = int(sum(len(content) for _, content in said) * by.chars_ratio)
    kept: list[tuple[int, str]] = []
    full = False
    for at in range(len(said) - 1, -1, -1):
        role, content = said[at][0], _cut(said[at][1], by.message_chars)
        if at < len(said) - 1 and role != "system" and (full or len(content) > left):
            full = True  # what was said between two that are kept isn't left out
            continue
        left -= len(content)
        kept.append((at, content))
    kept.reverse()
    # An answer whose question is gone goes with it.
    first = next(n for n, (at, _) in enumerate(kept) if said[at][0] != "system" or n == len(kept) - 1)
    return kept[:first] + kept[first + 1 :] if said[kept[first][0]][0] == "assistant" else kept


def _cut(text: str, most: int) -> str:
    """Return a text of at most so many characters, without its middle.

    >>> _cut("abcdefghij", 9), _cut("abc", 9)
    ('ab\\n[..]\\nj', 'abc')
    """
    if len(text) <= most:
        return text
    head = (most - len(MARK)) * 2 // 3
    tail = most - len(MARK) - head
    return text[:head] + MARK + text[len(text) - tail :]

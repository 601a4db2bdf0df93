"""Under which terms a task is found: its tags, its schedule, and the words of what it says.

Only a task with a title, a tag or a schedule has terms: what is submitted in bulk without them pays nothing. `document`
says what a search for text looks at: title, tags, kind, and the first INPUT_MAX_CHARS characters of the texts in the
input; of these the first WORDS_MAX different words. A word is a run of letters, digits and underscores, without regard
to case; a search finds whole words.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from harness.policy.errors import Invalid

TAGS_MAX = 10
TAG_MAX_CHARS = 64
TITLE_MAX_CHARS = 200
INPUT_MAX_CHARS = 2000
WORDS_MAX = 64
WORD_MAX_CHARS = 64  # longer ones are found by their beginning, cut the same way
QUERY_MAX_WORDS = 8

_TAG = re.compile(r"\w[\w.:/=@+-]*")
_WORD = re.compile(r"\w+")


def check_tags(tags: Sequence[str], field: str = "tags") -> tuple[str, ...]:
    """Return the tags without doubles, in order. Raises: Invalid naming the one that doesn't fit.

    >>> check_tags(["nightly", "team:red", "nightly"])
    ('nightly', 'team:red')
    """
    if len(tags) > TAGS_MAX:
        raise Invalid(f"{field}: at most {TAGS_MAX} tags, not {len(tags)}", field=field)
    for i, tag in enumerate(tags):
        if len(tag) > TAG_MAX_CHARS or not _TAG.fullmatch(tag):
            raise Invalid(
                f"{field}[{i}]: must be 1 to {TAG_MAX_CHARS} letters, digits or _.:/=@+- and begin with a letter, "
                "digit or _",
                field=f"{field}[{i}]",
            )
    return tuple(dict.fromkeys(tags))


def check_title(title: str, field: str = "title") -> None:
    """Check a title. Raises: Invalid."""
    if len(title) > TITLE_MAX_CHARS or not title.isprintable():
        raise Invalid(f"{field}: must be printable text of at most {TITLE_MAX_CHARS} characters", field=field)


def of_task(*, title: str, tags: Sequence[str], kind: str, value: object, schedule: str | None = None) -> list[str]:
    """Return all terms of a task; `value` is its input, a JSON value.

    >>> of_task(title="Red report", tags=["nightly"], kind="noop", value={"name": "RED car", "n": 7})
    ['#nightly', 'red', 'report', 'nightly', 'noop', 'car']
    """
    marks = [of_tag(tag) for tag in tags] + ([of_schedule(schedule)] if schedule else [])
    found: dict[str, None] = {}
    for text in (title, *tags, kind, *_texts(value)):
        for word in words(text):
            found[word] = None
            if len(found) == WORDS_MAX:
                return [*marks, *found]
    return [*marks, *found]


def of_tag(tag: str) -> str:
    """Return the term of a tag; no word can be equal to it."""
    return f"#{tag}"


def of_schedule(schedule: str) -> str:
    """Return the term of a schedule's tasks."""
    return f"@{schedule}"


def words(text: str) -> Iterator[str]:
    """Yield the words of a text as they are compared.

    >>> list(words("Straße, STRASSE; a_b-c"))
    ['strasse', 'strasse', 'a_b', 'c']
    """
    for match in _WORD.finditer(unicodedata.normalize("NFKC", text).casefold()):
        yield match[0][:WORD_MAX_CHARS]


def of_query(q: str) -> list[str]:
    """Return the words that a search asks for; all must be there. Raises: Invalid (q) when it has none or too many."""
    wanted = list(dict.fromkeys(words(q)))
    if not 1 <= len(wanted) <= QUERY_MAX_WORDS:
        raise Invalid(f"q: 1 to {QUERY_MAX_WORDS} words to search for, not {len(wanted)}", field="q")
    return wanted


def _texts(value: object) -> Iterator[str]:
    left = INPUT_MAX_CHARS
    stack: list[object] = [value]
    while stack and left > 0:
        one = stack.pop()
        if isinstance(one, str):
            yield one[:left]
            left -= len(one)
        elif isinstance(one, dict):
            stack += reversed(one.values())
        elif isinstance(one, list | tuple):
            stack += one[:left][::-1]

"""Answers without a model: sentences of the document, chosen by the document's own most frequent terms.

Pure and deterministic: the same prompt gets the same answer. Every sentence of an answer stands in the document,
with runs of white space made one blank.
"""

import math
import re
from collections import Counter

SENTENCES = 3  # when the prompt doesn't say how many
TOP_TERMS = 20  # terms that make a sentence telling
SHORT_LINE_CHARS = 60  # a shorter line without a full stop is a heading or an item, not wrapped prose
LONG_SENTENCE_CHARS = 600  # longer ones are tables and lists in disguise: only taken when there is nothing else
CHARS_PER_TOKEN = 4

_TAGGED = re.compile(r"<document>\s*(.*)\s*</document>", re.DOTALL)
_HOW_MANY = re.compile(r"\b(\d{1,2}) sentences?\b")
_ENDS_BEFORE_BLANK = tuple((f"{end} ", f"{end}\n") for end in ".!?…")
_ENDS_ALONE = tuple((end, f"{end}\n") for end in "。！？")
_WORD = re.compile(r"[^\W\d_]{3,}")
_ENDS = (".", "!", "?", "…", ":", "。", "！", "？")
_ITEM = ("-", "*", "+", "•", "#", "|", ">")
_STOP = frozenset(
    "the and for are but not you all any can had her was one our out has him his how its may new now old see two way"
    " who did get let put say she too use that this with from they them then than have been were will would there their"
    " what when where which while whose into onto over under about after before because each only also more most some"
    " such other same very just like make made does done being both between through during these those here must should"
    " could might per via yet still without within".split()
)


def tokens_of(text: str) -> int:
    """Return about how many tokens a text has: characters by 4, at least 1 when there is any text."""
    return -(-len(text) // CHARS_PER_TOKEN)


def split_prompt(prompt: str) -> tuple[str, str]:
    """Return (instruction, document): what stands in <document> tags, else the whole prompt is the document."""
    found = _TAGGED.search(prompt)
    if found is None:
        return "", prompt
    return prompt[: found.start()] + prompt[found.end() :], found.group(1)


def sentences_of(document: str) -> list[str]:
    """Return the document's sentences in its order, each once, white space made single."""
    found: dict[str, None] = {}
    for paragraph in _paragraphs(document):
        found.update(dict.fromkeys(one for one in _broken(paragraph).split("\n") if one))
    return list(found)


def answer(prompt: str, *, max_tokens: int | None = None) -> tuple[str, bool]:
    """Return the answer to a prompt and whether `max_tokens` cut it. A document without words gets its own beginning.

    >>> answer("<document>Cats sleep a lot. Cats hunt mice at night. It rains.</document> Give 1 sentence.")
    ('Cats hunt mice at night.', False)
    """
    instruction, document = split_prompt(prompt)
    asked = _HOW_MANY.search(instruction)
    text = _choose(sentences_of(document), max(1, int(asked.group(1)) if asked else SENTENCES))
    if max_tokens is not None and tokens_of(text) > max_tokens:
        return text[: max_tokens * CHARS_PER_TOKEN].rstrip(), True
    return text, False


def _broken(paragraph: str) -> str:
    """Return a paragraph with a line for each sentence."""
    # Replacing is several times faster than a pattern that is tried at every character.
    for end, broken in _ENDS_BEFORE_BLANK:
        paragraph = paragraph.replace(end, broken)
    for end, broken in _ENDS_ALONE:
        if end in paragraph:
            paragraph = paragraph.replace(f"{end} ", end).replace(end, broken)
    return paragraph


def _paragraphs(document: str) -> list[str]:
    """Join wrapped lines; a heading, an item, a finished line or a blank one ends a paragraph."""
    paragraphs: list[str] = []
    current: list[str] = []
    for line in document.splitlines():
        words = " ".join(line.split())
        if current and (not words or words.startswith(_ITEM)):
            paragraphs.append(" ".join(current))
            current = []
        if words:
            current.append(words)
            if words.endswith(_ENDS) or len(words) < SHORT_LINE_CHARS:
                paragraphs.append(" ".join(current))
                current = []
    if current:
        paragraphs.append(" ".join(current))
    return paragraphs


def _choose(sentences: list[str], number: int) -> str:
    words = [[word for word in _WORD.findall(one.lower()) if word not in _STOP] for one in sentences]
    top = dict(Counter(word for some in words for word in some).most_common(TOP_TERMS))
    usable = [n for n, one in enumerate(sentences) if len(words[n]) >= 3 and len(one) <= LONG_SENTENCE_CHARS]
    usable = usable or [n for n, some in enumerate(words) if some]
    if not usable:
        return sentences[0][:LONG_SENTENCE_CHARS] if sentences else ""

    top_words = frozenset(top)

    def telling(n: int) -> float:
        # By the root of the length: neither the longest nor a two-word sentence wins by its length alone.
        return float(sum(map(top.__getitem__, top_words.intersection(words[n]))) / math.sqrt(len(words[n])))

    best = sorted(usable, key=lambda n: (-telling(n), n))[:number]
    return " ".join(sentences[n] for n in sorted(best))

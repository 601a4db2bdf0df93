"""Dead letters by reason: messages that differ only in numbers, ids and quoted text tell of one fault.

A reason is (kind, error class, pattern of the message). Pure and bounded: of a message only the beginning is looked at,
and a pattern is no longer than PATTERN_MAX_CHARS.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

MESSAGE_MAX_CHARS = 500  # of a message that is looked at: the fault stands at its beginning
PATTERN_MAX_CHARS = 160
KEY_CHARS = 16  # 64 bits: two of a million reasons are the same with a chance of 1 in 37 million

_QUOTED = re.compile(r"""(?<!\w)(['"`])(?:(?!\1).)*\1(?!\w)""")
_ADDRESS = re.compile(r"\b(https?)://([^\s/?#\"'<>]+)[^\s\"'<>]*", re.IGNORECASE)
# A UUID, or a word of hexadecimal digits that has a decimal one in it ("deadbeef" is a word). They become what numbers
# become: some ids have no letter in them.
_ID = re.compile(r"\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=[a-f]*\d)[0-9a-f]{8,})\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why letters died. `key` names it in addresses and filters."""

    key: str
    kind: str
    error_class: str
    pattern: str


def pattern_of(message: str) -> str:
    """Return a message without what differs from task to task: numbers and ids (N), quoted text, paths of addresses.

    >>> pattern_of("HTTP 503 from https://api.example.org/v1/jobs/17?x=y after 2.5 s")
    'HTTP N from https://api.example.org/… after N s'
    >>> pattern_of("row 6f1c2a9d0b of 'orders' didn't match \\n  7d444840-9dc0-11d1-b245-5ffdce74fad2")
    "row N of '…' didn't match N"
    """
    text = " ".join(message[:MESSAGE_MAX_CHARS].split())
    text = _ADDRESS.sub(r"\1://\2/…", text)
    text = _QUOTED.sub(r"\1…\1", text)
    text = _ID.sub("N", text)
    text = _NUMBER.sub("N", text)
    return text if len(text) <= PATTERN_MAX_CHARS else text[: PATTERN_MAX_CHARS - 1].rstrip() + "…"


def reason_of(*, kind: str, error_class: str, message: str) -> Reason:
    """Return the reason that a letter belongs to.

    >>> one = reason_of(kind="noop", error_class="bug", message="KeyError: 17")
    >>> one == reason_of(kind="noop", error_class="bug", message="KeyError: 18"), len(one.key), one.pattern
    (True, 16, 'KeyError: N')
    """
    pattern = pattern_of(message)
    said = "\0".join((kind, error_class, pattern)).encode("utf-8", "replace")
    return Reason(key=sha256(said).hexdigest()[:KEY_CHARS], kind=kind, error_class=error_class, pattern=pattern)

"""How many tokens an answer usually takes, learnt in this process: for what a call reserves before it is made.

A reservation of the most that an answer may have would leave most of a provider's tokens a minute unused.
"""

import math
import threading
from collections import defaultdict, deque
from collections.abc import Hashable

KEPT = 200  # of the latest answers
LEAST = 20  # fewer tell nothing yet
QUANTILE = 0.9
CHARS_A_TOKEN = 3.5  # of a prompt, on the safe side for English


class Usual:
    """The usual sizes of answers, by whatever distinguishes them. Safe for threads."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, deque[int]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._lock = threading.Lock()

    def learn(self, key: Hashable, tokens: int) -> None:
        """Note the size of an answer."""
        with self._lock:
            self._seen[key].append(tokens)

    def expect(self, key: Hashable, most: int) -> int:
        """Return what nine of ten answers stay below, at most `most`, which it is while too few are known.

        >>> usual = Usual()
        >>> for tokens in range(1, 101):
        ...     usual.learn("m", tokens)
        >>> usual.expect("m", 1000), usual.expect("m", 50), usual.expect("other", 1000)
        (91, 50, 1000)
        """
        with self._lock:
            seen = sorted(self._seen[key]) if key in self._seen else []
        return min(most, seen[int(len(seen) * QUANTILE)]) if len(seen) >= LEAST else most


def of_text(characters: int) -> int:
    """Return the tokens of a text of so many characters, rounded up.

    >>> of_text(0), of_text(1), of_text(700)
    (0, 1, 200)
    """
    return math.ceil(characters / CHARS_A_TOKEN)

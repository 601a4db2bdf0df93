"""Clean text into chunks that overlap: each ends at a paragraph, line, sentence or word where one is near."""

from typing import Final

from harness.kinds.documents import Chunk

SIZE_CHARS: Final = 1200  # some 200 words: what a snippet or a model's context takes well
OVERLAP_CHARS: Final = 150  # a sentence: what stands across a border is found from one side whole
_ENDS: Final = ("\n\n", "\n", ". ", " ")


def chunks(text: str, *, size: int = SIZE_CHARS, overlap: int = OVERLAP_CHARS) -> list[Chunk]:
    """Return the chunks of a text in order; time grows with its length only, whatever it holds.

    >>> [(one.start, one.end, one.text) for one in chunks("one two three four", size=10, overlap=4)]
    [(0, 7, 'one two'), (4, 13, 'two three'), (14, 18, 'four')]
    """
    found: list[Chunk] = []
    start, length = 0, len(text)
    while start < length:
        stop = min(start + size, length)
        if stop < length:
            stop = _end(text, start + size // 2, stop)
        piece = text[start:stop]
        begin = start + len(piece) - len(piece.lstrip())
        end = start + len(piece.rstrip())
        if begin < end:
            found.append(Chunk(begin, end, text[begin:end]))
        if stop == length:
            break
        # Over half of `size` is always left behind, so this ends.
        start = _begin(text, max(stop - overlap, start + 1), stop)
    return found


def _end(text: str, least: int, most: int) -> int:
    for mark in _ENDS:
        at = text.rfind(mark, least, most)
        if at >= 0:
            return at + len(mark)
    return most


def _begin(text: str, least: int, most: int) -> int:
    """The first word that begins at or after `least`, if one does before `most`."""
    for at in range(least, most):
        if text[at - 1].isspace() and not text[at].isspace():
            return at
    return least if not text[least:most].isspace() else most

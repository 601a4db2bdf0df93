"""What a talking task says: text in which every piece tells where it belongs. Pure."""

LINE_CHARS = 7


def line(n: int) -> str:
    r"""Return line `n` (from 0) of the speech.

    >>> line(12)
    '000012\n'
    """
    return f"{n:06d}\n"


def spoken(offset: int, chars: int) -> str:
    r"""Return `chars` characters of the speech, from `offset` on.

    >>> spoken(5, 4)
    '0\n00'
    """
    first = offset // LINE_CHARS
    text = "".join(line(n) for n in range(first, (offset + chars) // LINE_CHARS + 1))
    return text[offset - first * LINE_CHARS :][:chars]

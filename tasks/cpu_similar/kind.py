"""`cpu.similar`: pairs of texts that say nearly the same, by MinHash over runs of three words.

The score estimates the Jaccard similarity of the two sets of runs; with 128 permutations it is off by 0.04 on
average at most. Every pair is compared: nothing near is missed by a hash table's luck.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from harness.kinds import Context, kind

PERMUTATIONS = 128
RUN_WORDS = 3
PAIRS_MAX = 2_000  # about 200 KiB of result with the longest ids
_WORD = re.compile(r"\w+")


class Text(BaseModel):
    """One text and the name under which it is reported."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1, max_length=40)
    text: str = Field(min_length=1, max_length=100_000)


def _distinct(texts: list[Text]) -> list[Text]:
    seen: set[str] = set()
    for n, one in enumerate(texts):
        if one.id in seen:
            raise ValueError(f"texts[{n}].id {one.id!r} is there twice: give each text an id of its own")
        seen.add(one.id)
    return texts


class Texts(BaseModel):
    """The texts to compare with one another."""

    model_config = ConfigDict(extra="forbid")

    texts: Annotated[list[Text], Field(min_length=2, max_length=2_000), AfterValidator(_distinct)]
    threshold: float = Field(default=0.8, ge=0.1, le=1.0, description="the lowest score that is reported")


class Pair(BaseModel):
    """Two texts, in the order of the input, and how alike they are (0 to 1)."""

    a: str
    b: str
    score: float


class Similar(BaseModel):
    """The pairs found, most alike first. `found` counts all of them; `truncated`: the list holds only the first."""

    pairs: list[Pair]
    compared: int
    found: int
    truncated: bool


@kind("cpu.similar", pool="cpu", input=Texts, output=Similar, timeout_s=120, est_s=0.5)
def similar(ctx: Context, payload: Texts) -> Similar:
    """Compare every text with every other one."""
    import numpy  # with datasketch half a second and 60 MB: only where it is used
    from datasketch import MinHash

    rows = numpy.empty((len(payload.texts), PERMUTATIONS), dtype=numpy.uint64)
    for n, one in enumerate(payload.texts):
        ctx.checkpoint()
        sketch = MinHash(num_perm=PERMUTATIONS)
        sketch.update_batch(runs_of(one.text))
        rows[n] = sketch.hashvalues
    found: list[tuple[float, int, int]] = []
    for n in range(len(rows) - 1):
        ctx.checkpoint()
        scores = (rows[n + 1 :] == rows[n]).mean(axis=1)
        found += [(float(scores[k]), n, n + 1 + int(k)) for k in numpy.flatnonzero(scores >= payload.threshold)]
    found.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
    names = [one.id for one in payload.texts]
    return Similar(
        pairs=[Pair(a=names[a], b=names[b], score=round(score, 4)) for score, a, b in found[:PAIRS_MAX]],
        compared=len(names) * (len(names) - 1) // 2,
        found=len(found),
        truncated=len(found) > PAIRS_MAX,
    )


def runs_of(text: str) -> list[bytes]:
    """Return the distinct runs of three words, in UTF-8; of a shorter text the text itself.

    >>> runs_of("To be, or not")
    [b'be or not', b'to be or']
    >>> runs_of("No!")
    [b'no']
    """
    words = _WORD.findall(text.lower()) or [text.strip()]
    runs = {" ".join(words[n : n + RUN_WORDS]) for n in range(max(1, len(words) - RUN_WORDS + 1))}
    return sorted(run.encode("utf-8", "replace") for run in runs)

"""Near-duplicates are found, strangers aren't, and the result stays within a row."""

from typing import Any

import pytest
from pydantic import ValidationError

from harness.kinds import Cancelled, Context
from tasks.cpu_similar.kind import PAIRS_MAX, Pair, Text, Texts, runs_of, similar

WORDS = [f"word{n}" for n in range(200)]


def texts(*pairs: tuple[str, str], threshold: float = 0.8) -> Texts:
    return Texts(texts=[Text(id=name, text=text) for name, text in pairs], threshold=threshold)


def test_the_same_text_scores_one_and_a_stranger_is_not_reported(ctx: Context) -> None:
    text = " ".join(WORDS)
    found = similar(ctx, texts(("a", text), ("b", text.upper() + "!"), ("c", "nothing of the kind")))
    assert found.pairs == [Pair(a="a", b="b", score=1.0)]
    assert (found.compared, found.found, found.truncated) == (3, 1, False)


def test_the_score_is_near_the_true_similarity_of_the_runs(ctx: Context) -> None:
    other = [*WORDS[:150], *(f"other{n}" for n in range(50))]
    a, b = set(runs_of(" ".join(WORDS))), set(runs_of(" ".join(other)))
    found = similar(ctx, texts(("a", " ".join(WORDS)), ("b", " ".join(other)), threshold=0.1))
    assert found.pairs[0].score == pytest.approx(len(a & b) / len(a | b), abs=0.12)


def test_pairs_come_most_alike_first(ctx: Context) -> None:
    near, far = [*WORDS[:190], *"abcdefghij"], [*WORDS[:120], *"abcdefghijklmnopqrstuvwxyz"]
    crowd = (("far", " ".join(far)), ("all", " ".join(WORDS)), ("near", " ".join(near)))
    found = similar(ctx, texts(*crowd, threshold=0.1))
    assert [pair.score for pair in found.pairs] == sorted((pair.score for pair in found.pairs), reverse=True)
    assert (found.pairs[0].a, found.pairs[0].b) == ("all", "near")


def test_a_crowd_of_copies_gives_a_list_that_fits_a_row(ctx: Context) -> None:
    found = similar(ctx, texts(*((f"{n:040}", "the very same text") for n in range(200))))
    assert (len(found.pairs), found.found, found.truncated) == (PAIRS_MAX, 200 * 199 // 2, True)
    assert len(found.model_dump_json()) < 256 * 1024


def test_a_cancelled_comparison_stops(alone: Any) -> None:
    ctx = alone()
    ctx.stop = True
    with pytest.raises(Cancelled):
        similar(ctx, texts(("a", "x"), ("b", "y")))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("texts", [{"id": "a", "text": "x"}]),
        ("texts", [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]),
        ("texts", [{"id": "a", "text": "x"}, {"id": "b", "text": ""}]),
        ("threshold", 0.0),
        ("threshold", float("nan")),
        ("top", 3),
    ],
)
def test_a_wrong_field_is_refused_by_name(field: str, value: Any) -> None:
    good = {"texts": [{"id": "a", "text": "x"}, {"id": "b", "text": "y"}], "threshold": 0.5}
    with pytest.raises(ValidationError) as refused:
        Texts.model_validate({**good, field: value})
    assert refused.value.errors()[0]["loc"][0] == field

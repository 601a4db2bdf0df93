"""Embeddings with the real openai client: the same everywhere, of length 1, close when words are shared."""

import subprocess
import sys

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ops.emulator.embeddings import vector
from tests.ops.emulator.callers import client_of, emulated, http, stats


def cosine(a: tuple[float, ...] | list[float], b: tuple[float, ...] | list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


@given(st.text(max_size=200), st.integers(1, 600))
def test_every_text_has_a_vector_of_length_1(text: str, dimensions: int) -> None:
    found = vector(text, dimensions)
    assert len(found) == dimensions
    assert cosine(found, found) == pytest.approx(1)
    assert found == vector(text, dimensions)


def test_texts_that_share_words_lie_closer() -> None:
    cats = vector("Cats hunt mice in the barn at night")
    assert cosine(cats, vector("At night the CATS hunt")) > 0.6
    assert abs(cosine(cats, vector("PostgreSQL holds every waiting row"))) < 0.3


def test_another_process_finds_the_same_vector() -> None:
    code = "from harness.ops.emulator.embeddings import vector; print(vector('one two', 8))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(vector("one two", 8))


def test_the_real_client_gets_vectors_in_order_in_both_formats() -> None:
    texts = ["Cats sleep.", "Dogs bark at cats."]
    with emulated() as provider, client_of(provider) as client:
        packed = client.embeddings.create(model="m", input=texts, dimensions=64)
        plain = client.embeddings.create(model="m", input=texts, dimensions=64, encoding_format="float")
        single = client.embeddings.create(model="m", input="Cats sleep.")
        tokens = client.embeddings.create(model="m", input=[[1, 2, 3], [4]])
        seen = stats(provider)
    assert [one.index for one in packed.data] == [0, 1]
    for text, a, b in zip(texts, packed.data, plain.data, strict=True):
        assert b.embedding == list(vector(text, 64))
        assert a.embedding == pytest.approx(b.embedding, abs=1e-6)
    assert len(single.data[0].embedding) == 256
    assert (packed.usage.prompt_tokens, tokens.usage.total_tokens) == (3 + 5, 4)
    assert (seen["answered"], seen["embeddings"]) == (4, 4)
    assert (seen["prompt_tokens"], seen["completion_tokens"]) == (8 + 8 + 3 + 4, 0)


def test_embeddings_keep_to_the_limits() -> None:
    with emulated(quota=0) as provider, client_of(provider) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            client.embeddings.create(model="m", input="x")
        assert refused.value.code == "rate_limit_exceeded"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": ""}, "input[0]"), ({"input": []}, "input"), ({"input": None}, "input"),
        ({"input": ["a", 3]}, "input[1]"), ({"input": ["a"] * 2049}, "input"), ({"input": [True]}, "input[0]"),
        ({"dimensions": 0}, "dimensions"), ({"dimensions": 5000}, "dimensions"),
        ({"encoding_format": "int8"}, "encoding_format"), ({"encoding_format": []}, "encoding_format"),
        ({"model": ""}, "model"), ({"model": "a\0"}, "model"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_by_name(change: dict[str, object], param: str) -> None:
    with emulated() as provider:
        status, answer, _ = http(f"{provider.base_url}/embeddings", {"model": "m", "input": "x"} | change)
        assert (status, answer["error"]["param"]) == (400, param)
        assert (stats(provider)["accepted"], stats(provider)["client_errors"]) == (0, 1)

"""Every published rule of OpenAI's accounting, to the token: ``vectors.py``."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import tiktoken

from tests.tokens.asking import total
from tests.tokens.vectors import VECTORS, Vector


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.rule)
@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini", "o200k_base"),
    ],
)
def test_a_request_costs_the_texts_that_are_billed_and_the_tokens_beside_them(
    vector: Vector, model: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly; the texts are tokenized by tiktoken itself, with nothing of ours between."""
    litellm = importlib.util.find_spec("litellm")
    assert litellm is not None
    assert litellm.origin is not None
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"))
    tokens = tiktoken.get_encoding(encoding)
    billed = sum(len(tokens.encode_ordinary(text)) for text in vector.texts)
    assert total(vector.request, model) == billed + vector.beside

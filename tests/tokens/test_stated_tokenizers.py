"""What counts a model's tokens can be stated: an encoding, or a model that is counted alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.config import load
from tidemark.tokens import LocalTokenCounter
from tidemark.tokens.families import family_for
from tidemark.worker.worker import Worker

TEXT = "The harbour opens at seven, and \u0434\u043e\u0431\u0440\u043e\u0435 \u0443\u0442\u0440\u043e. " * 9
ENTRIES = """
model_list:
  - model_name: house
    litellm_params: {model: openai/house-7b, api_base: "http://a/v1"}
    model_info: {base_model: azure/gpt-4o, tokenizer: mistral-small}
  - model_name: azure
    litellm_params: {model: azure/deployment-7, api_base: "http://a"}
    model_info: {base_model: azure/gpt-4}
  - model_name: encoded
    litellm_params: {model: openai/encoded, api_base: "http://a/v1"}
    model_info: {tokenizer: cl100k_base}
"""


@pytest.mark.parametrize(
    ("model", "like"),
    [("house-7b", "mistral-small"), ("deployment-7", "gpt-4"), ("encoded", "gpt-4"), ("other", "grok-4")],
)
def test_a_model_is_counted_as_its_entry_says(tmp_path: Path, model: str, like: str) -> None:
    """``tokenizer`` goes before ``base_model``; what neither names is counted by its own name."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(ENTRIES)
    counter = Worker(load(path, {"HOME": str(tmp_path)}), lambda _: None).counter
    plain = LocalTokenCounter()
    assert counter.count_text(TEXT, model) == plain.count_text(TEXT, like)
    assert (
        plain.count_text(TEXT, "mistral-small") != plain.count_text(TEXT, "grok-4") != plain.count_text(TEXT, "gpt-4")
    )


@pytest.mark.parametrize("encoding", ["o200k_base", "o200k_harmony", "cl100k_base"])
def test_an_encoding_may_be_stated_by_name(encoding: str) -> None:
    """It counts as it is, without a factor, and claims no exactness."""
    family = family_for(encoding)
    assert (family.encoding, family.percent, family.exact) == (encoding, 100, False)

"""Counts that somebody measured with the API itself, each with its source: ``vectors.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.core.messages import JsonValue
from tests.tokens.asking import total

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))


def measurements() -> Iterator[object]:
    """One case for each vector and model; what is known to miss is expected to fail, and fails when it is mended."""
    for vector in VECTORS:
        over = vector.get("over", 0)
        reason = f"counts {over} too many: docs/counting.md says which measurements exclude each other"
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if over else []
        for model, tokens in vector["measured"].items():
            yield pytest.param(vector["request"], model, tokens, id=f"{vector['title']}-{model}", marks=marks)


@pytest.mark.parametrize(("body", "model", "tokens"), list(measurements()))
def test_a_count_is_the_one_that_the_api_reported(body: dict[str, JsonValue], model: str, tokens: int) -> None:
    """Exactly."""
    assert total(body, model) == tokens


def test_a_count_that_misses_is_a_few_tokens_too_many_and_never_too_few() -> None:
    """Too few would overflow; the bound keeps the known misses from growing."""
    for vector in VECTORS:
        for model, tokens in vector["measured"].items():
            assert 0 <= total(vector["request"], model) - tokens <= 3

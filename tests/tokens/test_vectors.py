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
    """One case for each vector and model."""
    for vector in VECTORS:
        for model, tokens in vector["measured"].items():
            yield pytest.param(vector["request"], model, tokens, vector.get("over", 0), id=f"{vector['title']}-{model}")


@pytest.mark.parametrize(("body", "model", "tokens", "over"), list(measurements()))
def test_a_count_is_the_one_that_the_api_reported(
    body: dict[str, JsonValue], model: str, tokens: int, over: int
) -> None:
    """Exactly; where two published measurements exclude each other, up to three too many and never too few."""
    assert total(body, model) == tokens + over
    assert 0 <= over <= 3

"""A model's name says whether it checks what its thinking stands behind."""

from __future__ import annotations

import pytest

from tidemark.core.conversation.thinking import checks_thinking


@pytest.mark.parametrize(
    "model",
    [
        "claude-fable-5-1",
        "claude-fable-5.2",
        "claude-mythos-5",
        "claude-mythos-5-1-20260901",
        "claude-opus-5-5",
        "anthropic/claude-sonnet-5-5-20261001",
        "us.anthropic.claude-haiku-5-5-v1:0",
        "claude-opus-6",
        "claude-opus-6@20270101",
        "claude-sonnet-10-1",
    ],
)
def test_a_version_is_a_floor(model: str) -> None:
    """Newer ones check, too, whatever stands around the name."""
    assert checks_thinking(model) is True


@pytest.mark.parametrize(
    "model",
    ["claude-fable-5", "claude-opus-5", "claude-opus-4-8", "claude-sonnet-4-20250514", "claude-3-5-sonnet-20241022"],
)
def test_older_ones_do_not(model: str) -> None:
    """A date is no version."""
    assert checks_thinking(model) is False


@pytest.mark.parametrize("model", ["house-model", "gpt-5.6", "claude-saga-6", "claude-opus-latest", ""])
def test_other_names_say_nothing(model: str) -> None:
    """Their upstream's refusal teaches it."""
    assert checks_thinking(model) is None

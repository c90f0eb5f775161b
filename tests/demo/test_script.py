"""The scripted person of the demo."""

from __future__ import annotations

from inspect import signature

import pytest

from tidemark.cli.main import demo
from tidemark.demo import run
from tidemark.demo.llama import WINDOW_TOKENS
from tidemark.demo.screen import TARGET, THRESHOLD
from tidemark.demo.talk import QUESTIONS, REPLY_TOKENS

CHARACTERS_PER_TOKEN = 4.5
"""Of these questions, in the model's own tokens."""
TEMPLATE_TOKENS = 10
"""What the model's chat template puts around a question and its answer."""


def test_the_script_has_forty_turns() -> None:
    """The demo's longest conversation is forty different questions, each on a line of its own."""
    assert len(set(QUESTIONS)) == len(QUESTIONS) == 40
    assert not [question for question in QUESTIONS if question[-1] not in ".?"]


def test_the_default_conversation_fills_its_window_twice_and_hardly_more() -> None:
    """A newcomer waits for each turn: it is long enough for two compactions and for the failure without them."""
    turns: int = signature(run.main).parameters["turns"].default
    assert [turns] == [option.default for option in demo.params if option.name == "turns"]
    tokens = sum(
        len(question) / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS + REPLY_TOKENS for question in QUESTIONS[:turns]
    )
    twice = THRESHOLD + (THRESHOLD - TARGET)
    assert WINDOW_TOKENS < twice * WINDOW_TOKENS < tokens < (twice + THRESHOLD - TARGET) * WINDOW_TOKENS


@pytest.mark.parametrize("fact", ["Petrel", "Marta", "peanuts", "after dark", "2400 euros"])
def test_the_early_turns_tell_what_the_late_ones_ask_for(fact: str) -> None:
    """What the last turns ask for was told in the first six, long before the window is full."""
    assert fact in " ".join(QUESTIONS[:6])

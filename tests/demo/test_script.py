"""The scripted person of the demo."""

from __future__ import annotations

import pytest

from tidemark.demo.talk import QUESTIONS


def test_the_script_has_forty_turns() -> None:
    """The demo's default conversation is forty different questions, each on a line of its own."""
    assert len(set(QUESTIONS)) == len(QUESTIONS) == 40
    assert not [question for question in QUESTIONS if question[-1] not in ".?"]


@pytest.mark.parametrize("fact", ["Petrel", "Marta", "peanuts", "after dark", "2400 euros"])
def test_the_early_turns_tell_what_the_late_ones_ask_for(fact: str) -> None:
    """What the last turns ask for was told in the first six, long before the window is full."""
    assert fact in " ".join(QUESTIONS[:6])

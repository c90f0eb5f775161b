"""The scripted person of the demo."""

from __future__ import annotations

import pytest

from tidemark.demo.script import script


def test_the_script_has_forty_turns() -> None:
    """The demo's default conversation is forty different questions."""
    assert len(set(script(40))) == 40


def test_a_shorter_conversation_is_a_beginning_of_the_longer_one() -> None:
    """`--turns N` asks the first N questions, so that runs of different lengths can be compared."""
    assert script(7) == script(40)[:7]


def test_a_longer_conversation_goes_round_again() -> None:
    """More turns than the script has begin again with its first question."""
    assert script(43)[40:] == script(3)


@pytest.mark.parametrize("fact", ["Petrel", "Marta", "peanuts", "after dark", "2400 euros"])
def test_the_early_turns_tell_what_the_late_ones_ask_for(fact: str) -> None:
    """What the last turns ask for was told in the first six, long before the window is full."""
    assert fact in " ".join(script(6))

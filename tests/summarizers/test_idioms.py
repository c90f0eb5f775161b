"""Phrases of a chat are no rules, and a rule beside one is still found."""

from __future__ import annotations

import pytest

from proxy.summarizers.signals import rule_kind, words_of


@pytest.mark.parametrize(
    "sentence",
    [
        "Keep it up!",
        "Keep going, you are almost there!",
        "Never give up on your dreams.",
        "Don't give up!",
        "Don't worry too much about it.",
        "I'm always here for you.",
        "Make sure to have fun!",
        "Keep in touch!",
        "Always follow your heart.",
        "Only time will tell.",
    ],
)
def test_a_phrase_of_a_chat_is_no_rule(sentence: str) -> None:
    """It takes no place among the rules of a small budget."""
    assert rule_kind(sentence, words_of(sentence)) is None


@pytest.mark.parametrize(
    "sentence",
    [
        "Keep it up, and never push to main.",
        "Don't worry, but never delete the backups.",
        "Never give up the lock before the write.",
        "Never stop the deploy job without asking.",
        "Do not let it get above 80 degrees.",
        "Keep the tests green.",
        "Always ask me before you stop by the vault.",
    ],
)
def test_a_rule_beside_a_phrase_or_like_one_is_a_rule(sentence: str) -> None:
    """A rule that is missed costs more than a phrase that is taken for one."""
    assert rule_kind(sentence, words_of(sentence)) == "directive"

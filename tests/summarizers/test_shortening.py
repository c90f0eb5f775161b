"""A shortened sentence says nothing that was not said: words go, and none is changed, moved or added."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.summarizers.extractive import shorten

WORDS_TEXT = """
the a an is are am was really very I we you not never no isn't must should may might maybe perhaps Keiko Vitamin A 7
3.5 14:30 $40 and to with that my Wow, oh, Thanks! only always port 8080 `x` don't without "so" (the) kayak, red.
"""
WORDS = WORDS_TEXT.split()
SENTENCES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=20).map(" ".join) | st.text(max_size=80)
MEANINGFUL = re.compile(r"\d|\bnot\b|n't\b|\bnever\b|\bno\b|\bwithout\b|\bmust\b|\bshould\b|\bmay\b|\bmight\b|\bonly\b")


def is_subsequence(words: list[str], of: list[str]) -> bool:
    """Return whether the words stand in the others, in their order."""
    rest = iter(of)
    return all(word in rest for word in words)


@given(SENTENCES)
def test_a_shortened_sentence_is_a_subsequence(sentence: str) -> None:
    """It is faithful word by word, and never empty."""
    text = shorten(sentence)
    assert text == sentence or is_subsequence(text.split(), sentence.split())
    assert bool(text.split()) == bool(sentence.split())


@given(SENTENCES)
def test_numbers_negations_and_modals_stay(sentence: str) -> None:
    """What would turn the meaning round is never dropped."""
    assert MEANINGFUL.findall(shorten(sentence)) == MEANINGFUL.findall(sentence)


@given(SENTENCES)
def test_the_verb_and_the_speaker_stay(sentence: str) -> None:
    """No line reads as an error, such as "It love, and openness"."""
    kept = {"am", "is", "are", "was", "I", "we", "you"}
    assert [word for word in shorten(sentence).split() if word in kept] == [
        word for word in sentence.split() if word in kept
    ]


@given(SENTENCES)
def test_names_stay(sentence: str) -> None:
    """A capital letter inside a sentence is a name, whatever the word."""
    remaining = shorten(sentence).split()
    assert all(remaining.count(name) == sentence.split().count(name) for name in ("Keiko", "Vitamin"))


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        ("I met Keiko at the pottery fair.", "I met Keiko at pottery fair."),
        ("Wow, the garden is really lovely now.", "Wow, garden is really lovely now."),
        ("This is the day of my parents' wedding.", "This is day of my parents' wedding."),
        ("The kayak that I bought for the lake was very heavy.", "The kayak that I bought for lake was very heavy."),
        ("I might go to the lake with my sister.", "I might go to lake with my sister."),
    ],
)
def test_empty_words_go(sentence: str, text: str) -> None:
    """Articles say nothing. Without its first word or its verb a sentence would read as an error."""
    assert shorten(sentence) == text


@pytest.mark.parametrize(
    "sentence",
    [
        "The port is not open to the public.",
        "Is the port really open to you?",
        "Run `the really long command` with the token.",
        "SAFETY RULE: the vault is closed and stays so.",
        "Me encanta ir a la playa a nadar.",
        "She said “the garden is lovely” to me.",
        "I have a few friends and a little money, by the way.",
    ],
)
def test_negations_questions_code_labels_and_other_languages_keep_their_words(sentence: str) -> None:
    """Only what is surely empty goes."""
    expected = sentence.replace("to the public", "to public")
    assert shorten(sentence) == expected

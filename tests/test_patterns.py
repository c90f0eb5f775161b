"""No regular expression of ``proxy/`` is slow: the time of each grows no faster than a hostile text."""

from __future__ import annotations

import re

import pytest

from tests.support.patterns import Found, costly_text, patterns_of_proxy, slow_text
from tidemark.summarizers.sentences import SENTENCE_CHARS

pytestmark = pytest.mark.speed
BOUNDED = {
    "tidemark.config.templates:_HEADING": "one line of a template, which is the operator's own file",
    "tidemark.summarizers.details:_FILE": "a word of a sentence or of a command, of at most 320 and 400 characters",
    "tidemark.summarizers.revoking:_TAKES_BACK": "a sentence of at most 240 characters; a run of spaces is one",
    "tidemark.summarizers.revoking:_ALLOWS": "the same",
}
"""Patterns whose time grows faster, each with the reason why that is no harm."""
OF_SENTENCES = tuple(f"tidemark.summarizers.{name}:" for name in ("revoking", "rule_languages", "rules"))
"""Modules that read one sentence at a time, so that growth beyond ``SENTENCE_CHARS`` is no harm."""


@pytest.fixture(scope="module")
def patterns() -> list[Found]:
    """All patterns but those with a reason."""
    all_found = patterns_of_proxy()
    assert len(all_found) > 100
    assert BOUNDED.keys() <= {one.name for one in all_found}, "a reason without its pattern"
    return [one for one in all_found if one.name not in BOUNDED]


def test_no_pattern_is_slow_with_a_text_that_it_almost_matches(patterns: list[Found]) -> None:
    """The texts are made from the patterns themselves, so a new pattern is measured without being named here."""
    of_texts = [one for one in patterns if not one.name.startswith(OF_SENTENCES)]
    assert not {one.name: text for one in of_texts if (text := slow_text(one))}


def test_no_pattern_of_sentences_is_slow_with_the_longest_one(patterns: list[Found]) -> None:
    """A sentence of "und: und: und: " never ended."""
    of_sentences = [one for one in patterns if one.name.startswith(OF_SENTENCES)]
    assert not {one.name: text for one in of_sentences if (text := costly_text(one, SENTENCE_CHARS))}


@pytest.mark.parametrize(
    ("pattern", "use"),
    [
        (rb'"mark"\s*:\s*(\{[^{}]*"type"\s*:\s*"ephemeral"[^{}]*\})', "findall"),
        (rb',"usage":null(?=(?:,"[^"]*":(?:"[^"]*"|null|-?[0-9]+))*\})', "sub"),
        (r'(\w+)="[^"]*"', "findall"),
        (r"\s+$", "sub"),
        (r"(?:a+)+b", "match"),
        (r".+?\s+is\s+.*allowed", "match"),
        (r"<(\w+)>.*?</\1>", "search"),
    ],
)
def test_patterns_that_were_slow_are_found(pattern: str | bytes, use: str) -> None:
    """Squares, and what never ends."""
    assert slow_text(Found("", re.compile(pattern), {use}))


@pytest.mark.parametrize(
    ("pattern", "use"),
    [
        (rb'"mark"\s*:\s*(\{[^{}]*\})', "findall"),
        (r'\b(\w+)="[^"]*"', "findall"),
        (r"a{1,9}b", "sub"),
        (r"\s+$", "match"),
    ],
)
def test_patterns_that_read_each_character_once_are_not_slow(pattern: str | bytes, use: str) -> None:
    """However often they almost match; and a pattern that begins at one place reads no other."""
    assert slow_text(Found("", re.compile(pattern), {use})) is None


def test_what_never_ends_is_found_in_a_short_text() -> None:
    """A word that a list and a label both read, any number of times."""
    endless = r"^(?:(?:und|so|[^\W\d]+(?:\s\w+){0,3}\s?:)[,:;]?\s+)*(?:nie|nur)\s"
    assert costly_text(Found("", re.compile(endless), {"search"}), 80)
    assert costly_text(Found("", re.compile(endless.replace("*(?:nie", "{0,3}(?:nie")), {"search"}), 80) is None

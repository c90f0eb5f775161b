"""No regular expression of ``proxy/`` is slow: the time of each grows no faster than a hostile text."""

from __future__ import annotations

import re

import pytest

from tests.support.patterns import Found, patterns_of_proxy, slow_text

BOUNDED = {
    "proxy.config.templates:_HEADING": "one line of a template, which is the operator's own file",
    "proxy.summarizers.details:_FILE": "a word of a sentence, of at most 160 characters",
}
"""Patterns whose time grows faster, each with the reason why that is no harm."""
OF_SENTENCES = tuple(
    f"proxy.summarizers.{name}:" for name in ("replacing", "revoking", "rule_languages", "rule_scripts", "rules")
)
"""Modules whose patterns read one sentence, which has at most 320 characters."""


def test_no_pattern_is_slow_with_a_text_that_it_almost_matches() -> None:
    """The texts are made from the patterns themselves, so a new pattern is measured without being named here."""
    found = patterns_of_proxy()
    assert len(found) > 100
    assert BOUNDED.keys() <= {one.name for one in found}, "a reason without its pattern"
    measured = [one for one in found if one.name not in BOUNDED and not one.name.startswith(OF_SENTENCES)]
    slow = {one.name: text for one in measured if (text := slow_text(one))}
    assert not slow


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

"""What a sentence must have before the slow patterns of rules are searched in it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tidemark.summarizers.rules import DEMAND, DIRECTIVE, Wording
from tidemark.summarizers.sentences import words_of

ASCII = st.characters(min_codepoint=0x20, max_codepoint=0x7E)


@pytest.mark.parametrize("wording", [DIRECTIVE, DEMAND], ids=["directive", "demand"])
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_each_sentence_that_a_pattern_matches_has_its_words(wording: Wording, data: st.DataObject) -> None:
    """The words are a necessary condition, so that looking at them first changes no answer."""
    text = data.draw(st.from_regex(wording.pattern, alphabet=ASCII))
    assert wording.may_match(words_of(text.lower()))

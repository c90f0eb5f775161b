"""Excerpts: the records of a long message that bear on a question, each whole."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.recall.excerpt import LEFT_OUT, excerpt_of
from tidemark.core.recall.index import terms_of

PROFILE = json.dumps(
    {
        "user_id": "ilse_7731",
        "address": {"street": "48 Quayside Lane", "city": "Duluth"},
        "cards": [{"id": f"gift_card_{number}", "kind": "gift", "amount": number} for number in range(40)],
        "passengers": [{"name": "Marit", "born": "1953-11-02"}, {"name": "Joost", "born": "2012-06-25"}],
    }
)


def weights(*words: str) -> dict[str, float]:
    """The weights of a question's words."""
    return {term: 1.0 for word in words for term in terms_of(word)}


def test_the_record_that_a_question_names_is_quoted_whole() -> None:
    """And nothing of the others, whose place is marked."""
    record = '{"name": "Marit", "born": "1953-11-02"}'
    assert excerpt_of(PROFILE, weights("Marit"), 400) == f"{LEFT_OUT}\n{record}\n{LEFT_OUT}"


def test_a_word_that_all_records_have_counts_little() -> None:
    """The number says which card is meant."""
    assert excerpt_of(PROFILE, weights("card_17"), 90).split("\n")[1].startswith('{"id": "gift_card_17"')


def test_of_a_log_the_lines_that_share_words_are_quoted() -> None:
    """In their order."""
    log = "\n".join([*(f"step {number} ok" for number in range(90)), "ERROR disk full on node7", "step 91 ok"])
    assert excerpt_of(log, weights("disk", "node7"), 200) == f"{LEFT_OUT}\nERROR disk full on node7\n{LEFT_OUT}"


def test_what_shares_nothing_gives_no_excerpt() -> None:
    """Nor does a record that is longer than the space."""
    assert not excerpt_of(PROFILE, weights("zeppelin"), 400)
    assert not excerpt_of(PROFILE, weights("Marit"), 20)


@given(st.text(st.sampled_from('{}[]",: \nab1'), max_size=400), st.integers(0, 300))
def test_an_excerpt_keeps_its_bound_and_is_made_of_the_text(text: str, max_chars: int) -> None:
    """Whatever braces and quotes a text has."""
    excerpt = excerpt_of(text, weights("a", "b", "1"), max_chars)
    assert len(excerpt) <= max_chars + len(LEFT_OUT) + 1
    for line in excerpt.split("\n"):
        assert line == LEFT_OUT or line.strip() in text

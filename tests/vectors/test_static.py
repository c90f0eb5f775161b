"""Vectors of sentences are the same everywhere, grow at the end, and find what is meant in other words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.recall.meaning import LEAST_SIMILARITY
from tidemark.vectors.loading import load_vectors
from tidemark.vectors.static import MOST_SENTENCES, StaticVectors

TALK = [
    "My sister cannot have peanuts. They make her ill.",
    "He has two cats and a dog named Rex.",
    "The basement lock has the combination 7731.",
    "Please write short answers.",
    "Das Wetter ist schön.",
    "",
]
TEXTS = st.lists(st.text(max_size=60), max_size=8)


@pytest.fixture(scope="module")
def vectors() -> StaticVectors:
    """Loaded once; nothing is fetched."""
    return StaticVectors()


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ("Which snack could make a relative sick?", 0),
        ("What pets are there?", 1),
        ("Which door code opens the cellar?", 2),
    ],
)
def test_a_text_is_found_by_other_words(vectors: StaticVectors, question: str, place: int) -> None:
    """The first one is what was asked for."""
    index = vectors.index()
    index.add(TALK)
    nearest = index.nearest(question, len(TALK), 3)
    assert nearest[0][0] == place
    assert all(similarity >= LEAST_SIMILARITY for _, similarity in nearest)


def test_what_has_nothing_to_do_with_it_is_not_found(vectors: StaticVectors) -> None:
    """However few texts there are."""
    index = vectors.index()
    assert index.nearest("What is the password?", 0, 3) == []
    index.add(TALK)
    assert index.nearest("Multiply two matrices in CUDA.", len(TALK), 3) == []


@given(TEXTS, TEXTS, st.text(max_size=60))
def test_texts_are_found_alike_however_they_were_added(
    vectors: StaticVectors, first: list[str], second: list[str], question: str
) -> None:
    """At once, one by one, and where more follow: so each worker comes to the same."""
    whole, grown = vectors.index(), vectors.index()
    whole.add([*first, *second])
    for text in first:
        grown.add([text])
    expected = grown.nearest(question, len(first), 5)
    assert whole.nearest(question, len(first), 5) == expected
    assert len({place for place, _ in expected}) == len(expected)
    assert all(0 <= place < len(first) and LEAST_SIMILARITY <= alike <= 1.001 for place, alike in expected)


@given(st.text(min_size=1, max_size=60), TEXTS)
def test_the_likeness_of_texts_is_that_of_the_best_one(vectors: StaticVectors, question: str, texts: list[str]) -> None:
    """Without an index, and the same a second time, from the cache."""
    index = vectors.index()
    index.add(texts)
    likeness = index.likeness(question, texts)
    assert index.likeness(question, texts) == likeness
    best = index.nearest(question, len(texts), 1)
    assert best == [] if likeness < LEAST_SIMILARITY else best[0][1] == likeness


def test_a_long_text_takes_a_bounded_place(vectors: StaticVectors) -> None:
    """A log of thousands of lines is found by its terms."""
    index = vectors.index()
    index.add(["line\n" * 10_000])
    assert index.size < MOST_SENTENCES * 200


def test_nothing_is_loaded_where_no_model_needs_it() -> None:
    """The extra may be missing then."""
    assert load_vectors(["bm25"]) is None
    assert load_vectors(["bm25", "embedding"]) is not None

"""A word counts by how rare it is in its language, which the tokenizer's vocabulary tells."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tidemark.core.conversation.messages import Message
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.summarizers.salience import candidates_of

MODEL = "gpt-4o"
Talk = Callable[..., tuple[Message, ...]]
EVERYDAY, RARE = "We talked to several different friends over dinner.", "We fed eleven ravenous ocelots over dinner."
"""What anybody could have said, and what only this talk says."""


@pytest.mark.anyio
async def test_of_two_sentences_the_one_with_rarer_words_stays(counter: TokenCounter, talk: Talk) -> None:
    """Whichever comes first; no list of words has them."""
    for said in ((EVERYDAY, "Mm.", RARE), (RARE, "Mm.", EVERYDAY)):
        task = SummaryTask(talk(*said, "Mm."), None, 16, MODEL)
        text = (await ExtractiveSummarizer(counter).summarize(task)).text
        assert "ocelots" in text
        assert "friends" not in text


def ranked(rank: int | None) -> Callable[[str], int | None]:
    """Every word has this rank."""
    return lambda _: rank


@settings(max_examples=examples(100))
@given(rank=st.integers(0, 300_000), step=st.integers(0, 100_000))
def test_a_word_further_down_the_vocabulary_counts_as_much_or_more(rank: int, step: int) -> None:
    """And one that is no token at all counts as much as the last."""
    ranks = (rank, rank + step, None)
    densities = [candidates_of([_MESSAGE], None, 300, rank_of=ranked(one))[0].density for one in ranks]
    assert densities[0] <= densities[1] <= densities[2]


def test_a_word_with_digits_counts_alike_wherever_it_stands() -> None:
    """Its numbers count by themselves, and identifiers stand in no vocabulary."""
    message = Message(raw=b"1", role="user", text="7731qx 88ab 12cd.", digest=b"1" * 32)
    common, unknown = (candidates_of([message], None, 300, rank_of=ranked(rank))[0] for rank in (100, None))
    assert common.density == unknown.density


_MESSAGE = Message(raw=b"1", role="user", text="Ocelots snore in hammocks.", digest=b"1" * 32)

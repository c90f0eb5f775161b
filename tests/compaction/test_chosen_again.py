"""Lines are chosen again from the messages, but never where a person or a model wrote of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.histories import message
from tidemark.compaction.record import summary_record
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.summary import PrefixSummary, Strategy, SummaryRecipe, SummaryText
from tidemark.core.planning.candidates import MOST_EARLIER_TOKENS, earlier_messages

TALK = [message(role="user" if number % 2 else "assistant", content=f"Point {number}.") for number in range(40)]
TOKENS = [10] * len(TALK)
CHAIN = chain_of("tenant", TALK)
MADE_BY: list[Strategy] = ["extractive", "hybrid"]


def summary_of(previous: PrefixSummary | None, covered: int, made_by: Strategy = "extractive") -> PrefixSummary:
    """A summary as the compactor records it, upon the one before."""
    return summary_record(
        CHAIN,
        SummaryText("User: Point 1.", made_by),
        covered=covered,
        absorbed=(),
        previous=previous,
        recipe=SummaryRecipe(made_by, "", 1),
        cause="automatic",
        created_at=0.0,
        count=lambda _: 20,
        anew=bool(read_again(previous)),
    )


def read_again(summary: PrefixSummary | None) -> tuple[Message, ...]:
    """The messages from which a summary may be made anew."""
    return earlier_messages(summary, TALK, TOKENS)


@pytest.mark.parametrize("made_by", MADE_BY)
def test_messages_are_read_again_however_many_summaries_there_were(made_by: Strategy) -> None:
    """Each one is made of all messages, and so may be the next."""
    first = summary_of(None, 10, made_by)
    second = summary_of(first, 20, made_by)
    assert read_again(first) == tuple(TALK[:10])
    assert read_again(second) == tuple(TALK[:20])


def test_what_a_person_wrote_stays_in_all_later_summaries() -> None:
    """Nothing that was removed comes back, whatever is made upon it (promise 11)."""
    edited = replace(summary_of(None, 10), text="User: Nothing.", edited=True, chosen=False)
    assert read_again(edited) == ()
    second = summary_of(edited, 20)
    assert read_again(second) == ()
    assert read_again(summary_of(second, 30)) == ()


def test_what_a_model_wrote_stays_in_all_later_summaries() -> None:
    """Lines that are chosen beside it go on from it."""
    second = summary_of(summary_of(None, 10, "llm"), 20)
    assert read_again(second) == ()
    assert read_again(summary_of(second, 30)) == ()
    assert read_again(summary_of(summary_of(None, 10, "hybrid"), 20)) == ()


def test_a_very_long_prefix_is_not_read_again() -> None:
    """Its summary goes on, so that the time has a bound."""
    summary = summary_of(None, 10)
    assert earlier_messages(summary, TALK, [MOST_EARLIER_TOKENS // 10 + 1] * len(TALK)) == ()
    assert earlier_messages(replace(summary, absorbed=(b"digest",)), TALK, TOKENS) == ()
    assert earlier_messages(None, TALK, TOKENS) == ()

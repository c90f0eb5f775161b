"""Rules of loss receipts: what stands in a summary is kept, most of a sentence is shortened, all else is dropped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe, SummaryText
from tidemark.core.receipt import receipt_of, render_receipt
from tidemark.summarizers.compared_text import ComparedText
from tidemark.summarizers.receipts import ReceiptWriter, details_of
from tidemark.summarizers.sentences import words_of

Talk = Callable[..., tuple[Message, ...]]
TALK = (
    "Never touch the production database. Ticket OPS-4411 is about proxy/core/plan.py, and Grace waits for it.",
    "We decided to use Postgres 16 for the new service. I ran\n$ git push origin main",
    "The budget is 4500 euros until 2026-12-01. See https://example.org/plan for the details. What is left?",
)


def survivals(messages: tuple[Message, ...], text: str, previous: str = "") -> dict[str, str]:
    """Each detail with what became of it."""
    return {detail.text: detail.survival for detail in details_of(messages, previous, text)}


def test_what_the_text_has_is_kept(talk: Talk) -> None:
    """Word for word, whatever stands before it on its line and however it is written in upper and lower case."""
    text = (
        "User: never touch the production database\nFiles: proxy/core/plan.py\nIdentifiers: OPS-4411\nUser: Grace waits"
    )
    found = survivals(talk(*TALK), text)
    assert found["Never touch the production database."] == "kept"
    assert found["OPS-4411"] == found["proxy/core/plan.py"] == found["Grace"] == "kept"


def test_a_label_that_stands_once_belongs_to_each_statement(talk: Talk) -> None:
    """A statement is whole although its label stands above it."""
    said = ("CONSTRAINT: Never use port 81.", "Fine.", "CONSTRAINT: The rent is $90 in all.", "Fine.")
    text = "User: CONSTRAINT:\n Never use port 81.\n The rent is $90 in all."
    found = survivals(talk(*said), text)
    assert found[said[0]] == found[said[2]] == "kept"
    assert survivals(talk(*said), "User: CONSTRAINT:\n Never use port 81.")[said[2]] == "dropped"


def test_what_the_text_has_not_is_dropped(talk: Talk) -> None:
    """Of every kind."""
    found = survivals(talk(*TALK), "User: something else altogether")
    assert set(found.values()) == {"dropped"}
    assert {"OPS-4411", "https://example.org/plan", "git push origin main", "Grace"} <= set(found)


def test_most_words_of_a_sentence_in_their_order_are_a_shortened_one(talk: Talk) -> None:
    """Fewer words, or other ones, are none."""
    rule = "Please never deploy the billing service on a Friday afternoon without asking me."
    messages = talk(rule)
    assert (
        survivals(messages, "User: never deploy billing service on Friday afternoon without asking")[rule]
        == "shortened"
    )
    assert survivals(messages, "User: deploy billing")[rule] == "dropped"
    assert survivals(messages, "asking without afternoon Friday on service billing deploy never")[rule] == "dropped"


@pytest.mark.parametrize("text", ["OPS-44112", "XOPS-4411", "ops-4411"])
def test_a_part_of_a_longer_identifier_is_no_identifier(talk: Talk, text: str) -> None:
    """Nor is one in other letters: whoever searches for it would not find it."""
    assert survivals(talk("Look at OPS-4411 now."), text)["OPS-4411"] == "dropped"


@pytest.mark.parametrize("text", ["", "x " * 5000, "ÄÖÜ 漢字。" * 500, "{" * 2000, "a. " * 5000])
def test_any_text_can_be_compared(talk: Talk, text: str) -> None:
    """Also with itself: then nothing is dropped."""
    messages = talk(text or ".")
    assert all(detail.survival != "dropped" for detail in details_of(messages, "", f"User: {text}"))
    assert all(detail.survival == "dropped" for detail in details_of(messages, "", ""))


async def test_a_cascade_hides_no_loss(talk: Talk) -> None:
    """A rule that the first summary dropped is missing in the second one's receipt too, though no text has it."""
    writer = ReceiptWriter()
    said = talk("Never touch prod. Always answer in French.")
    first = await writer.receipt(said, None, SummaryText("User said: Never touch prod.", "extractive"))
    assert render_receipt(first).startswith("rules 1/2")
    recipe = SummaryRecipe("extractive", "", 1)
    previous = PrefixSummary(
        b"p", 1, "User said: Never touch prod.", recipe, "extractive", "automatic", 1.0, receipt=first
    )
    written = SummaryText("User said: Never touch prod.\nUser said: Avoid tabs.", "extractive")
    second = await writer.receipt(talk("Avoid tabs."), previous, written)
    assert render_receipt(second).startswith("rules 2/3")


async def test_a_comparison_that_takes_too_long_costs_no_summary(talk: Talk) -> None:
    """There is no receipt then."""
    messages = talk(*[f"Never change file {number}.txt there." for number in range(2000)])
    written = SummaryText("User: hello", "extractive")
    assert await ReceiptWriter(reading_seconds=0.0).receipt(messages, None, written) == ()


def test_equal_messages_give_equal_receipts(talk: Talk) -> None:
    """A receipt is part of a stored summary, which all workers must make alike."""
    one = receipt_of(details_of(talk(*TALK), "User said: Be brief.", "User: Grace"))
    assert one == receipt_of(details_of(talk(*TALK), "User said: Be brief.", "User: Grace"))


@given(st.lists(st.sampled_from(["a", "b-a", "B", "c.", "Σ", "\n", "a_b"]), max_size=12), st.data())
def test_a_phrase_stands_where_its_words_follow_each_other(parts: list[str], data: st.DataObject) -> None:
    """Whatever punctuation and line ends are between them; the index finds what a search of all words finds."""
    text = " ".join(parts)
    phrase = words_of(data.draw(st.sampled_from(["a", "a b", "b a a", "σ", "c a", "a a", "d", "a d"])))
    wanted = f" {' '.join(phrase)} "
    assert ComparedText(text).has_phrase(phrase) == (wanted in f" {' '.join(words_of(text))} ")


@given(
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=9).map(" ".join), max_size=5), st.text("abcdefg ", min_size=1)
)
def test_a_sentence_survives_in_the_line_that_has_most_of_it(lines: list[str], sentence: str) -> None:
    """The index of words leaves no line out that a comparison with each line finds."""
    words = words_of(" ".join(sentence)) or ("a",)
    alone = [ComparedText(line).sentence_survival(words) for line in lines] or ["dropped"]
    best = min(alone, key=["kept", "shortened", "dropped"].index)
    assert ComparedText("\n".join(lines)).sentence_survival(words) == best

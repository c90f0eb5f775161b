"""Relevance: originals come back only for a question about something that the context lacks."""

from __future__ import annotations

import pytest

from tests.core.histories import message
from tidemark.core.recall.index import MessageIndex
from tidemark.core.recall.relevance import PASSAGE_CHARS, lacks_answer, passages_of

ORIGINALS = (
    "My sister Ingrid is allergic to peanuts.",
    "The spare key lies under the blue flowerpot.",
    "Meine Großmutter wohnt in Lüneburg.",
    "我弟弟在成都的医院工作。",
    *(f"We had soup on day {number}, and the weather was fine again." for number in range(40)),
)
CONTEXT = ("We had soup on day 41.", "The bus was late.")


def lacks(question: str, *context: str) -> bool:
    """Whether the originals bear on a question more than a context does."""
    index, originals = MessageIndex(), [message(role="user", content=text) for text in ORIGINALS]
    index.add(originals)
    return lacks_answer(index, question, originals, [*CONTEXT, *context], is_statement=False)


@pytest.mark.parametrize(
    "question",
    [
        "What is my sister Ingrid allergic to?",
        "Where is the other key?",
        "Wo wohnt die Grossmutter?",
        "我弟弟在哪里工作？",
    ],
)
def test_a_question_about_what_is_gone_asks_for_originals(question: str) -> None:
    """One rare word that only an original has is enough, in any script."""
    assert lacks(question)


@pytest.mark.parametrize(
    "question",
    [
        "",
        "Thanks!",
        "Go on.",
        "And now write a haiku about rain.",
        "Explain quantum entanglement to a child in three sentences.",
        "How was the weather?",
        "Danke, das war's für heute.",
    ],
)
def test_a_message_about_nothing_earlier_asks_for_none(question: str) -> None:
    """New subjects and common words: the question goes out as it came."""
    assert not lacks(question)


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("What is my sister Ingrid allergic to?", "Sister Ingrid allergic to peanuts"),
        ("Where is the other key?", "Spare key under blue flowerpot."),
        ("Wo wohnt die Großmutter?", "GROSSMUTTER wohnt in Lüneburg"),
        ("我弟弟在哪里工作？", "弟弟在成都的医院工作"),
    ],
)
def test_what_stands_in_context_is_not_recalled(question: str, line: str) -> None:
    """A line of the summary or a newest turn that shares as much with the question."""
    assert not lacks(question, line)
    assert lacks(question, line[: len(line) // 5])


def test_a_long_message_in_context_is_compared_by_its_lines() -> None:
    """A file has words of everything, and so covers nothing by having them all somewhere."""
    lines = ["a sister", "of Ingrid", "allergic", *["filling"] * PASSAGE_CHARS]
    file = message(role="user", content="\n".join(lines))
    said = message(role="user", content=" ".join(lines[:9]))
    assert lacks("What is my sister Ingrid allergic to?", *passages_of("", [file]))
    assert not lacks("What is my sister Ingrid allergic to?", *passages_of("", [said]))


def test_a_long_question_needs_little_of_an_original() -> None:
    """Who tells much may still ask for one thing."""
    beginning = " ".join(f"unheard{number}" for number in range(300))
    assert lacks(f"{beginning} What is my sister Ingrid allergic to?")


def test_an_earlier_question_in_context_answers_nothing() -> None:
    """What was recalled for it is not sent again, so a further question about the same recalls anew."""
    question = message(role="user", content="Is my sister Ingrid allergic to peanuts?")
    answer = message(role="assistant", content="Your sister Ingrid is allergic to peanuts, are you too?")
    assert lacks("What is my sister Ingrid allergic to?", *passages_of("", [question]))
    assert not lacks("What is my sister Ingrid allergic to?", *passages_of("", [question, answer]))


def test_a_statement_is_looked_up_whole_if_it_may_ask_for_something() -> None:
    """What an agent proposed stands beside the words of whoever confirms it, often as a question."""
    index, originals = MessageIndex(), [message(role="user", content=text) for text in ORIGINALS]
    index.add(originals)
    said = "Yes.\nThe spare key lies with Ingrid. Shall I proceed?"
    assert lacks_answer(index, said, originals, [*CONTEXT], is_statement=True)
    assert not lacks_answer(index, said, originals, [*CONTEXT], is_statement=False)

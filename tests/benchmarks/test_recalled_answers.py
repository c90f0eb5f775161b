"""What recall finds by the words that a question shares with its answer (docs/fidelity.md has the figures)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from benchmarks.fidelity.cases import Case, Fact
from benchmarks.fidelity.questions import question_cases
from benchmarks.fidelity.survival import surviving
from tests.core.histories import message
from tidemark.core.recall.index import MessageIndex, ranked
from tidemark.core.recall.quotation import chosen
from tidemark.core.recall.relevance import lacks_answer

QUESTIONS = {
    "allergic to peanuts": "Which snack could make a relative ill?",
    "ninth of October": "What is our release date?",
    "under the blue flowerpot": "How do I get in without my own set?",
    "Bartholomew Pike": "Who owns the flat that I rent?",
    "parser in Rust": "Which programming language reads the grammar?",
    "tangerine42": "What is the wifi passphrase?",
    "stop drinking coffee": "Which beverage did the physician forbid?",
    "1,870 euros": "How much money did that bill cost?",
    "clock runs in UTC": "What makes our checks break?",
    "leaves at 6:40": "When does the plane take off?",
    "short bullet points": "Which formatting do I like for your replies?",
    "port 5544": "Which number does the server listen at before production?",
    "born in Vilnius": "From which city comes the puppy?",
    "three spoons of cardamom": "How much spice goes into granny's cake?",
}
"""By the words that answer; they share none with the sentence that has these but such as "the" and "in"."""


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Talks of 300 messages, each with all facts."""
    return question_cases()


def answered(cases: Sequence[Case]) -> dict[str, float]:
    """The share of questions, by their kind, whose answer stands in 5 % of the talk that come back for it."""
    hits, asked = Counter[str](), Counter[str]()
    for case in cases:
        messages = [message(role=said["role"], content=said["content"]) for said in case.messages]
        tokens = [len(said.text) // 4 + 4 for said in messages]
        index = MessageIndex()
        index.add(messages)
        for fact in [*case.facts, *(Fact("no common word", (words,), asks) for words, asks in QUESTIONS.items())]:
            asked[fact.kind] += 1
            if lacks_answer(index, fact.question, messages, [], is_statement=False):
                ranking = ranked(index.scores(fact.question, len(messages)), len(messages))
                exchanges = chosen(messages, tokens, ranking, sum(tokens) // 20)
                texts = [messages[place].text for exchange in exchanges for place in exchange.places]
                hits[fact.kind] += bool(surviving(case, [fact], texts))
    return {kind: round(hits[kind] / count, 2) for kind, count in asked.items()}


def test_so_many_questions_find_their_answer(cases: Sequence[Case]) -> None:
    """The words of the question are the same everywhere, and so are the figures."""
    least = {"same words": 1.0, "other words": 0.88, "one of many": 0.44, "no common word": 0.0}
    shares = answered(cases)
    assert {kind: share for kind, share in shares.items() if share < least[kind]} == {}

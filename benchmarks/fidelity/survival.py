"""Decides whether a fact stands in a text: in one kept message or in one line of a summary.

Case, punctuation, articles and forms of "be" do not count, since a shortened line may lack them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.fidelity.cases import Case, Fact

_WORD = re.compile(r"[^\W_]+")
_EMPTY = frozenset("a an the am is are was were be been being s re m".split())


def plain_words(text: str) -> list[str]:
    """Return the words of a text that count, in lower case."""
    return [word for word in _WORD.findall(text.lower()) if word not in _EMPTY]


def text_of(message: Mapping[str, Any]) -> str:
    """Return what a kept message says, with the arguments of its calls."""
    arguments = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    return "\n".join([message["content"], *arguments])


def surviving(case: Case, facts: Sequence[Fact], texts: Sequence[str]) -> list[Fact]:
    """Return the facts that stand in one of the texts.

    :param texts: kept messages, and the lines of the summary
    """
    words = [plain_words(text) for text in texts]
    if case.loose:
        sets = [frozenset(line) for line in words]
        return [fact for fact in facts if any(_words_of_fact(fact) <= line for line in sets)]
    lines = [" ".join(line) for line in words]
    phrases = {phrase: " ".join(plain_words(phrase)) for fact in facts for phrase in fact.words}
    return [fact for fact in facts if any(all(phrases[phrase] in line for phrase in fact.words) for line in lines)]


def _words_of_fact(fact: Fact) -> frozenset[str]:
    return frozenset(word for phrase in fact.words for word in plain_words(phrase))

"""Relevance: whether a question bears on something that the context of a compacted request lacks.

``pipeline/recall.py`` asks before it quotes. A recalled text costs tokens that no provider has cached, so a question
that the summary and the newest turns cover goes out as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log

from proxy.core.conversation.messages import Message
from proxy.core.recall.index import TermIndex
from proxy.core.recall.terms import plain_text

LEAST_WORDS = 0.9
"""What the best original shares with a question at least, in words that stand in one original alone."""
LEAST_SHARE = 0.1
"""The part of a question's words, weighed by rarity, that the best original shares."""
MOST_WORDS = 12
"""A longer question counts as one of so many rare words: one that tells much may ask for little."""
COVERED_SHARE = 2 / 3
"""A passage in context that shares this part of what the best original shares is about the same thing."""
PASSAGE_CHARS = 2_000
"""A longer message in context, such as a file, has words of everything; its lines are compared one by one."""

LEAST_LETTERS = 3
"""Shorter terms, such as "s" and "of", stand inside nearly every other word."""
QUESTION_MARKS = ("?", "\uff1f", "\u061f", "\u037e")
"""Those of Latin, Chinese and Japanese, Arabic and Greek."""


def lacks_answer(index: TermIndex, question: str, count: int, passages: Iterable[str]) -> bool:
    """Return whether an original bears on a question more than all that is in context does.

    :param count: originals, the first ones of the index
    :param passages: see ``passages_of``
    """
    shared, total = index.rare_terms(question, count)
    rare_terms = [term for term in shared if len(term.text) >= LEAST_LETTERS or not term.text.isascii()]
    sums: dict[int, float] = {}
    for term in rare_terms:
        for place in term.places:
            sums[place] = sums.get(place, 0.0) + term.rarity
    best = max(sums.values(), default=0.0)
    once = log(1 + (count - 0.5) / 1.5)
    if not best or best < LEAST_WORDS * once or best < LEAST_SHARE * min(total, MOST_WORDS * once):
        return False
    weights = [(term.text, term.rarity) for term in rare_terms]
    covered = COVERED_SHARE * best
    for passage in passages:
        text = plain_text(passage)
        if sum([rarity for term, rarity in weights if term in text]) >= covered:
            return False
    return True


def passages_of(summary: str, messages: Sequence[Message]) -> list[str]:
    """Return what is in context: a summary's lines, and the messages since its cut.

    A question tells nothing, and what was recalled for it is not sent again: a further one about the same recalls anew.
    """
    passages = summary.split("\n")
    for message in messages:
        if message.is_system or (message.role == "user" and message.text.rstrip().endswith(QUESTION_MARKS)):
            continue
        passages += [message.text] if len(message.text) <= PASSAGE_CHARS else message.text.split("\n")
    return passages

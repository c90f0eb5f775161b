"""Relevance: whether a question bears on something that the context of a compacted request lacks.

``pipeline/recall.py`` asks before it quotes. A recalled text costs tokens that no provider has cached, so a question
that the summary and the newest turns cover goes out as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.recall.index import MessageIndex, RareTerm, plain_text, rarity_of

LEAST_WORDS = 0.9
"""What the best original shares with a question at least, in words that stand in one original alone."""
LEAST_SHARE = 0.1
"""The part of a question's words, weighed by rarity, that the best original shares."""
MOST_WORDS = 12
"""A longer question counts as one of so many rare words: one that tells much may ask for little."""
COVERED_SHARE = 2 / 3
"""A passage in context is about the same thing if it shares so much of what the best original shares."""
PASSAGE_CHARS = 2_000
"""A longer message in context, such as a file, has words of everything; its lines are compared one by one."""

LEAST_LETTERS = 3
"""Shorter terms, such as "s" and "of", stand inside nearly every other word."""
_ROUNDING = 1e-9
_SEPARATOR = "\0"
"""Stands between passages that are put in small letters together; hardly any text has it."""
QUESTION_MARKS = ("?", "\uff1f", "\u061f", "\u037e")
"""Those of Latin, Chinese and Japanese, Arabic and Greek."""


def lacks_answer(index: MessageIndex, question: str, count: int, passages: Sequence[str]) -> bool:
    """Return whether an original bears on a question more than all that is in context does.

    :param count: originals, the first ones of the index
    :param passages: see ``passages_of``
    """
    shared, total = index.rare_terms(question, count)
    rare_terms = [term for term in shared if len(term.text) >= LEAST_LETTERS or not term.text.isascii()]
    best = _best(rare_terms)
    once = rarity_of(1, count)
    if not best or best < LEAST_WORDS * once or best < LEAST_SHARE * min(total, MOST_WORDS * once):
        return False
    weights = [(term.text, term.rarity) for term in rare_terms]
    return not _tells(passages, weights, COVERED_SHARE * best - _ROUNDING)


def _best(rare_terms: Sequence[RareTerm]) -> float:
    """Return the most that the terms of one original weigh together.

    Rare terms come first. Originals that cannot catch up any more are left out, so common terms meet few of them.
    """
    sums: dict[int, float] = {}
    best, rest = 0.0, sum([term.rarity for term in rare_terms])
    for term in rare_terms:
        if rest < best:
            sums = {place: weight for place, weight in sums.items() if weight + rest >= best - _ROUNDING}
            places: Iterable[int] = sums.keys() & term.places
        else:
            places = term.places
        for place in places:
            sums[place] = sums.get(place, 0.0) + term.rarity
        best, rest = max(sums.values()), rest - term.rarity
    return best


def _tells(passages: Sequence[str], weights: Sequence[tuple[str, float]], least: float) -> bool:
    """Return whether the terms that one passage has weigh so much together.

    Rare terms come first. Few passages have them, so most passages are left after one or two.
    """
    most_missing = sum([weight for _, weight in weights]) - least
    for text in _plain_texts(passages):
        missing = most_missing
        for term, weight in weights:
            if term not in text:
                missing -= weight
                if missing < 0:
                    break
        else:
            return True
    return False


def _plain_texts(passages: Sequence[str]) -> list[str]:
    """Return all passages as ``plain_text`` gives them, those of ASCII at once."""
    whole = _SEPARATOR.join(passages)
    if whole.isascii() and whole.count(_SEPARATOR) == len(passages) - 1:
        return whole.lower().split(_SEPARATOR)
    return list(map(plain_text, passages))


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

"""Relevance: whether a question bears on something that the context of a compacted request lacks.

``pipeline/recall.py`` asks before it quotes. A recalled text costs tokens that no provider has cached, so a question
that the summary and the newest turns cover goes out as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import itemgetter

from tidemark.core.conversation.messages import Message
from tidemark.core.recall.asking import QUESTION_MARKS, asking
from tidemark.core.recall.index import MessageIndex, RareTerm, plain_text, rarity_of, searched_text, terms_of

LEAST_WORDS = 0.6
"""What the best original shares with a question at least, in words that stand in one original alone."""
LEAST_SHARE = 0.1
"""The part of a question's words, weighed by rarity, that the best original shares."""
MOST_WORDS = 12
"""A longer question counts as one of so many rare words: one that tells much may ask for little."""
COVERED_SHARE = 2 / 3
"""A passage is about the same as a statement if it shares so much of what the best original does."""
RAREST, RAREST_SHARE = 4, 0.75
"""Terms of a question, rarest first, of which a passage that may answer it has such a share."""
_VALUE_WEIGHT = 100.0
"""More than all of those together: without a number or name of the best original, a passage answers nothing."""
PASSAGE_CHARS = 2_000
"""A longer message in context, such as a file, has words of everything; its lines are compared one by one."""

LEAST_LETTERS = 3
"""Shorter terms, such as "s" and "of", are common to nearly all texts."""
_ROUNDING = 1e-9
_SEPARATOR = "\0"
"""Stands between passages that are put in small letters together; hardly any text has it."""
_VALUE = re.compile(r"\b\w*\d\w*|(?<=[\w,;:] )[A-Z\u00c0-\u00de\u0391-\u03a9\u0410-\u042f]\w+")
"""A number, or a name inside a sentence."""


def lacks_answer(
    index: MessageIndex, question: str, originals: Sequence[Message], passages: Sequence[str], *, is_statement: bool
) -> bool:
    """Return whether an original bears on a message more than all that is in context does.

    :param originals: the first ones of the index
    :param passages: see ``passages_of``
    :param is_statement: whether the whole text is looked up; else what it asks, and nothing if it asks for nothing
    """
    asked_text = question if is_statement else asking(question)
    if not asked_text:
        return False
    count = len(originals)
    shared, total = index.rare_terms(asked_text, count)
    rare_terms = [term for term in shared if _names(term.text)]
    best, places = _best(rare_terms)
    once = rarity_of(1, count)
    if not best or best < LEAST_WORDS * once or best < LEAST_SHARE * min(total, MOST_WORDS * once):
        return False
    if is_statement:
        return not _tells(passages, [(term.text, term.rarity) for term in rare_terms], COVERED_SHARE * best - _ROUNDING)
    weights = dict.fromkeys((term.text for term in rare_terms[:RAREST]), 1.0)
    least = RAREST_SHARE * len(weights)
    values = {term for value in _VALUE.findall(searched_text(originals[max(places)])) for term in terms_of(value)}
    for value in sorted(values - weights.keys()):
        weights[value] = _VALUE_WEIGHT
        least += _VALUE_WEIGHT
    return not _tells(passages, sorted(weights.items(), key=itemgetter(1), reverse=True), least)


def _names(term: str) -> bool:
    """Return whether a term says what a question is about."""
    return len(term) >= LEAST_LETTERS if term.isascii() else not asking(term)


def _best(rare_terms: Sequence[RareTerm]) -> tuple[float, list[int]]:
    """Return the most that the terms of one original weigh together, and the places of those originals.

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
    return best, [place for place, weight in sums.items() if weight >= best - _ROUNDING]


def _tells(passages: Sequence[str], weights: Sequence[tuple[str, float]], least: float) -> bool:
    """Return whether the terms that one passage has as whole words weigh so much together.

    A search for their letters is fast and leaves out nearly all passages, so few are cut into words.
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
            words = frozenset(terms_of(text))
            if sum([weight for term, weight in weights if term in words]) >= least:
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

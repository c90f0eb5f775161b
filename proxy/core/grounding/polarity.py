"""Compares what two sentences affirm or deny, so that "deploy on Friday" never stands for "never deploy on Friday".

Sentences are compared by their content terms (``terms_of``), which need no dictionary; the words of negation are those
of English, German, French, Spanish, Chinese, Japanese and Korean. In other languages nothing is recognized.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from collections.abc import Set as AbstractSet

from proxy.core.recall.terms import terms_of

_NEGATIONS_TEXT = """
not no never none neither nor without cannot cant unable avoid avoids avoided avoiding forbid forbids forbidden prohibit
prohibits prohibited ban bans banned refrain stop stops stopped refuse refuses refused reject rejects rejected
disallow disallows disallowed against
nicht kein keine keinen keinem keiner keines nie niemals ohne verboten vermeide vermeiden
pas jamais aucun aucune sans interdit éviter
nunca jamás sin ningún ninguna prohibido evitar
"""
_NEGATIONS = frozenset(_NEGATIONS_TEXT.split())
_NEGATIVE_MARKS = (
    "不",
    "没",
    "沒",
    "未",
    "勿",
    "别",
    "別",
    "禁",
    "ない",
    "ません",
    "않",
    "못",
    "마세요",
    "금지",
    "말고",
)
_AFFIRMATIONS_TEXT = """
always must may can could should shall will allow allows allowed permit permits permitted want wants wanted free okay ok
prefer prefers required requires darf dürfen muss müssen immer soll toujours peut doit siempre puede debe
"""
_AFFIRMATIONS = frozenset(_AFFIRMATIONS_TEXT.split())
_EMPTY_TEXT = """
a an the and or of to in on at by for from with as is are was were be been being it its this that these those there then
he she they we you i me my our your their his her them us him do does did done have has had would so if when
user users assistant model said says asked told tells must should may can could shall will want wants wanted always ever
never not only also please make sure need needs required rule demand demands der die das und oder ist sind ein eine den
dem des im am auf mit zu von für le la les un une des et ou est sont de du el los las una y o es son por para con que
ich du er wir ihr möchte tu il elle nous vous yo tú él quiero
"""
_EMPTY = frozenset(term for word in _EMPTY_TEXT.split() for term in terms_of(word)) | frozenset(
    term for word in _NEGATIONS | _AFFIRMATIONS for term in terms_of(word)
)
_OPPOSITES_TEXT = """
least most|minimum maximum|before after|enable disable|enabled disabled|include exclude|above below|more less|more fewer
|increase decrease|required optional|mandatory optional|accept reject|open close
"""
_OPPOSITES = tuple((pair.split()[0], pair.split()[1]) for pair in _OPPOSITES_TEXT.split("|"))
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
_HARD = re.compile(
    r"[;:]|\b(?:but|however|though|although|whereas|aber|sondern|mais|pero)\b|[\u3002\uff0c\uff1b]", re.IGNORECASE
)
_SOFT = re.compile(r",|\b(?:and|und|et|y)\b", re.IGNORECASE)
_SHARE = 0.75
"""The share of the compared terms that a clause has if it is the one that speaks of them."""


def content_terms(text: str) -> frozenset[str]:
    """Return the terms of a text that say what it is about, without negations."""
    terms = terms_of(text)
    if text.isascii():
        return frozenset(terms) - _EMPTY
    return frozenset(term for term in terms if term not in _EMPTY and not any(mark in term for mark in _NEGATIVE_MARKS))


def hard_clauses(sentence: str) -> list[str]:
    """Return the parts of a sentence that a negation before them does not reach."""
    return [clause for clause in _HARD.split(sentence) if clause.strip()]


def agree(sentence: str, other: str, terms: AbstractSet[str]) -> bool:
    """Return whether two sentences say the same about their common terms: both affirm or both deny, no opposites.

    :param terms: content terms that both have
    """
    if _polarities(sentence, terms).isdisjoint(_polarities(other, terms)):
        return False
    words, other_words = _words(sentence), _words(other)
    return not any(_is_opposite(words, other_words, pair) for pair in _OPPOSITES)


def _polarities(sentence: str, terms: AbstractSet[str]) -> frozenset[bool]:
    """Return whether a sentence affirms (True) or denies what the terms speak of; both where it may be either."""
    polarities: set[bool] = set()
    for clause in hard_clauses(sentence):
        if not _speaks_of(clause, terms):
            continue
        whole = _affirms(clause)
        for part in _SOFT.split(clause):
            if _speaks_of(part, terms):
                polarities.add(_affirms(part))
                if _affirms(part) and _AFFIRMATIONS.isdisjoint(_words(part)):
                    polarities.add(whole)  # "never push and deploy": the negation reaches over the "and"
        if not polarities:
            polarities.add(whole)
    return frozenset(polarities or {_affirms(sentence)})


def _speaks_of(clause: str, terms: AbstractSet[str]) -> bool:
    return len(content_terms(clause) & terms) >= _SHARE * len(terms)


def _affirms(text: str) -> bool:
    """Return whether a text has no negation, or an even number of them."""
    if not text.isascii() and any(mark in text for mark in _NEGATIVE_MARKS):
        return False
    words = [match.replace("\u2019", "'") for match in _WORD.findall(text.lower())]
    negations = [word for word in words if word in _NEGATIONS or word.endswith("n't")]
    return len(negations) % 2 == 0


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


def _is_opposite(words: Collection[str], others: Collection[str], pair: tuple[str, str]) -> bool:
    first, second = pair
    if first in words and second in words:
        return False
    return (first in words and second in others and first not in others) or (
        second in words and first in others and second not in others
    )

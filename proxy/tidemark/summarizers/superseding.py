"""Recognizes statements that a newer one replaces: the language of answers, and the same words with another value.

``ledger`` and ``salience`` use it. Only these are recognized without a model, because two of them cannot hold at
once. A rule on the language must say nothing else: no condition, no exception, no other matter. A statement with
another value must be the same in every other word.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable
from functools import lru_cache

from tidemark.summarizers.sentences import WORD, words_of

_LANGUAGES_TEXT = """
arabic bengali bulgarian cantonese catalan chinese croatian czech danish dutch english estonian finnish french german
greek hebrew hindi hungarian indonesian irish italian japanese korean latin latvian lithuanian mandarin norwegian
persian polish portuguese romanian russian serbian slovak slovenian spanish swahili swedish thai turkish ukrainian
vietnamese
anglais allemand espagnol français italien englisch deutsch französisch italienisch spanisch
alemán español francés inglés italiano
"""
_LANGUAGES = frozenset(_LANGUAGES_TEXT.split())
_ANSWER_TEXT = "answer answers reply replies respond speak antworte antworten réponds répondez responde"
_ANSWER = frozenset(_ANSWER_TEXT.split())
_BESIDE_TEXT = """
in from now on here onwards always please only just again instead actually then rather back and but ok okay so
you must should shall i want need d like would prefer to me us your all every the
auf bitte immer ab jetzt nur mir en toujours désormais siempre ahora a partir de por favor
"""
_BESIDE = frozenset(_BESIDE_TEXT.split())
_MOST_WORDS = 14
_COMPARED = 40
"""Statements with the same label that are compared with the next one."""
_ENDING = re.compile(r"(?<=\w\w\w)(?:(?:ion|ing|er)s?|ed|al|e?s|e)$")
_STEMMED_CHARS = 24
"""A longer word is no English one; taking its endings off one by one would cost time."""
_PROHIBITION = re.compile(
    r"(?:never|no|not|do not|don.t|under no|avoid|nie|niemals|keine?|jamais|nunca)\b", re.IGNORECASE
)
_LEAST_SHARED, _SIMILAR = 2, 0.6
"""What statements on the same matter share: so many words, and so large a part of the shorter."""
_A_VALUE = r"[$€£]?\w{0,20}\d[\w.,:-]{0,20}(?<=\w)"
_VALUE = re.compile(rf"(?:(?<=\b(?:is|to|es) )|(?<=\b(?:are|ist|est) )){_A_VALUE}")
"""A value: the word with a digit after "is" or "to", in English, German, French and Spanish."""
_BEFORE_VALUE = ("is ", "to ", "es ", "are ", "st ")
"""How the words before a value end; most sentences have none."""
_NOW = frozenset(["now", "jetzt", "nun", "maintenant", "désormais", "ahora"])
_UPDATE = re.compile(rf"\b(is|are|ist|est|es) (?:{'|'.join(sorted(_NOW))}) (?={_A_VALUE})", re.IGNORECASE)


def answer_language(sentence: str) -> str | None:
    """Return the language in which a sentence wants all answers; None if it says anything else."""
    words = words_of(sentence) if len(sentence) < 12 * _MOST_WORDS else ()
    if len(words) > _MOST_WORDS or _ANSWER.isdisjoint(words):
        return None
    languages = [word for word in words if word in _LANGUAGES]
    if len(languages) != 1:
        return None
    return languages[0] if all(word in _BESIDE or word in _ANSWER or word == languages[0] for word in words) else None


def without_value(sentence: str) -> str | None:
    """Return a statement with a mark for its value; None if it has no value or more than one.

    "The cap is $500 in all." and "The cap is $700 in all." give the same text.
    """
    if not any(map(sentence.__contains__, _BEFORE_VALUE)):
        return None
    values = _VALUE.findall(sentence)
    return _VALUE.sub("\0", sentence).lower() if len(values) == 1 else None


def updated_statement(sentence: str, words: Collection[str]) -> str | None:
    """Return the statement whose value a sentence says anew, as ``without_value`` gives it; None if it says none.

    "The port is now 9090." gives what "The port is 8080." gives.

    :param words: the sentence's words, in small letters
    """
    if _NOW.isdisjoint(words):
        return None
    plain, count = _UPDATE.subn(r"\1 ", sentence)
    return without_value(plain) if count == 1 else None


def plain_words(statement: str) -> list[str]:
    """Return a statement's words in lower case, without its values: names, numbers and what has capitals."""
    first, *others = WORD.findall(statement) or [""]
    return [first.lower(), *(word for word in others if word == word.lower() and not word[0].isdigit())]


def values_of(statement: str) -> frozenset[str]:
    """Return a statement's values, names and numbers, which ``plain_words`` leaves out."""
    return frozenset(word for word in WORD.findall(statement)[1:] if word != word.lower() or word[0].isdigit())


def is_prohibition(statement: str) -> bool:
    """Return whether a statement begins with words of a prohibition."""
    return bool(_PROHIBITION.match(statement))


@lru_cache(maxsize=4096)
def _stem(word: str) -> str:
    """Return a word without English endings: "approving", "approval" and "approve" give the same."""
    while len(word) <= _STEMMED_CHARS and (shorter := _ENDING.sub("", word)) != word:
        word = shorter
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


class Statements:
    """Finds earlier statements on the same matter, among the newest of those with one label."""

    def __init__(self) -> None:
        self._newest: deque[tuple[int, frozenset[str]]] = deque(maxlen=_COMPARED)

    def replaced_by(self, place: int, words: Iterable[str]) -> list[int]:
        """Return the places of earlier statements that share most of their words with one, and note it.

        :param words: the informative words of the statement at ``place``, without names and numbers
        """
        matter = frozenset(map(_stem, words))
        similar = [
            earlier
            for earlier, other in self._newest
            if len(shared := matter & other) >= _LEAST_SHARED and len(shared) >= _SIMILAR * min(len(matter), len(other))
        ]
        self._newest.append((place, matter))
        return similar

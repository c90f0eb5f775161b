"""Shortens a sentence carefully: empty words go, and every word that stays was said, in its order.

``extractive`` uses it where not every sentence fits. It drops interjections, intensifiers, articles, present forms of
"be" and a leading "I", in English only. Numbers, names, negations, modals, hedges and tense stay, and nothing that
may be a rule, a quotation or code is touched.
"""

from __future__ import annotations

import re

_ARTICLES = frozenset({"a", "an", "the"})
_INTENSIFIERS = frozenset({"really", "very", "totally", "absolutely", "definitely", "truly", "extremely", "incredibly"})
_BE = frozenset({"am", "is", "are"})
_CANDIDATES = _ARTICLES | _INTENSIFIERS | _BE | {"i"}
_LEADS = frozenset(
    {"wow", "oh", "yeah", "yep", "yes", "hey", "hi", "hello", "haha", "well", "also", "and", "so", "thanks", "cool"}
)
"""Words that open a sentence and say nothing, where a comma or an exclamation mark follows, or another such word."""
_NEGATIONS = frozenset({"not", "never", "no", "nothing", "none", "neither", "nor", "without"})
_ENGLISH = frozenset(
    {"the", "and", "you", "with", "that", "have", "this", "for", "my", "i", "it", "to", "we", "was", "at"}
)
_UNTOUCHED = re.compile(r"[`\"“”«»<>{}=_|\\;*#]|\(\)|://|\b[A-Z]{3,}\b.{0,20}:|^\s*(?:@|//)")
"""Signs of code, of a quotation, or of a label."""
_MARKS = ",.;:!?"


def shorten(sentence: str) -> str:
    """Return the sentence without empty words; the same text where it may not be shortened.

    :returns: a subsequence of the words of ``sentence``, never empty for a sentence that is not
    """
    words = sentence.split()
    if len(words) < 4 or _UNTOUCHED.search(sentence) or sentence.endswith("?") or not _is_english(words):
        return sentence
    start = _start(words)
    remaining = [
        word
        for place, word in enumerate(words[start:], start)
        if word.lower() not in _CANDIDATES
        or not _is_empty(word, words[place + 1] if place + 1 < len(words) else "", is_first=place == start)
    ]
    return " ".join(remaining) if len(remaining) >= 2 else sentence


def _is_english(words: list[str]) -> bool:
    """Return whether a sentence is English; "a" and "an" are other words elsewhere."""
    return "the" in words or len(_ENGLISH.intersection([word.lower() for word in words])) >= 2


def _start(words: list[str]) -> int:
    """Return the place of the first word after the interjections; 0 where nothing would be left."""
    place = 0
    while place < len(words) and words[place].rstrip(_MARKS).lower() in _LEADS and words[place][-1] in ",!":
        place += 1
    return place if len(words) - place >= 2 else 0


def _is_empty(word: str, following: str, *, is_first: bool) -> bool:
    """Return whether a word may go.

    :param following: the next word; empty after the last one
    :param is_first: whether the word opens the sentence, where a capital letter is no name
    """
    if not following or not (word.islower() or is_first or word == "I"):
        return False
    lower, after = word.lower(), following.strip(_MARKS).lower()
    if lower == "i":
        return is_first and after.isalpha() and after not in _BE
    if lower in _BE:
        return not is_first and after not in _NEGATIONS and after not in {"to", "going", "supposed", "allowed"}
    return lower in _ARTICLES or lower in _INTENSIFIERS

"""Finds the lines of tool results that matter: errors, counts, the end, and what somebody takes up later.

``pieces`` uses it. A line is taken up if somebody later says words that came first in this line: a number, a path or a
name that only the tool can have brought. Reading is one pass back from the end, so it grows with the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from tidemark.core.phrases import Phrase

_LEAST_LETTERS, _LEAST_DIGITS = 5, 3
_TAKEN_UP = 2
"""The score of a line that is taken up. A word with digits counts two, any other one."""
_MOST_LINES = 2
"""A word that stands in more lines of one result does not say which line is meant."""
_LAST_LINES = 2
_LINE_CHARS = 200
"""The most characters of a line, on an average; longer ones are clauses of data."""
_LIST_LINES, _MOST_ODD, _ODD_SHARE = 8, 2, 0.05
"""The least lines of a list; how many of them may be odd, and which share of a long one."""
_COUNTED = (
    "passed|failed|skipped|warnings?|errors?|failures?|tests?|rows?|files?|records?|matches|lines?|bytes|total|succeeded"
    "|replacements?|changed|insertions?|deletions?|packages?|added|removed|updated|vulnerabilities"
)
_COUNT = re.compile(rf"\d (?:{_COUNTED})\b|\b(?:total|exit(?:ed)?(?: code| status| with)?):? \d", re.IGNORECASE)
_WARNING = frozenset(["warning", "warn"])


class TakenUp:
    """The lines of results that somebody takes up later, by the places of the results."""

    def __init__(self, spoken: Mapping[int, Sequence[Phrase]], results: Mapping[int, Sequence[Phrase]]) -> None:
        """Read what was said and returned.

        :param spoken: what people and models said and called, by its place among all utterances, in order
        :param results: what tools returned, likewise
        """
        self._lines: dict[int, frozenset[int]] = {}
        self._has_results = bool(results)
        self._last_spoken = max(spoken, default=-1)
        if results:
            self._find(spoken, results)

    def __bool__(self) -> bool:
        return self._has_results

    def follows(self, place: int) -> bool:
        """Return whether anybody spoke after a result; before that nobody can have taken it up."""
        return place < self._last_spoken

    def lines(self, place: int) -> frozenset[int]:
        """Return which phrases of a result are taken up."""
        return self._lines.get(place, frozenset())

    def _find(self, spoken: Mapping[int, Sequence[Phrase]], results: Mapping[int, Sequence[Phrase]]) -> None:
        first: dict[int, set[str]] = {}
        words: set[str] = set()
        for place, phrases in spoken.items():
            first[place] = set(chain.from_iterable([phrase.words for phrase in phrases])) - words
            words |= first[place]
        later: set[str] = set()
        for place in sorted([*spoken, *results], reverse=True):
            if place in spoken:
                later |= first[place]
            else:
                self._lines[place] = self._taken_from(results[place], later)

    @staticmethod
    def _taken_from(phrases: Sequence[Phrase], later: set[str]) -> frozenset[int]:
        """Return the lines of one result; their words have been taken up and count for no result before it.

        :param later: words that are said for the first time after the result, which this changes
        """
        shared = [later.intersection(phrase.words) for phrase in phrases]
        counts = Counter(chain.from_iterable(shared))
        telling = {word for word, count in counts.items() if count <= _MOST_LINES and _score(word)}
        later -= telling
        return frozenset(
            place
            for place, words in enumerate(shared)
            if words and sum(_score(word) for word in words & telling) >= _TAKEN_UP
        )


def _score(word: str) -> int:
    if any(map(str.isdigit, word)):
        return 2 if len(word) >= _LEAST_DIGITS else 0
    return 1 if len(word) >= _LEAST_LETTERS else 0


def odd_lines(phrases: Sequence[Phrase]) -> frozenset[int]:
    """Return the few lines of a list that lack most of the words that its other lines share."""
    if len(phrases) < _LIST_LINES or sum(len(phrase.plain) for phrase in phrases) > len(phrases) * _LINE_CHARS:
        return frozenset()
    lines = [frozenset(phrase.words) for phrase in phrases]
    counts = Counter(chain.from_iterable(lines))
    common = frozenset(word for word, count in counts.items() if 2 * count >= len(lines))
    if not common:
        return frozenset()
    odd = [place for place, words in enumerate(lines) if words and 2 * len(common & words) < len(common)]
    return frozenset(odd) if len(odd) <= max(_MOST_ODD, _ODD_SHARE * len(lines)) else frozenset()


def tells(phrases: Sequence[Phrase], place: int) -> bool:
    """Return whether a line tells how the call went: an error, a warning, a count, or the end."""
    phrase = phrases[place]
    if is_trouble(phrase) or place >= len(phrases) - _LAST_LINES:
        return True
    return len(phrase.plain) <= _LINE_CHARS and bool(_COUNT.search(phrase.plain))


def is_trouble(phrase: Phrase) -> bool:
    """Return whether a line reports an error or a warning."""
    return phrase.is_error or not _WARNING.isdisjoint(phrase.words)

"""Looks up sentences, phrases and exact wordings in a summary's text.

``ledger`` and ``receipts`` ask it for thousands of details. So each text is indexed once, and a look-up reads
only the places of the rarest word.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import ceil

from tidemark.core.receipt import Survival
from tidemark.summarizers.labels import is_labelled
from tidemark.summarizers.sentences import words_of
from tidemark.summarizers.transcript import read_back

_MOST_WORDS = 0.6
"""The share of its words that a shortened sentence has at least."""
_MIN_SHORTENED_WORDS = 3
_PUNCTUATION = ".,:;!?()[]'\"`"

Words = tuple[str, ...]
"""Words in lower case, as ``words_of`` returns them."""


class ComparedText:
    """A text with its words and lines; upper and lower case, labels and punctuation make no difference."""

    def __init__(self, text: str) -> None:
        self._text = text
        lines = [words_of(line) for line in text.split("\n")]
        self._words: Words = tuple(chain.from_iterable(lines))
        self._places = _places_of(self._words)
        parts = text.split()
        self._parts = frozenset(parts) | {part.strip(_PUNCTUATION) for part in parts}
        # A label that stands once for several statements is put before each of them.
        self._lines = _Lines([*lines, *(words_of(line.text) for line in read_back(text) if is_labelled(line.text))])

    def sentence_survival(self, words: Words) -> Survival:
        """Say whether one line has a sentence whole, or most of its words in their order.

        :param words: at least one
        """
        return self._lines.survival_of(words)

    def has_phrase(self, words: Words) -> bool:
        """Return whether the text has words one after the other; a line end makes no difference."""
        if len(words) == 1:
            return words[0] in self._places
        for word in words:
            if word not in self._places:
                return False
        if not words:
            return False
        rarest = min(words, key=lambda word: len(self._places[word]))
        offset, count = words.index(rarest), len(words)
        starts = (place - offset for place in self._places[rarest])
        return any(self._words[start : start + count] == words for start in starts)

    def has_wording(self, wording: str, words: Words) -> bool:
        """Return whether a wording stands in the text exactly and by itself, not as a part of a longer word.

        :param words: the wording's words
        """
        if wording in self._parts:
            return True
        # Outside ASCII, a letter's lower case may depend on its neighbours, so that the words prove nothing.
        return (not wording.isascii() or self.has_phrase(words)) and _stands_in(wording, self._text)


class _Lines:
    """The words of lines, with the lines of each word."""

    def __init__(self, lines: Sequence[Words]) -> None:
        self._words = [frozenset(line) for line in lines]
        self._texts = [f" {' '.join(line)} " for line in lines]
        self._lines = lines
        self._orders: dict[int, Mapping[str, Sequence[int]]] = {}
        self._of_word: dict[str, list[int]] = defaultdict(list)
        for number, words in enumerate(self._words):
            for word in words:
                self._of_word[word].append(number)
        self._counts = {word: len(numbers) for word, numbers in self._of_word.items()}

    def survival_of(self, wanted: Words) -> Survival:
        """Say whether one line has a sentence whole, or most of its words in their order."""
        words = frozenset(wanted)
        least = ceil(_MOST_WORDS * len(words))
        present = [word for word in words if word in self._counts]
        if len(present) < least:
            return "dropped"
        present.sort(key=self._counts.__getitem__)
        if len(present) == len(words):
            whole = f" {' '.join(wanted)} "
            if any(whole in self._texts[number] for number in self._of_word[present[0]]):
                return "kept"
        needed = max(_MOST_WORDS * len(wanted), _MIN_SHORTENED_WORDS)
        likely = (number for number in self._near(present, least) if len(words & self._words[number]) >= least)
        return "shortened" if any(self._count_in_order(wanted, number) >= needed for number in likely) else "dropped"

    def _near(self, words: Sequence[str], least: int) -> Iterator[int]:
        """Yield lines that may have so many of the words, each once: those that have one of the rarest.

        A line without any of these lacks too many, so that lines with common words only are not looked at.

        :param words: rarest first
        """
        earlier = set[int]()
        for word in words[: max(len(words) - least + 1, 0)]:
            yield from (number for number in self._of_word[word] if number not in earlier)
            earlier.update(self._of_word[word])

    def _count_in_order(self, wanted: Words, number: int) -> int:
        """Return how many of the wanted words a line has in their order, reading it once."""
        if number not in self._orders:
            self._orders[number] = _places_of(self._lines[number])
        places, count, last = self._orders[number], 0, -1
        for word in wanted:
            of_word = places.get(word, ())
            following = bisect_right(of_word, last)
            if following < len(of_word):
                count, last = count + 1, of_word[following]
        return count


def _places_of(words: Words) -> Mapping[str, Sequence[int]]:
    """Return the places of each word, first to last."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(place)
    return places


def _stands_in(wording: str, text: str) -> bool:
    """Return whether a wording stands in a text by itself, not as a part of a longer word."""
    start = text.find(wording)
    while start >= 0:
        before, after = text[start - 1 : start], text[start + len(wording) : start + len(wording) + 1]
        if not (before.isalnum() and wording[0].isalnum()) and not (after.isalnum() and wording[-1].isalnum()):
            return True
        start = text.find(wording, start + 1)
    return False

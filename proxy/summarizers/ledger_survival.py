"""Tells which entries of a ledger a text still has: word for word, shortened, or not at all.

Loss receipts (``receipts.py``) and the completion of a model's summaries (``ledger_floor.py``) use it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import ceil

from proxy.core.receipt import Detail, DetailKind, Survival
from proxy.summarizers.deadline import UNBOUNDED, Deadline
from proxy.summarizers.ledger import (
    COMMANDS,
    DECISION,
    ERROR,
    FACT,
    FILES,
    IDENTIFIERS,
    LINKS,
    NUMBERS,
    RULE,
    Ledger,
)
from proxy.summarizers.request import REQUEST
from proxy.summarizers.signals import is_labelled, words_of
from proxy.summarizers.transcript import read_back

_SENTENCE_KINDS: Mapping[str, DetailKind] = {
    RULE: "rules",
    REQUEST: "requests",
    FACT: "facts",
    DECISION: "decisions",
    ERROR: "errors",
}
_EXACT_KINDS: Mapping[str, DetailKind] = {
    FILES: "files",
    COMMANDS: "commands",
    IDENTIFIERS: "identifiers",
    LINKS: "links",
}
_MOST_WORDS = 0.6
"""The share of its words that a shortened sentence has at least."""
_MIN_SHORTENED_WORDS = 3
_SMALL_DIGITS = 2
"""A number of no more digits means nothing without its noun."""


def ledger_details(ledger: Ledger, text: str, deadline: Deadline = UNBOUNDED) -> list[tuple[str, Detail]]:
    """Return each entry's kind in the ledger, and what became of it in a text.

    :raises SummaryOverdue: the deadline has passed
    """
    words, lines = word_text(text), _Lines(text)
    single_words = frozenset(words.split())
    details: list[tuple[str, Detail]] = []
    for kind, entries in ledger.entries.items():
        for entry in deadline.over(entries):
            if not words_of(entry):
                continue  # nothing but punctuation
            if sentence_kind := _SENTENCE_KINDS.get(kind):
                details.append((kind, Detail(sentence_kind, entry, lines.survival_of(entry))))
            elif exact_kind := _EXACT_KINDS.get(kind):
                details.append((kind, Detail(exact_kind, entry, "kept" if _stands_in(entry, text) else "dropped")))
            elif kind == NUMBERS:
                details.append((kind, Detail("numbers", entry, _number_survival(entry, words, single_words))))
    return details


class _Lines:
    """The words of a text's lines, with the lines of each word."""

    def __init__(self, text: str) -> None:
        # A label that stands once for several statements is put before each of them.
        labelled = [line.text for line in read_back(text) if is_labelled(line.text)]
        self._lines = [words_of(line) for line in (*text.split("\n"), *labelled)]
        self._words = [frozenset(line) for line in self._lines]
        self._texts = [f" {' '.join(line)} " for line in self._lines]
        self._of_word: dict[str, set[int]] = defaultdict(set)
        for number, words in enumerate(self._words):
            for word in words:
                self._of_word[word].add(number)

    def survival_of(self, sentence: str) -> Survival:
        """Say whether one line has a sentence whole, or most of its words in their order."""
        wanted = words_of(sentence)
        by_rarity = sorted(set(wanted), key=lambda word: len(self._of_word.get(word, ())))
        whole = f" {' '.join(wanted)} "
        if any(whole in self._texts[number] for number in self._of_word.get(by_rarity[0], ())):
            return "kept"
        least = ceil(_MOST_WORDS * len(by_rarity))
        # A line that lacks no more than the others has one of these; so lines with common words only are not looked at.
        rare = by_rarity[: len(by_rarity) - least + 1]
        near = set[int]().union(*(self._of_word.get(word, ()) for word in rare))
        words = frozenset(by_rarity)
        needed = max(_MOST_WORDS * len(wanted), _MIN_SHORTENED_WORDS)
        likely = [number for number in near if len(words & self._words[number]) >= least]
        return "shortened" if any(_in_order(wanted, self._lines[number]) >= needed for number in likely) else "dropped"


def _in_order(wanted: Sequence[str], line: Sequence[str]) -> int:
    """Return how many of the wanted words a line has in their order, reading it once."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(line):
        places[word].append(place)
    count, last = 0, -1
    for word in wanted:
        of_word = places.get(word, ())
        following = bisect_right(of_word, last)
        if following < len(of_word):
            count, last = count + 1, of_word[following]
    return count


def word_text(text: str) -> str:
    """Return the words of a text between blanks, so that a phrase is found whole only."""
    return f" {' '.join(words_of(text))} "


def _stands_in(entry: str, text: str) -> bool:
    """Return whether an entry stands in a text by itself, not as a part of a longer word."""
    start = text.find(entry)
    while start >= 0:
        before, after = text[start - 1 : start], text[start + len(entry) : start + len(entry) + 1]
        if not (before.isalnum() and entry[0].isalnum()) and not (after.isalnum() and entry[-1].isalnum()):
            return True
        start = text.find(entry, start + 1)
    return False


def _number_survival(entry: str, words: str, single_words: AbstractSet[str]) -> Survival:
    """Say whether a number stands in a text with its noun, or without it where it is no small number."""
    number = words_of(entry.split(maxsplit=1)[0])
    if not single_words >= set(number):
        return "dropped"
    if word_text(entry) in words:
        return "kept"
    return "shortened" if len("".join(number)) > _SMALL_DIGITS and f" {' '.join(number)} " in words else "dropped"

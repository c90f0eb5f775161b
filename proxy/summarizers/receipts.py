"""Writes loss receipts: compares a summary's text with what it stands for, by rules and without a model.

The compactor asks for one after every strategy. The details are those of the ledger (``ledger.py``), and names. A text
is compared in lower case by its words, so that a summary's labels and line ends make no difference.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from proxy.core.conversation.messages import Message
from proxy.core.conversation.receipt import Detail, DetailKind, Receipt, Survival, receipt_of
from proxy.core.conversation.summary import PrefixSummary
from proxy.core.errors import SummaryOverdue
from proxy.summarizers.deadline import READING_SECONDS, UNBOUNDED, Deadline, in_thread
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
    ledger_of,
)
from proxy.summarizers.request import REQUEST
from proxy.summarizers.signals import sentences, words_of
from proxy.summarizers.transcript import read_back, utterances

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
_NAME_WORD = "[A-Z][a-zà-öø-ÿ]{2,20}"
_NAME = re.compile(rf"(?<!^)(?<![.!?:\"'(])(?<![.!?:*•\"'(-]\s)\b{_NAME_WORD}(?:[ -]{_NAME_WORD}){{0,2}}\b")
"""Capitalized words that do not begin a sentence."""
_NO_NAMES_TEXT = """
monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september
october november december english the and but user assistant tool system
"""
_NO_NAMES = frozenset(_NO_NAMES_TEXT.split())
_SMALL_CHARACTERS = 8_000
"""So much text is compared at once; more of it in a thread."""
_MAX_NAMES = 2_000
_SMALL_DIGITS = 2
"""A number of no more digits means nothing without its noun."""


class ReceiptWriter:
    """Writes receipts. Holds no state.

    :param reading_seconds: the most CPU time for one
    """

    def __init__(self, reading_seconds: float = READING_SECONDS) -> None:
        self._reading_seconds = reading_seconds

    async def receipt(self, messages: Sequence[Message], previous: PrefixSummary | None, text: str) -> Receipt:
        """Return the receipt of a text that stands for ``previous`` and ``messages``; empty where that takes too long.

        A receipt is information only, so its failure must not cost a summary.
        """
        earlier = previous.receipt if previous else ()
        try:
            return receipt_of(await self.details(messages, previous.text if previous else "", text), earlier)
        except SummaryOverdue:
            return ()

    async def details(self, messages: Sequence[Message], previous: str, text: str) -> Sequence[Detail]:
        """Return what was said, and what became of it; much text is compared in a thread.

        :raises SummaryOverdue: the comparison took too long
        """
        if len(previous) + sum(len(message.text) for message in messages) < _SMALL_CHARACTERS:
            return details_of(messages, previous, text)
        deadline = Deadline(self._reading_seconds)
        return await in_thread(deadline, details_of, messages, previous, text, deadline)


def details_of(
    messages: Sequence[Message], previous: str, text: str, deadline: Deadline = UNBOUNDED
) -> Sequence[Detail]:
    """Return the details of an earlier summary and of new messages, each with its survival in ``text``.

    :raises SummaryOverdue: the deadline has passed
    """
    ledger = ledger_of(messages, previous, deadline=deadline)
    words, lines = _word_text(text), _Lines(text)
    details = []
    for kind, entries in ledger.entries.items():
        for entry in deadline.over(entries):
            if not words_of(entry):
                continue  # nothing but punctuation
            if sentence_kind := _SENTENCE_KINDS.get(kind):
                details.append(Detail(sentence_kind, entry, lines.survival_of(entry)))
            elif exact_kind := _EXACT_KINDS.get(kind):
                details.append(Detail(exact_kind, entry, "kept" if _stands_in(entry, text) else "dropped"))
            elif kind == NUMBERS:
                details.append(Detail("numbers", entry, _number_survival(entry, words)))
    names = _names(messages, previous, deadline)
    details += [Detail("names", name, "kept" if _word_text(name) in words else "dropped") for name in names]
    return details


class _Lines:
    """The words of a text's lines, with the lines of each word."""

    def __init__(self, text: str) -> None:
        self._lines = [words_of(line) for line in text.split("\n")]
        self._texts = [f" {' '.join(line)} " for line in self._lines]
        self._of_word: dict[str, set[int]] = defaultdict(set)
        for number, line in enumerate(self._lines):
            for word in line:
                self._of_word[word].add(number)

    def survival_of(self, sentence: str) -> Survival:
        """Say whether one line has a sentence whole, or most of its words in their order."""
        wanted = words_of(sentence)
        rarest = min(wanted, key=lambda word: len(self._of_word.get(word, ())))
        whole = f" {' '.join(wanted)} "
        if any(whole in self._texts[number] for number in self._of_word.get(rarest, ())):
            return "kept"
        needed = max(_MOST_WORDS * len(wanted), _MIN_SHORTENED_WORDS)
        counts: dict[int, int] = defaultdict(int)
        for word in set(wanted):
            for number in self._of_word.get(word, ()):
                counts[number] += 1
        distinct = len(set(wanted))
        likely = [number for number, count in counts.items() if count >= _MOST_WORDS * distinct]
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


def _word_text(text: str) -> str:
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


def _number_survival(entry: str, words: str) -> Survival:
    """Say whether a number stands in a text with its noun, or without it where it is no small number."""
    if _word_text(entry) in words:
        return "kept"
    number = words_of(entry.split(maxsplit=1)[0])
    return "shortened" if len("".join(number)) > _SMALL_DIGITS and f" {' '.join(number)} " in words else "dropped"


def _names(messages: Sequence[Message], previous: str, deadline: Deadline) -> Iterator[str]:
    """Yield names of persons, places and things, each once: capitalized words inside sentences."""
    texts = [utterance.text for utterance in read_back(previous)]
    texts += [each.text for each in utterances(messages) if not each.speaker.startswith(("Tool", "System"))]
    names: set[str] = set()
    for text in texts:
        for sentence in deadline.over(sentences(text)):
            for match in _NAME.finditer(sentence):
                name = match[0]
                if name.lower() not in _NO_NAMES and name not in names and len(names) < _MAX_NAMES:
                    names.add(name)
                    yield name

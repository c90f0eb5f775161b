"""Finds what sentences name: files, commands, links, identifiers and numbers.

``ledger`` collects them. Each pattern is matched only where a sentence has a character that it needs; most have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import filterfalse

FILES, COMMANDS, LINKS, IDENTIFIERS, NUMBERS = "Files", "Commands", "Links", "Identifiers", "Numbers"

_PATH = re.compile(
    r"(?<![\w/.:@+-])(?:~/|/|\.{1,2}/)?(?:[\w.@+-]+/)+[\w.@+-]*\w"
    r"|\b[\w-]+\.(?:py|pyi|js|jsx|ts|tsx|rs|go|java|kt|c|h|cc|cpp|cs|rb|php|sh|sql|md|txt|json|ya?ml|toml|ini|cfg"
    r"|env|html|css|csv|lock|ipynb|pdf|docx?|xlsx?|log|tf|proto)\b"
)
_EXTENSION = re.compile(r"\.[a-z]")
_LINK = re.compile(r"\bhttps?://[^\s<>\"'`)\]]+[^\s<>\"'`)\].,;:!?]")
# Repetitions are bounded: without a bound, a text that matches halfway everywhere would take quadratic time.
_IDENTIFIER = re.compile(
    r"\b[A-Z][A-Z0-9]+-\d+\b|(?<!\w)#\d{1,9}\b|\b[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{0,64}\w"
    r"|\bv\d+(?:\.\d+)+\b|\b\d{1,9}(?:\.\d{1,9}){2,5}\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
_PLAIN_NUMBER = re.compile(r"\d+(?:\.\d+)?[^\w.@#/-]*")
"""A word with no identifier in it, such as most words of a table."""
_DIGIT = re.compile(r"\d")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_UNITS = "ms|s|h|min|kb|mb|gb|tb|kib|mib|gib|hz|khz|mhz|ghz|kg|km|cm|mm|px|eur|usd"
_NUMBERED = "port|page|line|section|chapter|step|phase|room|floor|gate|row|level|build|release|version|order|invoice"
_BEFORE_NUMBER = frozenset(f"{_MONTHS}|{_NUMBERED}".lower().split("|"))
"""Words that belong to the number after them."""
_NUMBER = re.compile(
    # It starts with a simple class, so that the search skips from digit to digit.
    r"[$€£\d](?:"
    r"(?<=[$€£])\s?\d[\d.,]{0,20}\d?(?:\s?(?:k|m|bn|million|billion)\b)?"
    r"|(?<=\b\d)(?:\d{3}-\d{2}-\d{2}\b|\d?:\d{2}\b"
    rf"|\d?(?:st|nd|rd|th)?\s(?:of\s)?(?:{_MONTHS})(?:,?\s\d{{4}})?"
    rf"|[\d.,]{{0,20}}+(?:(?:[kx]\b|\s?%|\s?(?:{_UNITS})\b)(?:\s(?:of\s)?[a-z]{{3,20}}\b){{0,2}}"
    r"|(?:\s[a-z]{3,20}\b){1,2})))",
    re.IGNORECASE,
)
_NAMED_NUMBER = re.compile(
    rf"\b(?:{_MONTHS})\s\d{{1,2}}(?:,?\s\d{{4}})?|\b(?:{_NUMBERED})\s\d[\w.-]{{0,20}}\b|{_NUMBER.pattern}",
    re.IGNORECASE,
)
"""The same, with the word before a number. It is slow, and tried only where there is such a word."""
_PROGRAMS = (
    "git|pip3?|uv|npm|npx|pnpm|yarn|make|docker|kubectl|helm|terraform|python3?|pytest|cargo|go|curl|wget|ssh|scp"
    "|psql|redis-cli|systemctl|apt(?:-get)?|brew|ls|cd|rm|cp|mv|mkdir|grep|sed|cat|chmod|bash|sh|node|ruff|mypy|gh"
    "|aws|gcloud|az"
)
_COMMAND_LINE = re.compile(rf"(?:^\s*\$\s+|`)((?:sudo |\w+=\S+ )*(?:{_PROGRAMS})\b[^`\n]{{0,160}})")
_NO_NOUN_TEXT = """
and the for was were are but with from that then than not you has have had did does will would can could should
after before until into onto over under per which who when while where because once again also only just
within each every out left says said came went takes took needs closes fixes than both
"""
_NO_NOUN = frozenset(_NO_NOUN_TEXT.split())
_MAX_PART_CHARS = 64
"""The longest part of a path between two slashes; one of base64 is longer, or has a plus."""
_INFORMATIVE_CHARS = 3
"""A number with more characters is informative without a noun (a sum, a date, a time). So is one with its unit (2h)."""

NamedDetail = tuple[str, str]
"""A kind of the ledger, and what a sentence names of it."""


class DetailFinder:
    """Finds the details of sentences.

    It remembers what each word names, since most words come again. So it is made for one conversation and then dropped.
    """

    def __init__(self) -> None:
        self._of_word: dict[str, tuple[NamedDetail, ...]] = {}
        self._nameless: set[str] = set()
        self._of_number: dict[str, tuple[NamedDetail, ...]] = {}

    def details(self, sentence: str, words: Sequence[str], *, with_numbers: bool) -> list[NamedDetail]:
        """Return what a sentence names; of each kind in the order of the sentence.

        :param words: the words of the sentence, as ``words_of`` returns them
        """
        details: list[NamedDetail] = []
        if "`" in sentence or "$" in sentence:
            details += [(COMMANDS, match[1].strip()) for match in _COMMAND_LINE.finditer(sentence)]
        rest = sentence
        if "http" in sentence:
            details += [(LINKS, match[0]) for match in _LINK.finditer(sentence)]
            rest = _LINK.sub(" ", sentence)
        for word in filterfalse(self._nameless.__contains__, rest.split()):
            details += self._of_word.get(word) or self._details_of_word(word)
        if with_numbers and _DIGIT.search(rest):
            pattern = _NUMBER if _BEFORE_NUMBER.isdisjoint(words) else _NAMED_NUMBER
            for match in pattern.finditer(rest):
                number = match[0]
                if number not in self._of_number:
                    self._of_number[number] = tuple(_with_noun(number))
                details += self._of_number[number]
        return details

    def _details_of_word(self, word: str) -> tuple[NamedDetail, ...]:
        """Return what a new word names, and remember it."""
        details = () if word.isalpha() else tuple(_named_in(word))
        if details:
            self._of_word[word] = details
        else:
            self._nameless.add(word)
        return details


def _named_in(word: str) -> Iterator[NamedDetail]:
    """Yield the paths and identifiers of a word; neither has a space."""
    if "/" in word or _EXTENSION.search(word):
        for match in _PATH.finditer(word):
            if not _is_encoded(match[0]):
                yield FILES, match[0]
    if "@" in word or (_DIGIT.search(word) and not _PLAIN_NUMBER.fullmatch(word)):
        for match in _IDENTIFIER.finditer(word):
            yield IDENTIFIERS, match[0]


def _is_encoded(path: str) -> bool:
    """Return whether a path is a piece of base64, whose alphabet has a slash."""
    return any(len(part) > _MAX_PART_CHARS or ("+" in part and "++" not in part) for part in path.split("/"))


def _with_noun(text: str) -> Iterator[NamedDetail]:
    """Yield a number with its noun, where that is informative."""
    number, *words = text.strip(".,").split()
    nouns: list[str] = []
    for word in words:
        if word.lower() in _NO_NOUN:
            break
        nouns.append(word)
    while nouns and nouns[-1].lower() == "of":
        nouns.pop()
    if nouns or len(number) > _INFORMATIVE_CHARS or not number[-1].isdigit():
        yield NUMBERS, " ".join([number, *nouns])

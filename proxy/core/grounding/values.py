"""Reads the values of a text: numbers, dates, and names that are written in one way only (paths, addresses, ids).

A model's narrative may state only values that stand in its source. One value can be written in several ways
("4,500" and "4500", "2026-12-01" and "1 December 2026"), so each value is a set of forms, of which one must meet.
Each function reads its text once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

ValueKind = Literal["number", "name"]
_LONGEST = 200
"""Characters of a word that are read; a longer one is data, such as base64."""
_DIGIT = re.compile(r"\d")
_EDGES = ".,;:!?()[]{}<>\"'`*|«»…\u2018\u2019\u201c\u201d\u201e\u3001\u3002\u300c\u300d\uff01\uff08\uff09\uff0c\uff1f"
_LIST_MARK = re.compile(r"^\s*(?:[-*•]\s+)?\d{1,3}[.)]\s+", re.MULTILINE)
_AMOUNT = re.compile(
    r"[$€£¥~≈<>=+#-]{0,3}(\d[\d.,'\u2019]*)(?:(k|m|bn|st|nd|rd|th|ms|s|h|min|x|%|°|€|\$|£|[kmgt]i?b|[a-z]{1,3})[.,;:]?)?",
    re.IGNORECASE,
)
_TIMES = {"k": 1_000, "m": 1_000_000, "bn": 1_000_000_000}
_NUMBER = re.compile(r"\d+(?:[.,'\u2019]\d+)*")
_GROUPED = re.compile(r"\d{1,3}(?:[.,'\u2019]\d{3})+")
_SEPARATOR = re.compile(r"[/:=\\#]")
_FILE = re.compile(r"[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{1,5}")
_MONTHS_TEXT = """
january jan januar janvier enero|february feb februar février febrero|march mar märz mars marzo|april apr avril abril
|may mai mayo|june jun juni juin junio|july jul juli juillet julio|august aug août agosto
|september sep sept septembre septiembre|october oct oktober octobre octubre|november nov novembre noviembre
|december dec dezember décembre diciembre
"""
_MONTHS = {name: number for number, names in enumerate(_MONTHS_TEXT.split("|"), 1) for name in names.split()}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATE = re.compile(
    r"\b(?P<y1>\d{4})-(?P<m1>\d{1,2})-(?P<d1>\d{1,2})"
    r"|\b(?P<a>\d{1,2})[./](?P<b>\d{1,2})[./](?P<y2>\d{4}|\d{2})\b"
    rf"|\b(?P<d3>\d{{1,2}})(?:st|nd|rd|th|er|\.)?\s(?:of\s|de\s)?(?P<m3>{_MONTH})\b\.?(?:,?\s(?:de\s)?(?P<y3>\d{{4}}))?"
    rf"|\b(?P<m4>{_MONTH})\.?\s(?P<d4>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s(?P<y4>\d{{4}})\b)?",
    re.IGNORECASE,
)
_WORDS_TEXT = """
zero null cero|one once first un une eins ein eine einen uno una|two twice second zwei deux dos
|three third drei trois tres|four fourth vier quatre cuatro|five fifth fünf cinq cinco|six sixth sechs seis
|seven seventh sieben sept siete
|eight eighth acht huit ocho|nine ninth neun neuf nueve|ten tenth zehn dix diez|eleven elf onze
|twelve dozen zwölf douze doce
"""
_NUMBER_WORDS = {word: str(number) for number, words in enumerate(_WORDS_TEXT.split("|")) for word in words.split()}
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)
_COUNTS = 12
"""Whole numbers up to this one may be a count that the narrator made."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value as a text states it."""

    kind: ValueKind
    text: str
    forms: frozenset[str]
    """The ways to write it."""
    parts: tuple[str, ...] = ()
    """The parts of a name, which may stand apart in the source; empty where the whole must stand there."""

    @property
    def is_count(self) -> bool:
        """Return whether it is a small whole number, which may count what the source lists."""
        return self.kind == "number" and self.text.isdecimal() and int(self.text) <= _COUNTS


def values_of(text: str) -> Iterator[Value]:
    """Yield the values that a text states; numbers of a list's items are none."""
    text = _LIST_MARK.sub("", text)
    if not (_DIGIT.search(text) or any(mark in text for mark in "/@_\\.")):
        return
    for match in _DATE.finditer(text):
        if forms := _dates(match).sought():
            yield Value("number", match[0], forms)
    for word in _DATE.sub(_without_date, text).split():
        yield from _values_of_word(word)


class ValueSource:
    """The values of a source, for look-ups of single values. Holds what it read at its creation only.

    :param text: all of the source; one value is looked up in constant time
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _forms(self) -> frozenset[str]:
        forms: set[str] = set()
        for word in set(self._text.split()):
            if _DIGIT.search(word):
                forms |= _number_forms_within(word[:_LONGEST])
            elif number := _NUMBER_WORDS.get(word.strip(_EDGES).lower()):
                forms.add(number)
            elif word.isascii() and word.isalpha():
                continue
            forms |= _names_within(word[:_LONGEST])
        for match in _DATE.finditer(self._text):
            forms |= _dates(match).stated()
        return frozenset(forms)

    def has(self, value: Value) -> bool:
        """Return whether the source states a value, in any of its forms or by all of its parts."""
        forms = self._forms
        return not forms.isdisjoint(value.forms) or (bool(value.parts) and all(part in forms for part in value.parts))


def number_forms(text: str) -> frozenset[str]:
    """Return the ways to write the numbers of a text, number words included."""
    forms = _number_forms_within(text) if _DIGIT.search(text) else set()
    return frozenset(forms | {_NUMBER_WORDS[match[0].lower()] for match in _NUMBER_WORD.finditer(text)})


def _values_of_word(word: str) -> Iterator[Value]:
    word = word[:_LONGEST].strip(_EDGES)
    amount = None if word.count(".") > 1 and not _GROUPED.fullmatch(word) else _AMOUNT.fullmatch(word)
    if amount:
        yield Value("number", amount[1].strip(_EDGES), frozenset(_amount_forms(amount)))
    elif _is_name(word):
        parts = tuple(part.strip(_EDGES).lower() for part in _SEPARATOR.split(word))
        yield Value("name", word, frozenset({word.lower()}), tuple(part for part in parts if part))
    elif _DIGIT.search(word):
        for match in _NUMBER.finditer(word):
            yield Value("number", match[0], frozenset(_plain_forms(match[0])))


def _is_name(word: str) -> bool:
    """Return whether a word is a path, an address, an identifier or a version: nobody writes it in another way."""
    if "://" in word or "@" in word[1:]:
        return True
    has_digit, has_letter = _DIGIT.search(word) is not None, any(letter.isalpha() for letter in word)
    if not has_letter:
        return word.count(".") >= 2  # an address or a version
    if "_" in word.strip("_") or "\\" in word:
        return True
    if "/" in word:
        return has_digit or "." in word or word.startswith(("/", "~")) or word.count("/") > 1
    if has_digit:
        return word.isascii()
    return bool(_FILE.fullmatch(word)) and not word.isupper() and word.lower() not in ("e.g", "i.e", "etc.al")


def _names_within(word: str) -> set[str]:
    """Return a word of the source, its parts, and the ends of a path."""
    bare = word.strip(_EDGES).lower()
    names = {bare}
    if not bare.isalnum():
        for piece in re.split(r"[=,;|()\[\]{}<>\"'`*]+", bare):
            name = piece.strip(_EDGES)
            names.add(name)
            parts = _SEPARATOR.split(name)
            if len(parts) > 1:
                names.update(part.strip(_EDGES) for part in parts)
                names.update("/".join(parts[start:]) for start in range(1, len(parts)))
                names.update("/".join(parts[:stop]) for stop in range(1, len(parts)))
                names.add(name.partition(":")[0])
                names.add(name.rpartition(":")[0])
    return names


def _number_forms_within(word: str) -> set[str]:
    bare = word.strip(_EDGES)
    amount = _AMOUNT.fullmatch(bare)
    if amount:
        return _amount_forms(amount)
    forms: set[str] = set()
    for match in _NUMBER.finditer(word):
        forms |= _plain_forms(match[0])
    return forms


def _amount_forms(amount: re.Match[str]) -> set[str]:
    forms = _plain_forms(amount[1].strip(_EDGES))
    times = _TIMES.get((amount[2] or "").lower())
    if times is None:
        return forms
    return forms | {_decimal(float(form) * times) for form in forms if form.replace(".", "", 1).isdigit()}


def _plain_forms(number: str) -> set[str]:
    """Return the values that a number may have: a separator may group digits or begin the decimals."""
    if number.isdigit():
        return {number.lstrip("0") or "0"}
    forms = {number}
    if _GROUPED.fullmatch(number):
        forms.add(re.sub(r"\D", "", number))
    whole, _, decimals = re.sub(r"['\u2019]", "", number).replace(",", ".").rpartition(".")
    whole = whole.replace(".", "")
    if whole.isdigit() and decimals.isdigit():
        forms.add(f"{whole.lstrip('0') or '0'}.{decimals}".rstrip("0").rstrip("."))
    return forms


def _decimal(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


class _Days(NamedTuple):
    """The days that a date may mean."""

    days: tuple[str, ...]
    """Month and day: ``12-01``; two where the order is unknown, none where it is no date."""
    year: str
    """The last two digits, or nothing."""

    def stated(self) -> frozenset[str]:
        """Return the forms that a source with the date has."""
        return frozenset(f"{day} {which}" for day in self.days for which in ("day", self.year or "any"))

    def sought(self) -> frozenset[str]:
        """Return the forms of which a source must have one: a year must be the source's, if that has one."""
        return frozenset(
            f"{day} {which}" for day in self.days for which in ((self.year, "any") if self.year else ("day",))
        )


def _dates(match: re.Match[str]) -> _Days:
    """Return the days that a date may mean."""
    group = match.groupdict()
    if group["y1"]:
        pairs, year = [(int(group["m1"]), int(group["d1"]))], group["y1"]
    elif group["a"]:
        first, second = int(group["a"]), int(group["b"])
        pairs, year = [(first, second), (second, first)], group["y2"]
    elif group["m3"]:
        pairs, year = [(_MONTHS[group["m3"].lower()], int(group["d3"]))], group["y3"] or ""
    else:
        pairs, year = [(_MONTHS[group["m4"].lower()], int(group["d4"]))], group["y4"] or ""
    days = [f"{month:02}-{day:02}" for month, day in pairs if 1 <= month <= 12 and 1 <= day <= 31]
    return _Days(tuple(days), year[-2:])


def _without_date(match: re.Match[str]) -> str:
    """Return nothing for a date that was read, and other text of the same form as it is."""
    return " " if _dates(match).days else match[0]

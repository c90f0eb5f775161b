"""Passages: the exact text of one earlier message, by its handle and a range of lines or bytes.

A search shows the handle of each message that it quotes. A long message is quoted in part, and the search function
reads the rest by its handle (docs/adr/0036).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from tidemark.core.conversation.messages import Message
from tidemark.core.frozen import frozen

HANDLE_MARK, HANDLE_DIGITS = "m", 8
"""A handle is the mark and so many digits of the message's digest, 32 bits.

Two of n messages share a handle with a probability of about n*n / 2**33: one in 8,600 conversations of 1,000 messages,
one in 86 of 10,000. The newest is given then.
"""
Unit = Literal["lines", "bytes"]
_RANGE = re.compile(
    r"(lines?|bytes?)\s{0,9}:?\s{0,9}(\d{1,9})(?:\s{0,9}(?:-|\u2013|:|to)\s{0,9}(\d{1,9}))?", re.IGNORECASE
)


@frozen
class Range:
    """A part of a text, from 1 on, with both ends."""

    unit: Unit
    first: int
    last: int


@frozen
class MessagePassage:
    """What is given of a text."""

    text: str
    range: Range
    """What it is of the whole text, in whole lines or in whole characters."""
    total: int
    """How many lines or bytes the whole text has."""

    @property
    def words(self) -> str:
        """Return what it is in words, such as ``lines 1-80 of 412``."""
        return f"{self.range.unit} {self.range.first}-{self.range.last} of {self.total}"


def handle_of(message: Message) -> str:
    """Return the name by which a message is asked for; equal messages have one name in every dialect."""
    return HANDLE_MARK + message.digest.hex()[:HANDLE_DIGITS]


def message_with(handle: str, messages: Sequence[Message]) -> Message | None:
    """Return the newest message of a handle; None if there is none."""
    name = handle.strip().lower()
    return next((message for message in reversed(messages) if handle_of(message) == name), None)


def read_range(text: str) -> Range | None:
    """Return the range that a text such as ``lines 1-80`` or ``line 5`` names; None if it names none."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return None
    first, last = int(match[2]), int(match[3] or match[2])
    unit: Unit = "lines" if match[1].lower().startswith("line") else "bytes"
    return Range(unit, first, last) if 0 < first <= last else None


def line_count(text: str) -> int:
    """Return how many lines a text has."""
    return len(_lines(text))


def passage_of(text: str, part: Range | None) -> MessagePassage | None:
    """Return a part of a text as it is; None if the text ends before it.

    A line has its own end, and only a line feed ends one. Bytes are those of UTF-8. Characters that a range divides are
    left out; if it has no whole one, the first that it touches is given.

    :param text: without unpaired surrogates
    :param part: None for the whole text
    """
    if part is not None and part.unit == "bytes":
        return _bytes_of(text.encode(), part)
    lines = _lines(text)
    first, last = (part.first, min(part.last, len(lines))) if part else (1, len(lines))
    if first > last:
        return None
    return MessagePassage("".join(lines[first - 1 : last]), Range("lines", first, last), len(lines))


def shortened(whole: str, passage: MessagePassage, size: int) -> MessagePassage | None:
    """Return the beginning of a passage: its whole lines, or bytes if not even one line is short enough.

    :param whole: the text that the passage is of
    :param size: how many of its characters may stay
    :returns: None if none may
    """
    data, beginning = whole.encode(), passage.text[: max(size, 0)].encode()
    start = passage.range.first - 1
    if passage.range.unit == "lines":
        ends = accumulate(map(len, _lines(passage.text)))
        if count := sum(end <= size for end in ends):
            return passage_of(whole, Range("lines", passage.range.first, start + count))
        start = len("".join(_lines(whole)[:start]).encode())
    return _bytes_of(data, Range("bytes", start + 1, start + len(beginning))) if beginning else None


def _lines(text: str) -> list[str]:
    """Return the lines with their ends. Unlike ``splitlines``, no other character divides them."""
    *lines, rest = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([rest] if rest else [])]


def _bytes_of(data: bytes, part: Range) -> MessagePassage | None:
    first, last = part.first - 1, min(part.last, len(data))
    if first >= len(data):
        return None
    while first < last and _is_within_character(data, first):
        first += 1
    while last > first and _is_within_character(data, last):
        last -= 1
    if first >= last:
        first, last = part.first - 1, part.first
        while _is_within_character(data, first):
            first -= 1
        while _is_within_character(data, last):
            last += 1
    return MessagePassage(data[first:last].decode(), Range("bytes", first + 1, last), len(data))


def _is_within_character(data: bytes, place: int) -> bool:
    """Return whether the byte at a place goes on with a character of UTF-8."""
    return place < len(data) and data[place] & 0b1100_0000 == 0b1000_0000

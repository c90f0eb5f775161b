"""Folds sentences that are nearly equal into the newest of them, with a mark that says how often it stood.

``pieces`` and ``salience`` use it. Sentences are nearly equal if they differ in numbers only. Sentences of a
person or a model are folded only if the mark says all that is lost; for a tool's result the count is enough.
A mark stands in square brackets after the sentence, and nobody said it: ``[12 times, 0 to 11]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from tidemark.core.frozen import frozen

_DIGITS = b"0123456789"
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_LEAST_TIMES = 3
_MOST_VALUES = 8
"""Values that a mark lists, if they do not follow one another."""
_MOST_SPREAD = 2
"""How far apart values may be, as a multiple of their count. Ticket numbers and prices are no row."""
_MOST_COUNTED = 1000
"""Values of a range that are written and read back; a user may write any range."""
_LONG_DIGITS = 10
_MARK_CHARS = 120
FOLDED_CHARS = 240
"""Characters of the longest text that is folded. A longer one is a clause of data, and its digits are its content."""
_MARK = re.compile(
    r"\[(?:(?P<more>\d{1,6}) more like it|(?P<times>\d{1,6}) times"
    r"(?:, (?P<low>\d{1,9}) to (?P<high>\d{1,9})|: (?P<values>\d{1,9}(?:, \d{1,9}){0,9}))?)?"
    r"(?:(?:(?<!\[); )?(?P<size>\d{1,9}) lines)?\]"
)


@frozen
class Mark:
    """What a summary says beside a text: how often it stood, with which numbers, and a result's size."""

    times: int = 1
    values: tuple[str, ...] = ()
    """The number that differs, in the order of the conversation; empty if none does or several do."""
    is_partial: bool = False
    """Whether the texts differ in more than the values."""
    size: int = 0
    """Lines of a call's result; 0 if the mark does not say the size."""

    def __str__(self) -> str:
        parts = [self._count()] if self.times > 1 else []
        parts += [f"{self.size} lines"] if self.size else []
        return f"[{'; '.join(parts)}]" if parts else ""

    def _count(self) -> str:
        if self.is_partial:
            return f"{self.times - 1} more like it"
        if not self.values:
            return f"{self.times} times"
        if ends := _ends_of(self.values):
            return f"{self.times} times, {ends[0]} to {ends[1]}"
        return f"{self.times} times: {', '.join(self.values)}"


NO_MARK = Mark()


@frozen
class Foldable:
    """A text that may be folded."""

    text: str
    mark: Mark


def marked_end(text: str) -> tuple[str, Mark]:
    """Return a text of an earlier summary without the mark at its end, and the mark."""
    start = text.rfind("[", max(0, len(text) - _MARK_CHARS)) if text.endswith("]") else -1
    match = _MARK.fullmatch(text, start) if start >= 0 else None
    if match is None or match[0] == "[]":
        return text, NO_MARK
    mark = Mark(size=int(match["size"] or 0))
    if match["more"]:
        mark = replace(mark, times=int(match["more"]) + 1, is_partial=True)
    elif match["times"]:
        values = _values_between(match)
        mark = replace(mark, times=int(match["times"]), values=values, is_partial=bool(match["low"]) and not values)
    return text[:start].rstrip(), mark


def _values_between(match: re.Match[str]) -> tuple[str, ...]:
    """Return the values that a mark lists or stands for; none for a range that is too long."""
    if match["values"]:
        return tuple(match["values"].split(", "))
    low, high = match["low"], match["high"]
    if not low or int(high) - int(low) not in range(_MOST_COUNTED):
        return ()
    width = len(low) if low.startswith("0") else 0
    return tuple(str(number).zfill(width) for number in range(int(low), int(high) + 1))


def alike(texts: Sequence[str]) -> Iterator[list[int]]:
    """Yield the places of texts that are the same without their digits, in order, two at least."""
    joined = "\n".join(texts)
    if joined.count("\n") >= len(texts):
        joined = "\n".join([text.replace("\n", " ") for text in texts])
    # All at once: one by one it would take as long as all else that is read of a sentence.
    shapes = joined.encode(errors="surrogatepass").translate(None, _DIGITS).split(b"\n")
    firsts: dict[bytes, int] = {}
    groups: dict[int, list[int]] = {}
    for place, shape in enumerate(shapes[: len(texts)]):
        first = firsts.setdefault(shape, place)
        if first != place:
            groups.setdefault(first, [first]).append(place)
    yield from groups.values()


def mark_of(members: Sequence[Foldable], *, is_output: bool, partial: bool = False) -> Mark | None:
    """Return a mark for texts that are the same without their digits; None if they are not to be folded.

    :param is_output: whether tools wrote the texts, in which a number that differs may be the number of a row
    :param partial: whether one text may stand for others although the mark hides how they differ
    """
    times = sum(member.mark.times for member in members)
    if len(members) < 2 or times < _LEAST_TIMES:
        return None
    mark = _telling_mark(members, times, is_output=is_output)
    if mark is None and partial:
        mark = Mark(times, is_partial=True)
    return mark and replace(mark, size=sum(member.mark.size for member in members))


def _telling_mark(members: Sequence[Foldable], times: int, *, is_output: bool) -> Mark | None:
    """Return a mark for texts of one shape that differ in one number, or in none; None for all others."""
    first = _NUMBER.findall(members[0].text)
    varying: set[int] = set()
    differing: list[str] = []
    """The number that each text has in place of the first one's; empty if it is the same."""
    for member in members:
        numbers = _NUMBER.findall(member.text)
        if member.mark.is_partial or len(numbers) != len(first):
            return None
        slots = {slot for slot, number in enumerate(numbers) if number != first[slot]}
        own = {numbers[slot] for slot in slots}
        differing.append("".join(own))
        varying |= slots
        if len(own) > 1 or (slots and slots != varying):
            return None
    initial = {first[slot] for slot in varying}
    outline = _NUMBER.sub("\0", members[0].text)
    if len(initial) > 1 or any(_NUMBER.sub("\0", member.text) != outline for member in members[1:]):
        return None
    own_values = [
        member.mark.values or tuple({own} if own else initial) for member, own in zip(members, differing, strict=True)
    ]
    values = tuple(dict.fromkeys(chain.from_iterable(own_values)))
    is_range = len(values) <= _MOST_COUNTED and _are_near(values, times) and _ends_of(values)
    if is_range or (len(values) <= _MOST_VALUES and _are_near(values, times)):
        return Mark(times, values)
    return Mark(times, is_partial=True) if is_output else None


def may_tell(text: str, others: Sequence[str], times: int) -> bool:
    """Return whether a mark may say all differences between texts of one shape; mostly it cannot.

    :param others: some of the other texts
    :param times: how many texts there are
    """
    numbers = _NUMBER.findall(text)
    for other in others:
        differing = [pair for pair in zip(numbers, _NUMBER.findall(other), strict=False) if pair[0] != pair[1]]
        if differing and (differing.count(differing[0]) < len(differing) or not _are_near(differing[0], times)):
            return False
    return True


def _are_near(values: Sequence[str], times: int) -> bool:
    """Return whether values are whole numbers of one row with few gaps; other numbers are names of their own."""
    if not all(value.isdecimal() and len(value) < _LONG_DIGITS for value in values):
        return False
    numbers = [int(value) for value in values]
    return max(numbers, default=0) - min(numbers, default=0) < _MOST_SPREAD * times


def _ends_of(values: Sequence[str]) -> tuple[str, str] | None:
    """Return the lowest and the highest of numbers that follow one another; None for all others.

    :param values: whole numbers
    """
    ordered = sorted(values, key=int)
    is_padded = len({len(value) for value in values}) > 1 and any(
        value.startswith("0") for value in values if value != "0"
    )
    is_row = len(values) >= _LEAST_TIMES and int(ordered[-1]) - int(ordered[0]) == len(values) - 1
    return (ordered[0], ordered[-1]) if is_row and not is_padded else None

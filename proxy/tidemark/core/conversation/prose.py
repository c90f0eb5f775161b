"""Shortens a model's text that is longer than its space: statement by statement, from its longest section's middle.

``llm``, ``hybrid`` and ``compaction/writer.py`` use it. The end of a summary has the decisions and the open questions,
so it is never the end that goes. Every section keeps its first and its last statement while others can go, no heading
stands alone, and the statements that stay are the model's own, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import pairwise

from tidemark.core.frozen import frozen

GAP = "[…]"
"""Stands where statements were left out, and at the end of a text that its provider cut off."""
_GONE = f"{GAP}\n\n"
"""Stands for whole sections."""
_HEADING = re.compile(r"[ ]{0,3}(?:#{1,6}[ \t].*+|\*\*[^*]{1,80}\*\*:?|__[^_]{1,80}__:?|.{1,80}[:\uff1a])\s*")
"""A line that heads what follows: one of Markdown, one in bold letters, or one that ends with a colon."""
_FENCES = ("```", "~~~")
_STATEMENT_END = re.compile(
    # Neither "a.m. CET" nor "Dr. Lin" ends a statement; what follows an end begins with no small letter.
    r"(?<=\w\w[.!?])(?<!\b(?:Dr|Mr|Ms|Nr|No|St|vs|ca)\.)(?<!\b(?:Mrs|bzw|etc|inc)\.)[ \t]+(?=[^\sa-zà-öø-ÿ])"
    r"|(?<=[\u3002\uff01\uff1f])(?=[^\n])"
)


@frozen
class ShortenedProse:
    """A text within its space."""

    text: str
    statements: int = 0
    """How many statements the longer text had; 0 if nothing had to go."""
    left_out: int = 0


@dataclass(slots=True)
class _Section:
    """A heading, if there is one, and the statements under it, each with the blanks and line ends after it."""

    heading: str
    statements: list[str] = field(default_factory=list)


def is_heading(line: str) -> bool:
    """Return whether a line only heads what follows it."""
    return bool(_HEADING.fullmatch(line))


def count_statements(text: str) -> int:
    """Return how many statements a text has; headings are none."""
    return sum(len(section.statements) for section in _sections_of(text))


def shorten_prose(text: str, has_room: Callable[[str], bool]) -> ShortenedProse:
    """Return a text, without statements of its longest sections' middles if there is no space for all of them.

    :param has_room: returns whether there is space for a text; if there is for one, there is for a shorter one
    :returns: an empty text if there is not even space for the beginning of the last statement
    """
    if has_room(text):
        return ShortenedProse(text)
    sections = [section for section in _sections_of(text) if section.statements]
    total = sum(len(section.statements) for section in sections)
    steps = _steps(sections)
    low, high = 0, len(steps) + 1  # the fewest steps after which there is space; one more than all of them for none
    while low < high:
        middle = (low + high) // 2
        if middle <= len(steps) and has_room(_rendered(sections, steps[:middle])):
            high = middle
        else:
            low = middle + 1
    if low <= len(steps):
        return ShortenedProse(_rendered(sections, steps[:low]), total, low)
    return ShortenedProse(_beginning(sections[-1].statements[-1] if sections else text, has_room), total, total)


def _sections_of(text: str) -> Iterator[_Section]:
    """Yield the sections of a text; headings that follow each other are one."""
    section = _Section("")
    for part in _parts_of(text):
        if not is_heading(part):
            if part.strip():
                section.statements += _statements_of(part)
            elif section.statements:
                section.statements[-1] += part
            else:
                section.heading += part
        elif section.statements:
            yield section
            section = _Section(part)
        else:
            section.heading += part
    yield section


def _parts_of(text: str) -> Iterator[str]:
    """Yield the lines of a text with their ends; a fenced block is one part."""
    block, fence = "", ""
    for line in text.splitlines(keepends=True):
        start = line.lstrip()[:3]
        if fence:
            block += line
            if start == fence:
                yield block
                block, fence = "", ""
        elif start in _FENCES:
            block, fence = line, start
        else:
            yield line
    if block:
        yield block


def _statements_of(part: str) -> list[str]:
    if part.lstrip().startswith(_FENCES):
        return [part]
    ends = [0, *(match.end() for match in _STATEMENT_END.finditer(part)), len(part)]
    return [part[start:end] for start, end in pairwise(ends) if start < end]


def _steps(sections: Sequence[_Section]) -> list[int]:
    """Return the section that loses a statement at each step: the longest, then all but the last as a whole."""
    counts = [len(section.statements) for section in sections]
    lengths = [sum(map(len, section.statements)) for section in sections]
    longest = [(-length, place) for place, length in enumerate(lengths) if counts[place] > 1]
    heapify(longest)
    steps: list[int] = []
    while longest:
        length, place = heappop(longest)
        count, statements = counts[place], sections[place].statements
        # The middle one of those that stand: the last of the first ones, or the first of the last ones.
        middle = count // 2 - 1 if count % 2 == 0 else len(statements) - (count - count // 2)
        counts[place] -= 1
        steps.append(place)
        if counts[place] > 1:
            heappush(longest, (length + len(statements[middle]), place))
    order = sorted(range(len(sections) - 1), key=lambda place: -len(sections[place].statements[-1]))
    return steps + order


def _rendered(sections: Sequence[_Section], steps: Sequence[int]) -> str:
    counts = [len(section.statements) for section in sections]
    for place in steps:
        counts[place] -= 1
    parts: list[str] = []
    for section, count in zip(sections, counts, strict=True):
        statements = section.statements
        first, last = statements[: count // 2], statements[len(statements) - (count - count // 2) :]
        if count == len(statements):
            parts += [section.heading, *first, *last]
        elif count:
            end = "\n" if (first or [section.heading or "\n"])[-1].endswith("\n") else " "
            parts += [section.heading, *first, GAP + end, *last]
        elif not (parts and parts[-1] == _GONE):
            parts.append(_GONE)
    return "".join(parts).rstrip()


def _beginning(statement: str, has_room: Callable[[str], bool]) -> str:
    """Return as much of a statement's beginning as there is space for, up to a blank if one is near."""
    if has_room(statement.rstrip()):
        return statement.rstrip()
    low, high = 0, len(statement)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if has_room(f"{statement[:middle].rstrip()}…") else (low, middle - 1)
    cut = statement[:low]
    blank = cut.rfind(" ")
    cut = cut[:blank] if blank > 0.7 * low else cut
    return f"{cut.rstrip()}…" if cut.strip() else ""

"""Excerpts: the parts of a long message that bear on a question, such as one card.

A tool's result of thousands of characters has no space before a question. Its parts are objects of JSON, else lines;
each is quoted whole, and a mark stands for what is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from tidemark.core.recall.index import terms_of

LEFT_OUT = "[...]"
"""Stands for the parts that are left out."""
RECORD_CHARS = 700
"""The longest object that is one part; a longer one is divided into the objects and members inside it."""
RELEVANT_SHARE = 0.4
"""Parts that share less with the question than this share of what the best one does are left out."""
_MARKS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z|\\)|[{}]', re.DOTALL)
"""A string, also one without an end, so that none of its characters is looked at twice; or a brace."""
_KEY = re.compile(r'"[^"]{1,80}"\s*:\s*$')
_MEMBER_END = re.compile(r'(?<=[,\[\]{}])\s*(?=")')


def excerpt_of(text: str, rarity_by_term: Mapping[str, float], max_chars: int) -> str:
    """Return the parts of a text that share most with a question, in their order; empty if none fits.

    :param rarity_by_term: the question's terms and their weights
    """
    parts = [text[start:end] for start, end in _parts(text)]
    terms_by_part = [rarity_by_term.keys() & terms_of(part) for part in parts]
    mentions = Counter(term for terms in terms_by_part for term in terms)
    scores = [sum([rarity_by_term[term] / mentions[term] for term in sorted(terms)]) for terms in terms_by_part]
    least = max(RELEVANT_SHARE * max(scores, default=0.0), 1e-9)
    chosen: list[int] = []
    for place in sorted(range(len(parts)), key=lambda place: (-scores[place], place)):
        cost = len(parts[place]) + len(LEFT_OUT) + 2
        if scores[place] < least:
            break
        if cost <= max_chars:
            max_chars -= cost
            chosen.append(place)
    return _joined(parts, sorted(chosen))


def _joined(parts: list[str], places: list[int]) -> str:
    """Return parts in their order, each gap marked."""
    lines: list[str] = []
    for before, place in zip([-1, *places], places, strict=False):
        if place > before + 1:
            lines.append(LEFT_OUT)
        lines.append(parts[place].strip())
    if places and places[-1] < len(parts) - 1:
        lines.append(LEFT_OUT)
    return "\n".join(lines)


def _parts(text: str) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each part."""
    end = 0
    for first, last in _records(text) if text.lstrip()[:1] in ("{", "[") else ():
        yield from _between(text, end, first)
        yield first, last
        end = last
    yield from _between(text, end, len(text))


def _between(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the lines, or members of an object, that stand between records."""
    for line in re.finditer(r"[^\n]+", text[start:end]):
        first, last = start + line.start(), start + line.end()
        if last - first <= RECORD_CHARS and text[first:last].lstrip()[:1] not in ("{", "[", ","):
            yield first, last
            continue
        for member in _MEMBER_END.finditer(text, first, last):
            if member.start() > first:
                yield first, member.start()
                first = member.end()
        yield first, last


def _records(text: str) -> Iterator[tuple[int, int]]:
    """Yield the largest objects that are no longer than ``RECORD_CHARS``, each with its key."""
    opened: list[int] = []
    closed: list[tuple[int, int]] = []
    for mark in _MARKS.finditer(text):
        if mark.group() == "{":
            opened.append(mark.start())
        elif mark.group() == "}" and opened:
            start = opened.pop()
            if mark.end() - start <= RECORD_CHARS:
                while closed and closed[-1][0] > start:
                    closed.pop()
                closed.append((start, mark.end()))
    end = 0
    for start, last in closed:
        key = _KEY.search(text, max(end, start - 90), start)
        yield (key.start() if key else start), last
        end = last

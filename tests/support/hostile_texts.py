"""Makes texts that a regular expression almost matches, many times over, from the parse tree of its own pattern.

A pattern is slow if what one part of it reads could be read by another part too, and nothing matches in the end. So
each run of a pattern's parts is repeated, after what comes before it, and the text ends with what nothing matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any

Node = tuple[Any, Any]
Text = str | bytes

PREFERRED = ("a1 .-/", " \t\n,1a", "A0_:@", "\"'={}")
"""Which characters stand for a class, first those that classes have in common; each line makes texts of its own."""
ENDS = ("", "\0", "\n\0")
"""What a text ends with: nothing, what few classes have, and what no class of one line has."""
MOST_PARTS = 5
"""The longest run of a pattern's parts that is repeated; literals in a row are one part."""
LONG_REPEAT = 50
"""A part that may occur fewer times adds at most that factor, whatever the text."""
REPEATS = {_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT}
LOOKS = {_constants.ASSERT, _constants.ASSERT_NOT}


@dataclass(frozen=True)
class Hostile:
    """A text in any length."""

    start: Text
    unit: Text
    end: Text

    def of_size(self, size: int) -> Text:
        """Return the text with about so many characters."""
        count = max(1, size // len(self.unit))
        return self.start + self.unit * count + self.end  # type: ignore[operator]


def hostile_texts(pattern: re.Pattern[Any]) -> set[Hostile]:
    """Return the texts for a pattern; none if no part of it may occur often."""
    tree = _parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE if _is_bytes(pattern) else pattern.flags)
    texts: set[Hostile] = set()
    if not _may_be_long(tree):
        return texts
    for preferred in PREFERRED:
        maker = _Maker(tree.state, pattern.flags, preferred)
        for before, unit in maker.repeated(list(tree), ""):
            for start, again in ((before, unit), ("", before + unit)):
                texts |= {_hostile(pattern, start, again, end) for end in ENDS if again}
    return texts


class _Maker:
    """Writes what parts of one pattern match, with one preference of characters."""

    def __init__(self, state: Any, flags: int, preferred: str) -> None:
        self._state, self._flags = state, flags
        self._preferred = preferred + "".join(map(chr, range(32, 127))) + "\n\t\r\u00e9\u3002\u0e01\u4e00\u3042"
        self._groups: dict[int, str] = {}

    def repeated(self, nodes: Sequence[Node], before: str) -> Iterator[tuple[str, str]]:
        """Yield each run of parts with what comes before it, of this sequence and of those within it."""
        parts = list(_parts(nodes))
        samples = [self._sample(part) for part in parts]
        for first, part in enumerate(parts):
            start = before + "".join(samples[:first])
            for last in range(first + 1, min(len(parts), first + MOST_PARTS) + 1):
                yield start, "".join(samples[first:last])
            for inner in _inner(part):
                yield from self.repeated(list(inner), start)

    def _sample(self, part: Sequence[Node]) -> str:
        return "".join(self._sample_of(node) for node in part)

    def _sample_of(self, node: Node) -> str:
        kind, value = node
        if kind == _constants.LITERAL:
            return chr(value)
        if kind in (_constants.IN, _constants.ANY, _constants.NOT_LITERAL):
            return self._character(node)
        if kind == _constants.GROUPREF:
            return self._groups.get(value, "")
        if kind == _constants.ASSERT_NOT:
            return ""
        text = next(filter(None, (self._sample(list(inner)) for inner in _inner([node]))), "")
        if kind == _constants.SUBPATTERN:
            self._groups[value[0]] = text
        return text * min(max(value[0], 1), value[1]) if kind in REPEATS else text

    def _character(self, node: Node) -> str:
        matcher = _compiler.compile(_parser.SubPattern(self._state, [node]), self._flags)
        is_bytes = not self._flags & re.UNICODE
        for character in self._preferred:
            if matcher.match(character.encode("utf-8")[:1] if is_bytes else character):
                return character
        return ""


def _parts(nodes: Sequence[Node]) -> Iterator[Sequence[Node]]:
    """Yield the nodes one by one, and literals in a row as one."""
    literals: list[Node] = []
    for node in nodes:
        if node[0] == _constants.LITERAL:
            literals.append(node)
            continue
        if literals:
            yield literals
        literals = []
        yield [node]
    if literals:
        yield literals


def _inner(part: Sequence[Node]) -> list[Any]:
    """Return the sequences within a part."""
    kind, value = part[0]
    if kind in REPEATS:
        return [value[2]]
    if kind == _constants.SUBPATTERN:
        return [value[3]]
    if kind == _constants.BRANCH:
        return list(value[1])
    if kind == _constants.ATOMIC_GROUP:
        return [value]
    return [value[1]] if kind in LOOKS else []


def _may_be_long(nodes: Any) -> bool:
    return any(
        (node[0] in REPEATS and node[1][1] >= LONG_REPEAT) or any(map(_may_be_long, _inner([node]))) for node in nodes
    )


def _is_bytes(pattern: re.Pattern[Any]) -> bool:
    return isinstance(pattern.pattern, bytes)


def _hostile(pattern: re.Pattern[Any], *texts: str) -> Hostile:
    return Hostile(*([text.encode() for text in texts] if _is_bytes(pattern) else texts))

"""Edits JSON text in place: single values and elements change, or a member goes, and all other text stays.

Dialects clip messages with it. The text must be JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from tidemark.core.conversation.messages import JsonValue

_SPACE = re.compile(r"[ \t\n\r]*")
_READ = json.JSONDecoder().raw_decode


def with_member(raw: str, name: str, change: Callable[[str], str]) -> str:
    """Return an object with one member's value changed; all other text stays."""
    pieces: list[str] = []
    done = 0
    for member, start, end in _members(raw):
        if member == name:
            pieces += [raw[done:start], change(raw[start:end])]
            done = end
    return "".join([*pieces, raw[done:]])


def without_member(raw: str, name: str) -> str:
    """Return an object without a member and its comma; all other text stays."""
    before = raw.index("{") + 1
    is_first = True
    for member, _, end in _members(raw):
        if member == name:
            after = _skip_space(raw, end)
            return raw[:before] + raw[_skip_space(raw, after + 1) if is_first and raw[after] == "," else end :]
        before, is_first = end, False
    return raw


def _members(raw: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each member of an object, and where its value begins and ends. The text must be JSON."""
    at = _skip_space(raw, raw.index("{") + 1)
    while raw[at] != "}":
        name, at = _READ(raw, at)
        start = _skip_space(raw, raw.index(":", at) + 1)
        _, end = _READ(raw, start)
        yield name, start, end
        at = _skip_space(raw, end)
        at = _skip_space(raw, at + 1) if raw[at] == "," else at


def elements_of(raw: str) -> Iterator[tuple[JsonValue, int, int]]:
    """Yield each element of a list, and where it begins and ends."""
    at = _skip_space(raw, raw.index("[") + 1)
    while raw[at] != "]":
        value, end = _READ(raw, at)
        yield value, at, end
        at = _skip_space(raw, end)
        at = _skip_space(raw, at + 1) if raw[at] == "," else at


def _skip_space(raw: str, at: int) -> int:
    """Return the place after any white space."""
    space = _SPACE.match(raw, at)
    return space.end() if space else at

"""Cuts JSON of a tool's result into lines, each of which has whole records.

``passages`` uses it. A line that begins inside a value says nothing, and half of a record pairs what does not belong
together. The lines are slices of the text, so that each number stands as it stood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tidemark.core.frozen import frozen
from tidemark.summarizers.sentences import sentences

RECORD_CHARS = 480
"""The most characters of a record that is one line. A flight with its seats and prices has some 350."""
_SMALL_CHARS, _SHARED_CHARS = 90, 320
"""The most characters of records that share a line, and of the line. A table of numbers is read in a few lines."""
_KEY_CHARS = 160
"""The most characters of a key beside a long text."""
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT = re.compile(rf'[{{\[][^{{}}\[\]"]*+(?:{_STRING}[^{{}}\[\]"]*+)*+[}}\]]', re.DOTALL)
"""An object or a list without another one inside."""
_KEY = re.compile(rf"\s*{_STRING}\s*:")
_NAMES = "id|number|name|ref"
_NAME = re.compile(
    rf'"(?:(?:[^"\\]*[_ -])?(?i:{_NAMES})|(?i:code|key|title)|[^"\\]*[a-z](?=[A-Z])(?i:{_NAMES}))"\s*:\s*'
    rf"(?:{_STRING}|\d{{4,}})"
)
"""A member that identifies its object: ``"flight_number": "HA7"``."""
_NAME_CHARS = 60
"""The most characters of it, since it stands in each line."""
_RECORD_LINES = 50
"""The most lines of a record; an object with more of them is a document."""
_DIGIT = re.compile(r"\d")
_TOKEN = re.compile(rf"{_STRING}?+|[{{}}\[\],]", re.DOTALL)
"""A string, also one without an end, so that none of its characters is looked at twice; or a sign."""


@frozen
class _Container:
    """An object or a list that is being read."""

    start: int
    member: int
    """Where the member of the container above begins that has it."""
    members: list[Sequence[str]]
    """The lines of the members that have been read. One that fits a line has one."""


def records(text: str) -> list[str] | None:
    """Return the lines of a JSON text; None if it is no JSON object or list.

    An object or a list that fits a line is one. Of a larger one each member is a line; small ones share lines, and all
    lines of an object have what identifies it.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    text = " ".join(text.split())
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return list(_lines(text))


def _lines(text: str) -> Sequence[str]:
    """Return the lines of a text that is valid JSON."""
    stack: list[_Container] = []
    parts: Sequence[str] = ()  # the lines of the last value of the member, if it needs several
    place = start = 0  # where the member begins that is being read
    while match := _TOKEN.search(text, place):
        sign, place = match[0], match.end()
        if sign in ("{", "["):
            flat = _FLAT.match(text, match.start())
            if flat is not None and len(flat[0]) <= RECORD_CHARS:
                place = flat.end()
            else:
                stack.append(_Container(match.start(), start, []))
                start = place
        elif sign == ",":
            stack[-1].members.append(parts or _member(text[start : match.start()]))
            parts, start = (), place
        elif sign in ("}", "]"):
            container = stack.pop()
            members = [*container.members, parts or _member(text[start : match.start()])]
            parts, start = (), container.member
            if place - container.start > RECORD_CHARS:
                key = text[start : container.start].strip() + " "
                parts = _joined(members, key) if sign == "]" else _identified(members, key)
    return parts or _member(text)


def _member(text: str) -> Sequence[str]:
    """Return the lines of a member, such as ``"price": 7``; a long text has one for each sentence."""
    text = text.strip()
    if len(text) <= RECORD_CHARS or text.endswith(("}", "]")):
        return [text]
    whole_key = match[0] if (match := _KEY.match(text)) else ""
    key, value = whole_key[:_KEY_CHARS], text[len(whole_key) :].strip()
    if value.startswith('"') and "\\ud" not in value.lower():  # a lone surrogate must not reach a summary
        value = str(json.loads(value))
    lines = sentences(value, is_output=True)
    return [f"{key} {lines[0]}".strip(), *lines[1:]] if lines else [key]


def _identified(members: Sequence[Sequence[str]], key: str) -> list[str]:
    """Return the lines of an object that is too long for one, each with the member that identifies the object.

    :param key: what stands before the object; it identifies one without such a member if it has a number
    """
    names = (member[0] for member in members if len(member) == 1 and len(member[0]) <= _NAME_CHARS)
    name = next(filter(_NAME.fullmatch, names), "")
    start = f"{name}, " if name else key if len(key) <= _NAME_CHARS and _DIGIT.search(key) else ""
    lines = _joined(members, "")
    if not start or len(lines) > _RECORD_LINES:
        return lines
    # A sentence of a long text has no key, and stays as it is.
    return [
        start + line
        if _KEY.match(line)
        and not (name and name in line)
        and len(start) + len(line) <= RECORD_CHARS
        and not _NAME.match(line)  # an inner record's own, which is another one
        else line
        for line in lines
    ]


def _joined(members: Sequence[Sequence[str]], key: str) -> list[str]:
    """Return the lines of an object or a list that is too long for one.

    :param key: what stands before each item of a list
    """
    lines: list[str] = []
    is_small = False
    for member in members:
        line = member[0]
        was_small, is_small = is_small, len(member) == 1 and len(line) <= _SMALL_CHARS
        if was_small and is_small and len(lines[-1]) + len(line) < _SHARED_CHARS:
            lines[-1] += ", " + line
        else:
            lines += [(key + line).lstrip()] if len(member) == 1 else member
    return lines

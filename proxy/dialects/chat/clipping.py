"""Clips a chat message. Replaces the middle of its text by a mark, and leaves all other members' bytes as they are.

The step ``fit`` calls it through the dialect. ``core/planning/clip.py`` decides which messages to clip, and where.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial

from proxy.core.conversation.messages import JsonValue, Message, printable
from proxy.dialects.chat.message import TEXT_PARTS, parse_message

_MARK_LINES = "\n{mark}\n"
_SPACE = re.compile(r"[ \t\n\r]*")
_READ = json.JSONDecoder().raw_decode


def replace_middle(message: Message, first: int, last: int, mark: str) -> Message:
    """Replace the characters from ``first`` to ``last`` of a message's text by a mark."""
    lines = _MARK_LINES.format(mark=mark)
    clipped = _with_member(message.raw.decode(), "content", lambda raw: _clip_content(raw, first, last, lines)).encode()
    return parse_message(clipped, json.loads(clipped), 0)


def _clip_content(raw: str, first: int, last: int, lines: str) -> str:
    """Clip a ``content``, which is a string or a list of parts. Parts that are wholly in the middle are removed.

    :param lines: the mark with its line ends
    """
    value = json.loads(raw)
    if isinstance(value, str):
        text = printable(value)
        return json.dumps(text[:first] + lines + text[last:], ensure_ascii=False)
    parts: list[str] = []
    at, has_mark = 0, False
    for part, start, end in _elements(raw):
        text = _text_of(part)
        before, after = max(first - at, 0), max(last - at, 0)
        clipped = text[after:] if has_mark else text[:before]
        if text and not has_mark and len(text) >= before:
            clipped, has_mark = text[:before] + lines + text[after:], True
        at += len(text) + 1 if text else 0  # the line end that joins parts in ``Message.text``
        if clipped == text:
            parts.append(raw[start:end])
        elif clipped:
            parts.append(_with_member(raw[start:end], "text", partial(_as_json, clipped)))
    return "[" + ",".join(parts) + "]"


def _as_json(text: str, _raw: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _text_of(part: JsonValue) -> str:
    if not isinstance(part, dict) or part.get("type") not in TEXT_PARTS:
        return ""
    text = part.get("text")
    return printable(text) if isinstance(text, str) else ""


def _with_member(raw: str, name: str, change: Callable[[str], str]) -> str:
    """Return an object with one member's value changed; all other text stays."""
    pieces: list[str] = []
    done = 0
    for member, start, end in _members(raw):
        if member == name:
            pieces += [raw[done:start], change(raw[start:end])]
            done = end
    return "".join([*pieces, raw[done:]])


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


def _elements(raw: str) -> Iterator[tuple[JsonValue, int, int]]:
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

"""Clipping in the chat dialect: a message's JSON with the middle of its text replaced by a mark.

Called by compaction, which is told by ``core/planning/clip.py`` what to clip and how far. All other members keep the
client's own bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial

from proxy.core.conversation.messages import JsonValue, Message, printable
from proxy.dialects.chat.message import TEXT_PARTS, parse_message

_FRAMED = "\n{mark}\n"
_SPACE = re.compile(r"[ \t\n\r]*")
_READ = json.JSONDecoder().raw_decode


def replace_middle(message: Message, head: int, tail: int, mark: str) -> Message:
    """The message with ``mark`` in place of the characters ``head`` to ``tail`` of its text."""
    framed = _FRAMED.format(mark=mark)
    made = _replaced(message.raw.decode(), "content", lambda raw: _content(raw, head, tail, framed)).encode()
    return parse_message(made, json.loads(made), 0)


def _content(raw: str, head: int, tail: int, framed: str) -> str:
    """A member ``content``, a string or a list of parts; parts that stand in the middle as a whole are left out."""
    value = json.loads(raw)
    if isinstance(value, str):
        text = printable(value)
        return json.dumps(text[:head] + framed + text[tail:], ensure_ascii=False)
    parts: list[str] = []
    at, marked = 0, False
    for part, start, end in _elements(raw):
        text = _text_of(part)
        first, last = max(head - at, 0), max(tail - at, 0)
        kept = text[last:] if marked else text[:first]
        if text and not marked and len(text) >= first:
            kept, marked = text[:first] + framed + text[last:], True
        at += len(text) + 1 if text else 0  # what joins them in ``Message.text``
        if kept == text:
            parts.append(raw[start:end])
        elif kept:
            parts.append(_replaced(raw[start:end], "text", partial(_as_json, kept)))
    return "[" + ",".join(parts) + "]"


def _as_json(text: str, _raw: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _text_of(part: JsonValue) -> str:
    if not isinstance(part, dict) or part.get("type") not in TEXT_PARTS:
        return ""
    text = part.get("text")
    return printable(text) if isinstance(text, str) else ""


def _replaced(raw: str, name: str, change: Callable[[str], str]) -> str:
    """An object with one member's value changed, all else as it is written."""
    pieces: list[str] = []
    done = 0
    for member, start, end in _members(raw):
        if member == name:
            pieces += [raw[done:start], change(raw[start:end])]
            done = end
    return "".join([*pieces, raw[done:]])


def _members(raw: str) -> Iterator[tuple[str, int, int]]:
    """Each member of an object: its name, and where its value begins and ends. The text is known to be JSON."""
    at = _past(raw, raw.index("{") + 1)
    while raw[at] != "}":
        name, at = _READ(raw, at)
        start = _past(raw, raw.index(":", at) + 1)
        _, end = _READ(raw, start)
        yield name, start, end
        at = _past(raw, end)
        at = _past(raw, at + 1) if raw[at] == "," else at


def _elements(raw: str) -> Iterator[tuple[JsonValue, int, int]]:
    """Each element of a list, and where it begins and ends."""
    at = _past(raw, raw.index("[") + 1)
    while raw[at] != "]":
        value, end = _READ(raw, at)
        yield value, at, end
        at = _past(raw, end)
        at = _past(raw, at + 1) if raw[at] == "," else at


def _past(raw: str, at: int) -> int:
    """The place after any white space."""
    space = _SPACE.match(raw, at)
    return space.end() if space else at

"""Puts cache marks on contents, which are a text or a list of blocks or parts.

``dialect.py`` calls it for the requests that Tidemark marks. All other bytes stay.
"""

from __future__ import annotations

import json

from tidemark.core.conversation.messages import JsonValue
from tidemark.dialects.bodies import array_of, body_of
from tidemark.dialects.raw_json import read_elements, read_json, read_members

_TEXTS = ("text", "input_text")


def with_mark(content: bytes, member: bytes, text_type: str) -> bytes:
    """Return a content whose last part has a mark; the same one if that says nothing in words.

    :param member: the mark, as a member
    :param text_type: the type of a part that a text becomes, since only parts have marks
    """
    content = content.strip()
    if content.startswith(b'"'):
        is_empty = not json.loads(content).strip()
        return content if is_empty else b'[{"type":"%b","text":%b,%b}]' % (text_type.encode(), content, member)
    parts = read_elements(content) if content.startswith(b"[") else []
    if not parts or not _is_text(read_json(parts[-1])):
        return content
    return array_of([*parts[:-1], parts[-1].rstrip()[:-1] + b"," + member + b"}"])


def with_mark_in_content(message: bytes, member: bytes, text_type: str) -> bytes:
    """Return a message with a mark at the end of its content."""
    members = read_members(message, bounded=False)
    if "content" not in members:
        return message
    return body_of(members, {"content": with_mark(members["content"], member, text_type)})


def _is_text(part: JsonValue) -> bool:
    """Return whether a part is a text that may have a mark."""
    return isinstance(part, dict) and part.get("type") in _TEXTS and bool(str(part.get("text") or "").strip())

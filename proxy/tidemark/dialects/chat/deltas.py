"""Joins the pieces of a JSON object that a stream sends.

The ``delta`` of a chunk is such a piece, and so is each tool call in it. ``reply.py`` calls this, and knows what the
members mean.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.conversation.messages import JsonValue
from tidemark.dialects.bodies import paired

WHOLE = frozenset({"format", "id", "role", "type"})
"""Members whose strings never come in pieces: the first that is not empty counts."""
MAX_DEPTH = 8
"""Objects at this depth are not joined: the newest counts. The API's own are two deep."""


class PartialObject:
    """An object that comes in pieces.

    Strings are joined, lists are extended and objects are folded, also a list's last one if its index or thinking
    goes on, as in OpenRouter's ``reasoning_details`` and litellm's ``thinking_blocks``. Of any other value, the newest
    counts.
    """

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: dict[str, JsonValue] = {}
        """Strings as ``_Text``, objects as ``PartialObject``, lists as ``_Parts``, all else as it came."""

    def fold(self, piece: Mapping[str, JsonValue], depth: int = 0) -> None:
        """Take in one piece; a null changes nothing."""
        members = self.members
        for key, value in piece.items():
            member = members.get(key)
            if isinstance(value, str):
                if isinstance(member, _Text):
                    member.append(value)
                else:
                    members[key] = _with_text(member, value, key)
            elif isinstance(value, dict) and depth < MAX_DEPTH:
                if not isinstance(member, PartialObject):
                    member = members[key] = PartialObject()
                member.fold(value, depth + 1)
            elif isinstance(value, list):
                if not isinstance(member, _Parts):
                    member = members[key] = _Parts(member)
                member.add_parts(value)
            elif value is not None:
                members[key] = value

    def append_text(self, key: str, value: JsonValue) -> bool:
        """Append a string to a member that is a string; return False if one of them is not."""
        member = self.members.get(key)
        if not isinstance(member, _Text) or not isinstance(value, str):
            return False
        member.append(value)
        return True

    def value(self) -> dict[str, JsonValue]:
        return {key: _value(member) for key, member in self.members.items()}


_IN_PIECES = ("reasoning.text", "reasoning.summary")
"""Types of ``reasoning_details`` whose pieces make one part; encrypted ones come whole (OpenRouter's reference)."""


class _Text(list[str]):
    """A string in pieces."""


class _Parts(list[JsonValue]):
    """A list that grows. A string before or after it becomes a text part in it."""

    def __init__(self, member: JsonValue) -> None:
        super().__init__()
        if isinstance(member, _Text):
            self.add_text("".join(member))

    def add_parts(self, parts: list[JsonValue]) -> None:
        """Add parts. Thinking of the last one's type, index and id is its next piece, up to its signature."""
        for part in parts:
            if isinstance(part, dict) and (part.get("type") in _IN_PIECES or isinstance(part.get("thinking"), str)):
                self._add_piece(part)
            else:
                self.append(part)

    def _add_piece(self, piece: Mapping[str, JsonValue]) -> None:
        last = self[-1] if self else None
        before = last.value() if isinstance(last, PartialObject) else {}
        is_same = all(before.get(name) == piece.get(name) for name in ("type", "index"))
        is_next = is_same and piece.get("id") in (None, before.get("id")) and not before.get("signature")
        if not isinstance(last, PartialObject) or not is_next:
            last, before = PartialObject(), {}
            self.append(last)
        text, thinking = piece.get("thinking"), before.get("thinking")
        if piece.get("signature") and isinstance(text, str) and isinstance(thinking, str):
            piece = {**piece, "thinking": text.removeprefix(thinking)}  # litellm repeats it beside the signature
        last.fold(piece)

    def add_text(self, text: str) -> None:
        """Add a string to the last part, or as a new part."""
        if not text:
            return
        last = self[-1] if self else None
        if not isinstance(last, PartialObject):
            last = PartialObject()
            self.append(last)
        last.fold({"type": "text", "text": text})


def _with_text(member: JsonValue, text: str, key: str) -> JsonValue:
    """Return a member that was not a string in pieces, after a string came for it."""
    if isinstance(member, _Parts):
        member.add_text(text)
        return member
    return member or text if key in WHOLE else _Text([text])


def _value(member: JsonValue) -> JsonValue:
    if isinstance(member, _Text):
        return paired("".join(member))
    if isinstance(member, PartialObject):
        return member.value()
    return [_value(part) for part in member] if isinstance(member, _Parts) else member

"""A JSON object that comes in pieces, as the ``delta`` of a stream's chunks and the tool calls in it do.

Below ``delta.py``, which knows what the members mean.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.core.conversation.messages import JsonValue

WHOLE = frozenset({"id", "role", "type"})
"""Strings that never come in pieces: the first that is not empty counts."""
MAX_DEPTH = 8
"""Objects this deep are taken as they are; the API's own are two deep."""


class Pieces:
    """An object so far: strings are joined, lists extended, objects folded in turn; of all else the newest counts."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: dict[str, JsonValue] = {}
        """Strings as ``_Text``, objects as ``Pieces``, lists as ``_Parts``, all else as it came."""

    def fold(self, piece: Mapping[str, JsonValue], depth: int = 0) -> None:
        """Take in one piece; a null says nothing."""
        members = self.members
        for key, value in piece.items():
            known = members.get(key)
            if isinstance(value, str):
                if isinstance(known, _Text):
                    known.append(value)
                else:
                    members[key] = _with_text(known, value, key)
            elif isinstance(value, dict) and depth < MAX_DEPTH:
                if not isinstance(known, Pieces):
                    known = members[key] = Pieces()
                known.fold(value, depth + 1)
            elif isinstance(value, list):
                if not isinstance(known, _Parts):
                    known = members[key] = _Parts(known)
                known.extend(value)
            elif value is not None:
                members[key] = value

    def goes_on(self, key: str, value: JsonValue) -> bool:
        """Join a string to the one that is there; False where that is not what there is to do."""
        known = self.members.get(key)
        if not isinstance(known, _Text) or not isinstance(value, str):
            return False
        known.append(value)
        return True

    def value(self) -> dict[str, JsonValue]:
        """The object as it is so far."""
        return {key: _value(member) for key, member in self.members.items()}


class _Text(list[str]):
    """A string in pieces."""


class _Parts(list[JsonValue]):
    """A list that grows; what is said as a bare string before or after it is a text part of it."""

    def __init__(self, known: JsonValue) -> None:
        super().__init__()
        if isinstance(known, _Text):
            self.say("".join(known))

    def say(self, text: str) -> None:
        """Add a bare string, to the one before it if there is one."""
        if not text:
            return
        last = self[-1] if self else None
        if not isinstance(last, Pieces):
            last = Pieces()
            self.append(last)
        last.fold({"type": "text", "text": text})


def _with_text(known: JsonValue, text: str, key: str) -> JsonValue:
    """A member after a string has come that does not go on with a string."""
    if isinstance(known, _Parts):
        known.say(text)
        return known
    return known or text if key in WHOLE else _Text([text])


def _value(member: JsonValue) -> JsonValue:
    if isinstance(member, _Text):
        return _joined(member)
    if isinstance(member, Pieces):
        return member.value()
    return [_value(part) for part in member] if isinstance(member, _Parts) else member


def _joined(pieces: list[str]) -> str:
    """The whole text; a character whose halves came apart is one again (RFC 8259, section 7)."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text

"""Tells what a key is for, by its name; ``tidemark/store/keys.py`` lists them all."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidemark.core.frozen import frozen
from tidemark.store import keys

FAMILY = "family"
"""The area of all keys of conversations."""
_TAGGED = re.compile(rb"tm:\{([^}]+)\}:([a-z]+)(?::(.*))?", re.DOTALL)
_PLAIN = re.compile(rb"tm:([a-z]+)(?::(.*))?", re.DOTALL)
_HEX_FAMILY = re.compile(rb"[0-9a-f]{32}")
_AREAS = {b"event-posts": "flush"}
"""Areas with the same keys as another."""
_ASIDE = keys.ASIDE.encode()
_TEMPORARY = {
    "": frozenset({"probe", "doctor", "schema", "import", "rotation", "d"}),
    FAMILY: frozenset({"l"}),
    "flush": frozenset({"l"}),
    "models": frozenset({"v"}),
    "limits": frozenset({"r", "c"}),
}
"""Keys that mean something to this store's present processes only, by area and kind."""


@frozen
class KeyPlace:
    """What a key's name says."""

    area: str
    """``family``, ``aside``, the text between the braces of a key that no tenant has, or empty."""
    kind: str
    rest: bytes
    """What stands behind the kind, such as a conversation's own part of its id."""
    beginning: bytes
    """The part of the key with which a script declares it and its neighbours: ``tm:{F}``."""

    @property
    def is_conversation(self) -> bool:
        """Whether the key is a part of one conversation, beside others."""
        return self.area == FAMILY and self.kind in keys.CONVERSATION_KINDS

    @property
    def is_temporary(self) -> bool:
        """Whether the key means nothing in another store."""
        return self.kind in _TEMPORARY.get(self.area, ()) or self.area in ("events", "audit", "requests")

    @property
    def family(self) -> str:
        """The family, of a key that belongs to one."""
        return self.beginning[4:-1].decode()

    def sealed_as(self, field: bytes) -> Sequence[str | bytes]:
        """Return the place for which a value is sealed that is nothing but sealed bytes."""
        if self.area == FAMILY:
            return (self.kind, self.family, field)
        if self.area == "flush":
            return ("flush note", field)
        at = b":".join([self.beginning, self.kind.encode()]) if self.area else self.beginning
        return (at, field)

    def part(self, kind: str) -> bytes:
        """Return the key of another part of the same conversation."""
        return b":".join((self.beginning, kind.encode(), self.rest))


def place_of(name: bytes) -> KeyPlace | None:
    """Return what a key is for; None if no key of this version has such a name."""
    if name.startswith(_ASIDE):
        return KeyPlace("aside", "", name.removeprefix(_ASIDE), name)
    tagged = _TAGGED.fullmatch(name)
    if tagged:
        tag, kind, rest = tagged.groups()
        tag_area = tag.partition(b":")[0]  # of quotas, whose tag has a tenant too
        area = FAMILY if _HEX_FAMILY.fullmatch(tag) else _AREAS.get(tag, tag_area.decode(errors="replace"))
        return KeyPlace(area, kind.decode(), rest or b"", b"tm:{%s}" % tag)
    plain = _PLAIN.fullmatch(name)
    return KeyPlace("", plain[1].decode(), plain[2] or b"", name) if plain else None


def aside_of(name: bytes) -> bytes:
    """Return the key to which another one is moved aside, in the same slot."""
    return _ASIDE + (name.removeprefix(b"tm:") if _TAGGED.fullmatch(name) else b"{%s}" % name)


def printable(name: bytes) -> str:
    """Return a key as text; a byte that is no printable character of ASCII stands as its number."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in name)

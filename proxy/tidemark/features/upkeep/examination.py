"""Examines every record of a store: which one cannot be read, and why. ``tidemark store check`` prints it.

``rules.py`` says how each kind is read. Only ``move_aside`` changes anything, and it deletes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tidemark.core.conversation.messages import DIGEST_BYTES
from tidemark.core.errors import EncryptionKeyLost, RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.features.upkeep.rules import RULES, UNREADABLE, Rule
from tidemark.store import keys
from tidemark.store.codec import MOVED, Codec
from tidemark.store.elements import Element, read_pages
from tidemark.store.places import KeyPlace, aside_of, place_of, printable
from tidemark.store.scripts import lua
from tidemark.store.whole_store import KeyScan, WholeStore

AT_ONCE = 16
"""Keys that are read side by side."""
_ASIDE = lua(__file__, "upkeep_aside")
_WHOLE = """
local c, own = redis.call('HMGET', KEYS[1] .. ':c:' .. ARGV[1], 'base', 'count'), ARGV[1]
local base, stored = tonumber(c[1]), redis.call('LLEN', KEYS[1] .. ':m:' .. own)
local hashes = redis.call('STRLEN', KEYS[1] .. ':h:' .. own)
if redis.call('EXISTS', KEYS[1] .. ':c:' .. own) == 0 then return '' end
if not base then return 'it does not say where its own messages begin' end
if hashes ~= 16 * stored then return stored .. ' messages have ' .. hashes / 16 .. ' chain hashes' end
return ''
"""
"""Says why a conversation cannot be used as a whole; a wrong count alone is counted anew (``tree.lua``)."""
Movement = Literal["key", "field", "element", "entry", "message", "conversation", "none"]
"""``none`` is for what can be read again when its key is back."""


@frozen
class Unreadable:
    """A record that cannot be read: what it is, why, and how it is moved aside."""

    name: bytes
    reason: str
    movement: Movement
    place: bytes = b""
    value: bytes = b""

    @property
    def key(self) -> str:
        return printable(self.name)

    @property
    def position(self) -> str:
        """Which element of the key it is, as text; empty for the whole key."""
        return printable(self.place)


@dataclass(slots=True)
class Examination:
    """How far an examination is. Mutable: all of it."""

    keys: int = 0
    """Keys that were looked at."""
    records: int = 0
    """Elements that were read."""
    moved_before: int = 0
    """Places of messages and turns that were moved aside by an earlier repair."""
    aside: int = 0
    """Keys of what was moved aside."""
    unknown: list[str] = field(default_factory=list)
    """The first names that no key of this version has; a newer version may have written them."""
    unknown_count: int = 0


MOST_NAMES = 20
"""Unknown names that are remembered."""


class StoreExaminer:
    """Examines a store and moves aside what cannot be read. Mutable: ``progress``."""

    def __init__(self, store: WholeStore, codec: Codec) -> None:
        self._store = store
        self._codec = codec
        self.progress = Examination()

    async def examine(self) -> AsyncIterator[tuple[int, Sequence[Unreadable]]]:
        """Yield for each page of keys how many these were, and what of them cannot be read.

        :raises StoreUnavailable: a server does not answer
        """
        async for names in KeyScan(self._store).pages():
            unreadable: list[Unreadable] = []
            for start in range(0, len(names), AT_ONCE):
                for records in await asyncio.gather(*map(self._examine_key, names[start : start + AT_ONCE])):
                    unreadable += records
            self.progress.keys += len(names)
            yield len(names), unreadable

    async def move_aside(self, record: Unreadable) -> int:
        """Move a record aside, with its time to live, unless it has changed since; return how many parts moved."""
        place = place_of(record.name)
        if place is None or record.movement == "none":
            return 0
        if record.movement == "conversation":
            parts = [place.part(kind) for kind in keys.CONVERSATION_KINDS]
            return sum([await self._move("key", name, b"", b"", b"") for name in parts])
        rest = MOVED if place.kind == "m" else record.value[:DIGEST_BYTES] + MOVED
        return await self._move(record.movement, record.name, record.place, record.value, rest)

    async def _move(self, movement: Movement, name: bytes, place: bytes, value: bytes, rest: bytes) -> int:
        arguments = (movement, name, aside_of(name), place, value, rest)
        return int(await self._store.call_large("EVAL", _ASIDE, 1, name, *arguments))

    async def _examine_key(self, name: bytes) -> list[Unreadable]:
        place = place_of(name)
        if place is not None and place.area == "aside":
            self.progress.aside += 1
            return []
        rule = RULES.get(place.area, {}).get(place.kind) if place else None
        if place is None or rule is None:
            self.progress.unknown_count += 1
            if len(self.progress.unknown) < MOST_NAMES:
                self.progress.unknown.append(printable(name))
            return []
        unreadable: list[Unreadable] = []
        async for page in read_pages(self._store, name):
            if page.type not in ("none", rule.type):
                return [Unreadable(name, f"it is a {page.type} and no {rule.type}", "key")]
            self.progress.records += len(page.elements)
            unreadable += [record for element in page.elements if (record := self._checked(name, place, rule, element))]
        if place.is_conversation and place.kind == "c" and (reason := await self._gap(place)):
            unreadable = [Unreadable(name, reason, "conversation")]
        return unreadable

    async def _gap(self, place: KeyPlace) -> str:
        """Say why a conversation cannot be used as a whole; empty if it can."""
        answer: bytes = await self._store.call("EVAL", _WHOLE, 1, place.beginning, place.rest)
        return answer.decode()

    def _checked(self, name: bytes, place: KeyPlace, rule: Rule, element: Element) -> Unreadable | None:
        """Return the element as a finding, if it cannot be read."""
        value = element.value
        if rule.is_positional and value in (MOVED, value[:DIGEST_BYTES] + MOVED):
            self.progress.moved_before += 1
            return None
        try:
            rule.check(self._codec, element, place)
        except EncryptionKeyLost as error:
            return Unreadable(name, str(error), "none", element.place, value)
        except UNREADABLE as error:
            reason = error.internal if isinstance(error, RecordUnreadable) else f"{type(error).__name__}: {error}"
            return Unreadable(name, reason, _movement(rule), element.place, value)
        return None


def _movement(rule: Rule) -> Movement:
    match rule.type:
        case "hash":
            return "field"
        case "list":
            return "message" if rule.is_positional else "element"
        case "stream":
            return "entry"
        case _:
            return "key"

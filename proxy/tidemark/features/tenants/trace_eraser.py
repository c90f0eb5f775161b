"""Deletes what ``traces.py`` finds of one tenant."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.core.conversation.prefix import split_id
from tidemark.features.tenants.traces import OwnKeys, Traces, fields_of
from tidemark.store import keys
from tidemark.store.elements import Element
from tidemark.store.encryption.keyring import MARK
from tidemark.store.places import FAMILY, KeyPlace
from tidemark.store.scripts import lua
from tidemark.store.whole_store import WholeStore

_REWRITTEN = frozenset({("flush", "s"), ("flush", "d"), ("requests", "s")})
"""The streams that tenants share."""
MARK_SECONDS = 600
"""How long it is remembered that a conversation was forgotten, as by ``lua/forget.lua``."""
_REWRITE = lua(__file__, "rewrite_stream")


@dataclass(slots=True)
class Deleted:
    """How much was deleted. Mutable: all of it."""

    keys: int = 0
    entries: int = 0
    """Entries of keys that tenants share: lists of all conversations, the flush queue, live events."""
    plain: int = 0
    """Conversations with messages from before the encryption: copies of them can be read."""


class TraceEraser:
    """Deletes the traces of one tenant. Mutable: what was deleted."""

    def __init__(self, store: WholeStore, traces: Traces) -> None:
        self._store = store
        self._traces = traces
        self._own = OwnKeys(store, traces)
        self.deleted = Deleted()

    async def mark(self) -> None:
        """Mark the conversations as forgotten, so that no turn or summary that is under way is stored after this."""
        for conversation in self._traces.conversations:
            family, own = split_id(conversation)
            at = f"{keys.family_prefix(family)}:x:{own}"
            await self._store.call("SET", at, repr(time.time()), "EX", MARK_SECONDS)
        for prefix in (keys.REQUESTS, keys.TRAFFIC):
            at = keys.erased(prefix, self._traces.owner)
            await self._store.call("SET", at, repr(time.time()), "EX", MARK_SECONDS)

    async def erase(self) -> int:
        """Go through the store once, delete what belongs to the tenant, and return how much that was."""
        before = self.deleted.keys + self.deleted.entries
        async for page in self._own.pages():
            for name, place in page:
                if await self._own.owns(name, place):
                    await self._note_plain(name, place)
                    self.deleted.keys += int(await self._store.call("UNLINK", name))
                elif (place.area, place.kind) == ("events", "s"):  # batches of ten minutes, of several tenants
                    self.deleted.entries += int(await self._store.call("XTRIM", name, "MAXLEN", 0))
                else:
                    async for entries in self._own.entries(name, place):
                        self.deleted.entries += await self._erase_entries(name, place, entries)
                    if (place.area, place.kind) in _REWRITTEN:
                        await self._store.call("EVAL", _REWRITE, 1, name)
        return self.deleted.keys + self.deleted.entries - before

    async def _note_plain(self, name: bytes, place: KeyPlace) -> None:
        """Count a conversation whose oldest message is not sealed."""
        if place.area == FAMILY and place.kind == "m":
            oldest: bytes = await self._store.call("LINDEX", name, 0) or MARK
            self.deleted.plain += not oldest.startswith(MARK)

    async def _erase_entries(self, name: bytes, place: KeyPlace, entries: Sequence[Element]) -> int:
        """Delete entries of a key that tenants share, and return how many they were."""
        if not entries:
            return 0
        if place.area == "flush" and place.kind in ("s", "d"):
            return sum([await self._erase_flush(name, entry) for entry in entries])
        if place.area == "requests":
            count = sum(int(fields_of(entry).get(b"c", b"0")) for entry in entries)
            await self._store.call("DECRBY", f"{keys.REQUESTS}:n", count)
            return int(await self._store.call("XDEL", name, *(entry.place for entry in entries)))
        is_ranked = (place.area, place.kind) in (("", "i"), ("", "d"), ("traffic", "n"))
        command = "ZREM" if is_ranked else "HDEL"
        return int(await self._store.call(command, name, *(entry.place for entry in entries)))

    async def _erase_flush(self, name: bytes, entry: Element) -> int:
        """Delete an entry of a flush queue, or of its dead letters, with its bytes in the queue's count."""
        if not await self._store.call("XDEL", name, entry.place):
            return 0
        size = len(fields_of(entry).get(b"body", b""))
        await self._store.call("HINCRBY", name[:-1] + b"n", f"bytes{name[-1:].decode()}", -size)
        return 1

"""Stores conversations of the Conversations API: the adapter of ``KeptConversationStore``.

Each is one hash, found by its id and the credential that made it: its head, the number of the newest item, and its
items by their numbers. All of it expires after its last use, as a conversation's other records do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemark.core.conversation.kept import KeptConversation, KeptHistory, KeptItem
from tidemark.core.errors import RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.core.ports import Redactor
from tidemark.store import keys
from tidemark.store.codec import Codec, unreadable
from tidemark.store.commands import Ask
from tidemark.store.lifetimes import Lifetimes

_HEAD, _TENANT = b"head", b"tenant"
_WRITE = """
local at, head, tenant, ttl = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if ARGV[4] == '0' and redis.call('HEXISTS', at, 'head') == 0 then return 0 end
if head ~= '' then redis.call('HSET', at, 'head', head) end
if tenant ~= '' then redis.call('HSETNX', at, 'tenant', tenant) end
for place = 5, #ARGV do
  redis.call('HSET', at, redis.call('HINCRBY', at, 'newest', 1), ARGV[place])
end
if ttl ~= '0' then redis.call('EXPIRE', at, ttl) else redis.call('PERSIST', at) end
return 1
"""
"""Writes to a conversation that is there, or to a new one. An empty head or tenant stays as it is."""
_WEIGH = """
local size = redis.pcall('MEMORY', 'USAGE', KEYS[1], 'SAMPLES', 0)
return type(size) == 'number' and size or -redis.call('EXISTS', KEYS[1])
"""
"""The bytes of memory of a conversation; 0 if it is gone, -1 if the server does not report them."""


@frozen
class RedisKeptConversations:
    """Conversations in Redis. All state is the server's.

    A method raises ``StoreUnavailable`` when the store did not answer in time.

    :param note_size: takes an owner and how many bytes were stored
    """

    ask: Ask
    codec: Codec
    lifetimes: Lifetimes
    clock: Callable[[], float] = time.time
    note_size: Callable[[str, int], None] = lambda *_: None
    redactor: Redactor | None = None

    async def create(self, owner: str, conversation: KeptConversation, items: Sequence[KeptItem]) -> None:
        await self.codec.prepare(owner)
        head = await self._packed_head(owner, conversation)
        await self._write(owner, conversation, items, head=head, is_new=True)
        index, longest = keys.kept_index(owner), self.lifetimes.longest
        await self.ask("SADD", index, conversation.id)
        await (self.ask("EXPIRE", index, longest) if longest else self.ask("PERSIST", index))

    async def find(self, owner: str, identifier: str) -> KeptHistory | None:
        at = keys.kept_conversation(owner, identifier)
        fields = await self.ask("HGETALL", at)
        if _HEAD not in fields:
            return None
        try:
            head = self.codec.unpack_json(fields[_HEAD], at, _HEAD)
        except RecordUnreadable:
            return None
        conversation = KeptConversation(
            identifier, head["created_at"], head["metadata"].encode(), fields.get(_TENANT, b"").decode()
        )
        items: list[KeptItem] = []
        for number in sorted(int(name) for name in fields if name.isdigit()):
            try:
                items.append(_item(self.codec, fields[b"%d" % number], at))
            except RecordUnreadable:
                continue
        if not await self._write(owner, conversation, ()):  # it has expired meanwhile
            return None
        return KeptHistory(conversation, items)

    async def add(
        self, owner: str, conversation: KeptConversation, items: Sequence[KeptItem], tenant: str = ""
    ) -> bool:
        return await self._write(owner, conversation, items, tenant=tenant)

    async def change(self, owner: str, conversation: KeptConversation, metadata: bytes) -> KeptConversation | None:
        """Replace the metadata; None if the conversation is gone."""
        changed = replace(conversation, metadata=metadata)
        return changed if await self._write(owner, changed, (), head=await self._packed_head(owner, changed)) else None

    async def remove(self, owner: str, conversation: KeptConversation, item: str) -> bool:
        """Delete the items with an id, and return whether there was one."""
        at, numbers = keys.kept_conversation(owner, conversation.id), []
        for name, packed in (await self.ask("HGETALL", at)).items():
            if name.isdigit() and _has_id(self.codec, packed, at, item):
                numbers.append(name)
        return bool(numbers) and bool(await self.ask("HDEL", at, *numbers))

    async def weigh(self, owner: str) -> int:
        """Return the bytes of memory of all that an owner has here; those that are gone leave the owner's list."""
        total, index = 0, keys.kept_index(owner)
        for name in await self.ask("SMEMBERS", index):
            size = await self.ask("EVAL", _WEIGH, 1, keys.kept_conversation(owner, name.decode()))
            total += max(size, 0)
            if size == 0:
                await self.ask("SREM", index, name)
        return total

    async def forget(self, owner: str, identifier: str) -> bool:
        """Delete a conversation, and return whether it was there."""
        await self.ask("SREM", keys.kept_index(owner), identifier)
        return bool(await self.ask("DEL", keys.kept_conversation(owner, identifier)))

    async def _write(
        self,
        owner: str,
        conversation: KeptConversation,
        items: Sequence[KeptItem],
        *,
        head: bytes = b"",
        tenant: str = "",
        is_new: bool = False,
    ) -> bool:
        await self.codec.prepare(owner)
        if self.redactor is not None:
            raws = await self.redactor.raws([item.raw for item in items])
            items = [replace(item, raw=raw) for item, raw in zip(items, raws, strict=True)]
        at, pack = keys.kept_conversation(owner, conversation.id), self.codec.pack_json
        packed = [pack([item.id, item.raw.decode("utf-8", "surrogatepass")], owner, at, "item") for item in items]
        arguments = (head, tenant, self._seconds(owner, conversation), int(is_new), *packed)
        is_written = bool(await self.ask("EVAL", _WRITE, 1, at, *arguments))
        if is_written and packed:
            self.note_size(owner, sum(map(len, packed)))
        return is_written

    async def _packed_head(self, owner: str, conversation: KeptConversation) -> bytes:
        raw = conversation.metadata
        if self.redactor is not None:
            (raw,) = await self.redactor.raws([raw])
        metadata = raw.decode("utf-8", "surrogatepass")
        at = keys.kept_conversation(owner, conversation.id)
        return self.codec.pack_json({"created_at": conversation.created_at, "metadata": metadata}, owner, at, _HEAD)

    def _seconds(self, owner: str, conversation: KeptConversation) -> int:
        """Return how long a conversation lives on after this use; 0 for no limit."""
        lifetime = self.lifetimes.of(owner)
        bounds = [lifetime.idle] if lifetime.idle else []
        if lifetime.age:
            bounds.append(max(1, int(conversation.created_at + lifetime.age - self.clock())))
        return min(bounds, default=0)


def read_kept(codec: Codec, field: bytes, packed: bytes, at: str) -> Mapping[str, Any] | KeptItem | None:
    """Return the head of a conversation, an item, or None for any other field; raises ``RecordUnreadable``."""
    if field == _HEAD:
        head: Mapping[str, Any] = codec.unpack_json(packed, at, _HEAD)
        return head
    return _item(codec, packed, at) if field.isdigit() else None


def _item(codec: Codec, packed: bytes, at: str) -> KeptItem:
    entry = codec.unpack_json(packed, at, "item")
    if not (isinstance(entry, list) and len(entry) == 2 and all(isinstance(text, str) for text in entry)):
        raise unreadable("it is no item")
    return KeptItem(entry[0], entry[1].encode("utf-8", "surrogatepass"))


def _has_id(codec: Codec, packed: bytes, at: str, identifier: str) -> bool:
    try:
        return _item(codec, packed, at).id == identifier
    except RecordUnreadable:
        return False

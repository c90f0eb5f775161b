"""Stores responses that clients ask for again by their ids: the adapter of ``ResponseStore``.

The script of a turn stores its response too (``turn_writer.py``, ``lua/answered.lua``). On a cluster a
script of its own follows. A response is in its conversation's slot, so that deleting the conversation deletes it. It
holds no message: its output is the conversation's. Long members, such as the tools that every response repeats, are
stored once for each conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace

import msgspec

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.prefix import FAMILY_CHARACTERS, OWN_CHARACTERS, split_id
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.responses import OutputItem, ResponseRecord
from tidemark.core.errors import RecordUnreadable, StoreError
from tidemark.core.frozen import frozen
from tidemark.store import keys, scripts
from tidemark.store.codec import VERSION, Codec, unreadable
from tidemark.store.commands import CommandSender
from tidemark.store.owners import RedisOwners
from tidemark.store.scripts import Argument

LONG_BYTES = 256
"""Longer members of a response are stored apart, once for each conversation."""
MAX_ITEMS = 256
"""Items of one response that can be referred to."""
OWNED_SECONDS = 30 * 86_400
"""The least time for which it is known whose a response is: OpenAI keeps responses so long."""
STORED_MEMBERS = 10_000
"""Digests of long members that the store has. What is removed here is only sent again."""
_ID_CHARACTERS = FAMILY_CHARACTERS + OWN_CHARACTERS
_MARK = b"#"
"""Before the digest of a long member, so that it is no response's id."""
_MISSING = b"-"
"""The script's answer if a long member that was not sent is not stored."""


class _Response(msgspec.Struct, array_like=True, frozen=True):
    message_count: int
    model: str
    created_at: float
    tenant: str
    tip: bytes
    systems: list[tuple[int, bytes]]
    earlier_count: int
    earlier_systems: int
    head: list[tuple[str, bytes, bytes]]
    """Name, raw member, and in its place the digest of a long one."""
    items: list[tuple[str, str]]
    upstream_has: str
    background: bool


@frozen
class ResponseWrite:
    """What stores a response together with its turn (``answered.lua``)."""

    names: Sequence[str]
    """The keys that lead to the response, and those that say whose it is."""
    arguments: Sequence[Argument]
    new: Sequence[bytes]
    """The digests of the long members among the arguments."""
    size: int
    """Bytes of the arguments."""


_pack = msgspec.msgpack.Encoder().encode
_DECODER = msgspec.msgpack.Decoder(_Response)


class RedisResponses:
    """Responses in Redis. Its state is the digests of long members that the store has, and whether it is a cluster."""

    def __init__(self, sender: CommandSender, codec: Codec, keep_seconds: int, owners: RedisOwners) -> None:
        """Send nothing yet.

        :param keep_seconds: how long an id leads to its response after its last use; 0 for no limit
        """
        self._sender = sender
        self._codec = codec
        self._keep_seconds = keep_seconds
        self._owned_seconds = max(keep_seconds, OWNED_SECONDS) if keep_seconds else 0
        self._owners = owners
        self._slots_apart = sender.is_cluster
        """Whether a script cannot also write what leads to a response. Some servers turn out to be clusters."""
        self._stored: BoundedCache[tuple[str, bytes], bool] = BoundedCache(STORED_MEMBERS)

    async def keep(self, owner: str, response: ResponseRecord) -> int:
        """Store a response, and what leads to it from its id and those of its items.

        :returns: how many bytes were sent; 0 if the conversation is gone
        :raises StoreUnavailable: the store did not answer in time
        """
        conversation, write = response.conversation, self._packed(owner, response, response.conversation)
        try:
            answer = await self._write(conversation, write)
            if answer == _MISSING:
                write = self._packed(owner, response, conversation, is_whole=True)
                answer = await self._write(conversation, write)
        except StoreError as error:
            if self._slots_apart or not self.note_slots(error):
                raise
            return await self.keep(owner, response)  # nothing was written
        if answer is None:
            return 0
        self.note_stored(conversation, write)
        if self._slots_apart:
            target = conversation + response.id
            await asyncio.gather(
                *[self._lead(keys.response(owner, name), target, self._keep_seconds) for name in _names(response)],
                self.claim(owner, response),
            )
        return write.size

    async def claim(self, owner: str, response: ResponseRecord) -> None:
        """Store only whose a response and its items are, if tenants share the account that has them.

        :raises StoreUnavailable: the store did not answer in time
        """
        await asyncio.gather(*[self._lead(name, owner, self._owned_seconds) for name in _owned(response)])

    async def note_owner(self, owner: str, response: ResponseRecord) -> None:
        """Note that a credential has a response in an account that it may share with others."""
        if response.account:
            await self._owners.note(response.account, [response.id], owner)

    def write_of(self, owner: str, turn: TurnRecord) -> ResponseWrite | None:
        """Return what stores a turn's response together with it; None without one, or if slots do not allow it."""
        response = turn.response
        return None if response is None or self._slots_apart else self._packed(owner, response, turn.conversation)

    def note_stored(self, conversation: str, write: ResponseWrite) -> None:
        """Note which long members the store has now."""
        for digest in write.new:
            self._stored.put((conversation, digest), value=True)

    def note_slots(self, error: StoreError) -> bool:
        """Note that the store is a cluster, if an error says so, and return whether it does."""
        self._slots_apart = self._slots_apart or "CROSSSLOT" in error.internal
        return "CROSSSLOT" in error.internal

    async def find(self, owner: str, identifier: str) -> ResponseRecord | None:
        at = keys.response(owner, identifier)
        target = await self._sender.ask("GET", at)
        if target is None:
            return None
        conversation, response_id = target[:_ID_CHARACTERS].decode(), target[_ID_CHARACTERS:].decode()
        reading = self._sender.ask("HGET", keys.response_hash(conversation), response_id)
        packed, _ = await asyncio.gather(reading, self._renew(at))
        if packed is None:
            return None
        try:
            return _record(response_id, conversation, self._read(packed, conversation, response_id))
        except RecordUnreadable:
            return None

    async def with_head(self, response: ResponseRecord) -> ResponseRecord:
        """Return the response with its long members; one that cannot be read is null.

        :raises StoreUnavailable: the store did not answer in time
        """
        at = keys.response_hash(response.conversation)
        packed = await self._sender.ask("HGET", at, response.id)
        if packed is None:
            return response
        head = self._read(packed, response.conversation, response.id).head
        digests, family = [digest for _, _, digest in head if digest], split_id(response.conversation)[0]
        sealed = await self._sender.ask("HMGET", at, *[_MARK + digest for digest in digests]) if digests else ()
        long = {
            digest: self._opened(member, family, _MARK + digest) for digest, member in zip(digests, sealed, strict=True)
        }
        return replace(response, head={name: long[digest] if digest else raw for name, raw, digest in head})

    async def system_messages(self, response: ResponseRecord) -> Mapping[bytes, bytes]:
        digests = list(dict.fromkeys(digest for _, digest in response.systems))
        if not digests:
            return {}
        sealed = await self._sender.ask("HMGET", keys.system_hash(response.conversation), *digests)
        messages: dict[bytes, bytes] = {}
        for digest, message in zip(digests, sealed, strict=True):
            if message is not None:
                with contextlib.suppress(RecordUnreadable):
                    messages[digest] = self._codec.open(message, "y", split_id(response.conversation)[0], digest)
        return messages

    async def forget(self, owner: str, response: ResponseRecord) -> None:
        """Delete a response; its conversation stays.

        :raises StoreUnavailable: the store did not answer in time
        """
        names = [keys.response(owner, name) for name in _names(response)]
        await asyncio.gather(
            self._sender.ask("HDEL", keys.response_hash(response.conversation), response.id),
            *[self._sender.ask("DEL", name) for name in names],
        )

    def _packed(
        self, owner: str, response: ResponseRecord, conversation: str, *, is_whole: bool = False
    ) -> ResponseWrite:
        """Pack a response.

        :param is_whole: whether all long members are sent, those too that the store should have
        """
        head, long = _split(response.head)
        family = split_id(conversation)[0]
        packed = self._codec.seal(VERSION + _pack(_packable(response, head)), owner, "o", family, response.id)
        new = [digest for digest in long if is_whole or (conversation, digest) not in self._stored]
        arguments: list[Argument] = [response.id, packed, self._keep_seconds, len(new), owner, self._owned_seconds]
        size = len(packed)
        for digest in new:
            sealed = self._codec.seal(long[digest], owner, "o", family, _MARK + digest)
            arguments += (_MARK + digest, sealed)
            size += len(sealed)
        arguments += [_MARK + digest for digest in long if digest not in new]
        names: list[str] = []
        if not self._slots_apart:
            names = [*[keys.response(owner, name) for name in _names(response)], *_owned(response)]
        return ResponseWrite(names, arguments, new, size)

    async def _write(self, conversation: str, write: ResponseWrite) -> bytes | None:
        family, own = split_id(conversation)
        names = (keys.family_prefix(family), *write.names)
        with self._sender.node(family).recording:
            answer: bytes | None = await self._sender.run_with_keys(scripts.KEEP_RESPONSE, names, own, *write.arguments)
        return answer

    def _lead(self, name: str, target: str, seconds: int) -> Awaitable[object]:
        lasting = ("EX", seconds) if seconds else ()
        return self._sender.ask("SET", name, target, *lasting)

    def _renew(self, at: str) -> Awaitable[object]:
        seconds = self._keep_seconds
        return self._sender.ask("EXPIRE", at, seconds) if seconds else self._sender.ask("PERSIST", at)

    def _read(self, packed: bytes, conversation: str, response_id: str) -> _Response:
        return _decode(self._codec, packed, split_id(conversation)[0], response_id)

    def _opened(self, member: bytes | None, family: str, field: bytes) -> bytes:
        try:
            return b"null" if member is None else self._codec.open(member, "o", family, field)
        except RecordUnreadable:
            return b"null"


def read_response(codec: Codec, field: bytes, packed: bytes, family: str) -> ResponseRecord | bytes:
    """Return a field of a conversation's responses: a response without its long members, or one of those.

    :param field: a response's id, or the mark and the digest of a long member
    :raises RecordUnreadable: it cannot be read
    """
    if field.startswith(_MARK):
        return codec.open(packed, "o", family, field)
    return _record(field.decode(errors="replace"), "", _decode(codec, packed, family, field))


def _decode(codec: Codec, packed: bytes, family: str, response_id: str | bytes) -> _Response:
    plain = codec.open(packed, "o", family, response_id)
    if plain[:1] != VERSION:
        raise unreadable(f"record version {plain[:1].hex()}, this program reads {VERSION.hex()}")
    try:
        return _DECODER.decode(memoryview(plain)[1:])
    except msgspec.MsgspecError as error:
        raise unreadable(str(error)) from error


def _names(response: ResponseRecord) -> list[str]:
    """Return the ids that lead to a response: its own, and those of its items."""
    return [response.id, *(item.id for item in response.items[:MAX_ITEMS] if item.id)]


def _owned(response: ResponseRecord) -> list[str]:
    """Return the keys that say whose a response and its items are; none if the upstream knows its client's key."""
    account = response.account
    return [keys.owned(account, name) for name in _names(response)] if account else []


def _split(head: Mapping[str, bytes]) -> tuple[list[tuple[str, bytes, bytes]], dict[bytes, bytes]]:
    """Return the members as they are packed, and the long ones by their digests."""
    packed: list[tuple[str, bytes, bytes]] = []
    long: dict[bytes, bytes] = {}
    for name, raw in head.items():
        if len(raw) <= LONG_BYTES:
            packed.append((name, raw, b""))
            continue
        digest = digest_of(raw)
        long[digest] = raw
        packed.append((name, b"", digest))
    return packed, long


def _packable(response: ResponseRecord, head: list[tuple[str, bytes, bytes]]) -> _Response:
    return _Response(
        response.message_count,
        response.model,
        response.created_at,
        response.tenant,
        response.tip,
        list(response.systems),
        response.earlier_count,
        response.earlier_systems,
        head,
        [(item.type, item.id) for item in response.items[:MAX_ITEMS]],
        response.upstream_has,
        response.background,
    )


def _record(response_id: str, conversation: str, stored: _Response) -> ResponseRecord:
    return ResponseRecord(
        id=response_id,
        message_count=stored.message_count,
        model=stored.model,
        created_at=stored.created_at,
        tenant=stored.tenant,
        tip=stored.tip,
        conversation=conversation,
        systems=stored.systems,
        earlier_count=stored.earlier_count,
        earlier_systems=stored.earlier_systems,
        head={name: raw for name, raw, _ in stored.head},
        items=[OutputItem(kind, name) for kind, name in stored.items],
        upstream_has=stored.upstream_has,
        background=stored.background,
    )

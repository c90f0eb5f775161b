"""Writes finished turns: their messages, their system messages and their responses.

``RedisStore.record`` comes here when a response has ended. ``turn_parts.py`` splits the turn, ``scripts.py`` packs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.keeping import without_texts
from tidemark.core.conversation.prefix import OWN_CHARACTERS
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.errors import StoreError, StoreFull, StoreUnavailable
from tidemark.core.events import Listener, RecordBroken
from tidemark.core.ports import Redactor
from tidemark.offload.threads import MANY_BYTES, MANY_MESSAGES, offload
from tidemark.store import keys, scripts
from tidemark.store.codec import Codec
from tidemark.store.commands import CommandSender
from tidemark.store.lifetimes import Lifetimes
from tidemark.store.listing import Listing, Used
from tidemark.store.responses import RedisResponses, ResponseWrite
from tidemark.store.turn_parts import TurnParts, part_turn, redacted_parts
from tidemark.store.usage import FULL, OUT_OF_MEMORY, STORE_FULL, OwnerUsage

STORED_SYSTEMS = 20_000
"""Digests of system messages that the store has; about 4 MB. What is removed here is only sent again. An agent with a
clock in its system prompt adds one for each turn."""

MENDED = "its number of messages or its hashes were damaged; this turn mended it"


class TurnWriter:
    """Writes turns. Its state is the digests of system messages that the store has."""

    def __init__(
        self,
        sender: CommandSender,
        codec: Codec,
        *,
        lifetimes: Lifetimes,
        responses: RedisResponses,
        listing: Listing,
        usage: OwnerUsage,
        emit: Listener,
        redactor: Redactor | None = None,
    ) -> None:
        self._sender = sender
        self._codec = codec
        self._lifetimes = lifetimes
        self._responses = responses
        self._listing = listing
        self._usage = usage
        self._emit = emit
        self._redactor = redactor
        self._stored_systems: BoundedCache[tuple[str, bytes], bool] = BoundedCache(STORED_SYSTEMS)

    def record(self, turn: TurnRecord) -> Coroutine[Any, Any, str]:
        """Store what is to be stored of a turn, as ``_write`` does."""
        return self._write(turn) if turn.keep == "all" else self._write_less(turn)

    async def _write_less(self, turn: TurnRecord) -> str:
        """Store no text of a turn.

        Who made a response in an account that tenants share is noted in any case, without content (promise 8).
        """
        if turn.response is not None:
            await self._responses.claim(turn.owner or turn.tenant, turn.response)
        return turn.conversation if turn.keep == "none" else await self._write(without_texts(turn))

    async def _write(self, turn: TurnRecord) -> str:
        """Append what a turn adds, in one atomic write; writing it twice changes nothing.

        :returns: the id of the conversation that holds the turn now
        :raises StoreFull: nothing more is stored for this credential, or for any
        :raises RedactionFailed: it cannot be redacted, so nothing is stored
        :raises StoreUnavailable: the store did not answer in time
        """
        owner = turn.owner or turn.tenant
        if owner in self._usage.full:
            await self._refuse(owner, turn)
        parts = await self._parts(turn, turn.stored_count)
        if turn.response is not None and self._redactor is not None:
            head = turn.response.head
            members = dict(zip(head, await self._redactor.raws([*head.values()]), strict=True))
            turn = turn.with_response(replace(turn.response, head=members))
        created = scripts.moment(turn.created_at)
        write = self._responses.write_of(owner, turn)
        try:
            # No other request has a turn of stored history, so its write is tried during an outage too.
            with self._sender.node(turn.chain.family).writing(parts.size, probe=bool(turn.lease_name)):
                own, write = await self._record_beside(turn, parts, created, write)
                if own is None:  # earlier messages are gone by now, or a fork needs system messages
                    for system in parts.systems:
                        self._stored_systems.pop((turn.conversation, system.digest), None)
                    skip = turn.left_out_count
                    parts = await self._parts(turn, skip)
                    own = await self._record(turn, parts, skip, created)
                if own is None:
                    raise StoreError("The turn has no place in the store.", internal=f"of {turn.conversation}")
        except StoreUnavailable as error:
            if OUT_OF_MEMORY in error.internal:
                raise StoreFull(STORE_FULL, internal=error.internal) from error
            if write is None or not self._responses.note_slots(error):
                raise
            return await self._write(turn)  # nothing was written
        used = self._used(turn, owner, own, created)
        conversation = used.conversation
        for system in parts.systems:
            self._stored_systems.put((conversation, system.digest), value=True)
        size = parts.size
        try:
            await self._listing.add(used)
            size += await self._keep_response(owner, turn, conversation, own, write)
        finally:
            self._usage.note(owner, size, accepted=not turn.imported)
        return conversation

    async def _parts(self, turn: TurnRecord, skip: int) -> TurnParts:
        """Split a turn into what is stored of it.

        :raises RedactionFailed: nothing of it may be stored
        """
        many = len(turn.messages) > MANY_MESSAGES
        parts = await offload(partial(part_turn, turn, skip)) if many else part_turn(turn, skip)
        if self._redactor is None or turn.keep != "all":
            return parts
        return await redacted_parts(parts, self._redactor)

    async def _refuse(self, owner: str, turn: TurnRecord) -> NoReturn:
        """Store nothing for a credential that has too much."""
        if turn.response is not None:  # its upstream has it all the same
            await self._responses.claim(owner, turn.response)
        raise StoreFull(FULL)

    def _used(self, turn: TurnRecord, owner: str, own: bytes, created: str) -> Used:
        """Return the use of a conversation that the script recorded.

        :param own: what the script returned; a ``+`` stands for a new conversation, a ``~`` for a mended record
        """
        conversation = turn.chain.family + own[:OWN_CHARACTERS].decode()
        seconds, is_new = self._lifetimes.of(turn.tenant, turn.model).idle, b"+" in own[OWN_CHARACTERS:]
        if b"~" in own[OWN_CHARACTERS:]:
            self._emit(RecordBroken(conversation, "conversation", MENDED))
        return Used(owner, conversation, turn.name, created, seconds, is_new)

    async def _keep_response(
        self, owner: str, turn: TurnRecord, conversation: str, own: bytes, write: ResponseWrite | None
    ) -> int:
        """Store a turn's response, unless the turn's own script has done so; return its bytes.

        :param own: what that script returned; a ``-`` ends it if a member of the response was missing
        """
        if turn.response is None:
            return 0
        await self._responses.note_owner(owner, turn.response)
        if write is None or b"-" in own[OWN_CHARACTERS:]:
            return await self._responses.keep(owner, replace(turn.response, conversation=conversation))
        self._responses.note_stored(conversation, write)
        return write.size

    async def _record_beside(
        self, turn: TurnRecord, parts: TurnParts, created: str, write: ResponseWrite | None
    ) -> tuple[bytes | None, ResponseWrite | None]:
        """Record a turn with its response; return its conversation's own id, and ``write`` if that was stored."""
        if write is not None and parts.size <= MANY_BYTES and len(parts.new) <= MANY_MESSAGES:
            own = await self._record(turn, parts, turn.stored_count, created, write)
            return own, write if own is not None else None
        return await self._record(turn, parts, turn.stored_count, created), None

    def _record(
        self, turn: TurnRecord, parts: TurnParts, skip: int, created: str, write: ResponseWrite | None = None
    ) -> Awaitable[bytes | None]:
        if parts.size > MANY_BYTES or len(parts.new) > MANY_MESSAGES:
            return self._record_large(turn, parts, skip, created)
        arguments = scripts.record_arguments(
            turn,
            parts,
            created,
            codec=self._codec,
            skip=skip,
            lifetime=self._lifetimes.of(turn.tenant, turn.model),
            stored_systems=self._stored_systems,
            answered=write.arguments if write else (),
        )
        if write is None:
            return self._sender.run(scripts.RECORD, turn.chain.family, *arguments)
        names = (keys.family_prefix(turn.chain.family), *write.names)
        return self._sender.run_with_keys(scripts.RECORD, names, *arguments)

    async def _record_large(self, turn: TurnRecord, parts: TurnParts, skip: int, created: str) -> bytes | None:
        """Record a turn that takes long to pack, in a thread."""
        pack = partial(
            scripts.record_arguments,
            codec=self._codec,
            skip=skip,
            lifetime=self._lifetimes.of(turn.tenant, turn.model),
            stored_systems=self._stored_systems,
        )
        arguments = await asyncio.to_thread(pack, turn, parts, created)
        own: bytes | None = await self._sender.run_large(scripts.RECORD, turn.chain.family, *arguments)
        return own

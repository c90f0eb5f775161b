"""Export and import conversations as lines of JSON: each line is one message in OpenAI's format.

``features/conversations/feature.py`` calls this. An import is stored as one turn that has ended.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidemark.compaction.leases import LEASE_SECONDS, keep_lease
from tidemark.core.conversation.prefix import PrefixChain, chain_of, conversation_id, owner_of
from tidemark.core.conversation.records import MessageRecord, TurnRecord
from tidemark.core.conversation.request import Dialect, ModelRequest
from tidemark.core.errors import ConversationConflict, ConversationNotFound, StoreError
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, Clock, Lease, LeaseStore, TokenCounter, Upstream
from tidemark.dialects.message_formats import MessageFormats
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.pages import ImportedConversation
from tidemark.pipeline.history_reader import offloaded, under_way
from tidemark.pipeline.identify import tenant_of
from tidemark.store.conversations import RedisStore
from tidemark.store.request_heads import RedisRequestHeads
from tidemark.store.usage import OwnerUsage

EXPORT_PAGE = 500
"""Messages that an export reads at a time."""


@frozen(kw_only=True)
class Transfer:
    """Exports and imports conversations; holds no state of its own."""

    access: ArchiveAccess
    store: RedisStore
    heads: RedisRequestHeads
    upstream: Upstream
    leases: LeaseStore
    counter: TokenCounter
    dialect: Dialect
    formats: MessageFormats
    clock: Clock
    quota: OwnerUsage

    async def export_lines(self, conversation: str, caller: Caller | None) -> AsyncIterator[bytes]:
        """Return a conversation as lines of JSON: the last request's system messages, then all messages.

        A message of chat completions has the bytes in which it was sent, one of another dialect is written as such a
        message. One that cannot be read becomes a line with its position.

        :raises ConversationNotFound: there is none, or messages have expired; if they expire later, it breaks off
        """
        record = await self.access.record(conversation, caller)
        heads = await self.heads.leading_system_messages(record.id)

        async def page(start: int) -> bytes:
            stop = min(start + EXPORT_PAGE - 1, record.message_count)
            messages = await self.store.messages(record.id, start=start, stop=stop)
            if len(messages) != stop - start + 1:  # an incomplete export must not look complete
                raise ConversationNotFound(f"Messages of the conversation {record.id!r} have expired.")

            def lines() -> bytes:
                raws = [_gap(message) if message.unreadable else self._exported(message.raw) for message in messages]
                return b"".join(map(_line, raws))

            return await offloaded(lines, [message.raw for message in messages])

        first = await page(1)

        async def lines() -> AsyncIterator[bytes]:
            yield b"".join(_line(self._exported(head)) for head in heads) + first
            for start in range(1 + EXPORT_PAGE, record.message_count + 1, EXPORT_PAGE):
                yield await page(start)

        return lines()

    async def import_lines(
        self, data: bytes, caller: Caller, model: str, name: str | None, *, trusted: bool = False
    ) -> ImportedConversation:
        """Store a conversation that began elsewhere.

        :param model: the model of the conversation, which decides the upstream and so the tenant
        :param name: the client's name of it
        :param trusted: whether the operator asks
        :raises StoreFull: the store, or what one credential may store in it, is full
        :raises ImportLimit: no upstream has accepted the credential, and what it may import is used up
        :raises BadImport: the lines are no conversation, or a tool call and its result are separated
        :raises ConversationConflict: a conversation of that name exists, or a turn in progress may create it
        """
        route = await self.upstream.resolve(model)
        tenant = tenant_of(caller, route)
        owner = owner_of(caller.fingerprint)
        # Both come before the work, so that an import under a name that exists does not cost it.
        async with self._admitted(owner, len(data), trusted=trusted), self._turn(tenant, name) as lease:

            def read() -> tuple[ModelRequest, PrefixChain]:
                messages = self.dialect.parse_lines(data)
                return self.dialect.request_of(model, messages), chain_of(tenant, messages, conversation=name)

            request, chain = await offloaded(read, [data])
            count = await self.counter.count(request, route.upstream_model)
            turn = TurnRecord(
                tenant=tenant,
                conversation=conversation_id(chain, 0),
                chain=chain,
                stored_count=0,
                messages=request.messages,
                tokens=count.messages,
                complete=True,
                model=model,
                action="none",
                tokens_before=count.total,
                tokens_after=count.total,
                summarized=0,
                created_at=self.clock(),
                scheme=count.scheme,
                owner=owner,
                name=name or "",
                lease_name=lease.name if lease else "",
                lease_value=lease.value if lease else b"",
                imported=True,
            )
            conversation = await self.store.record(turn)
        return ImportedConversation(conversation, await self.store.conversation(conversation))

    def _exported(self, raw: bytes) -> bytes:
        """Return a message's own bytes, or those of the export's dialect if it came in another one."""
        return raw if self.formats.is_native(raw, self.dialect) else self.dialect.write(*self.formats.read([raw]))

    @asynccontextmanager
    async def _admitted(self, owner: str, size: int, *, trusted: bool) -> AsyncIterator[None]:
        """Count an import against the quota, and uncount it if it fails."""
        now = self.clock()
        is_counted = await self.quota.admit(owner, size, now, trusted=trusted)
        try:
            yield
        except BaseException:  # cancelled, too: nothing was stored, so nothing counts
            if is_counted:
                with contextlib.suppress(StoreError):
                    await self.quota.withdraw(owner, size, now)
            raise

    @asynccontextmanager
    async def _turn(self, tenant: str, name: str | None) -> AsyncIterator[Lease | None]:
        """Take the turn of the conversation of that name while the import runs; None if it gets no name."""
        if name is None:
            yield None
            return
        family = chain_of(tenant, (), conversation=name).family
        started = await self.store.turns.start_turn(family, "", tenant, LEASE_SECONDS)
        if started is not None and started.record is None:
            if started.lease is None:
                raise under_way()
            async with keep_lease(self.leases, started.lease, LEASE_SECONDS):
                yield started.lease
            return
        if started is not None and started.lease is not None:
            await self.leases.release(started.lease)
        raise ConversationConflict(
            f"There is a conversation {name[:80]!r} already. Import under another name, or forget that one."
        )


def _gap(message: MessageRecord) -> bytes:
    """Return the line of a message that cannot be read; no import takes it for a message."""
    return json.dumps({"unreadable": {"position": message.position, "id": message.message_id}}).encode()


def _line(raw: bytes) -> bytes:
    """Return a message as one line: within JSON a line end is white space, since no string can contain one."""
    return raw.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"

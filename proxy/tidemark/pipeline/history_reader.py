"""Stored conversations, read back: their messages and the chain that they form.

Stored history, and the features of conversations and summaries go on from what is stored, not from what a client sent.
They read it here. A long history is parsed in a thread, without the parser's cache, which is for what clients send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from tidemark.core.conversation.gaps import places_without_gaps
from tidemark.core.conversation.messages import NO_CONTENT, Message
from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.conversation.records import REDACTED, ConversationRecord, MessageRecord
from tidemark.core.conversation.request import Dialect, ModelRequest
from tidemark.core.errors import ConversationConflict, ConversationNotFound, RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.core.ports import ConversationStore
from tidemark.dialects.message_formats import MessageFormats

T = TypeVar("T")
_NO_CONTENT = NO_CONTENT.encode()
MAX_POSITIONS = 20
"""Positions that an error names."""
LARGE_BYTES = 40_000
"""More bytes of messages are parsed in a thread: they take some milliseconds."""


def missing(conversation: str) -> ConversationNotFound:
    """Whether there is one of somebody else's cannot be told (promise 8)."""
    return ConversationNotFound(
        f"There is no conversation {conversation[:80]!r} of this credential, or its model is not served."
    )


def under_way() -> ConversationConflict:
    """Somebody else holds the turn, for as long as an answer takes."""
    error = ConversationConflict(
        "Another request of this conversation is being answered. Send this one again when that is done."
    )
    error.retry_after = 1.0
    return error


@frozen
class SendableHistory:
    """The readable messages of a stored conversation, oldest first."""

    raws: Sequence[bytes]
    """As a client would send them."""
    messages: Sequence[Message] | None
    """As they are stored; None if ``raws`` mean the same.

    They do if all came in the dialect that asks, and have a content.
    """
    hashes: Sequence[bytes]
    """The chain hash at each message."""


@frozen
class HistoryReader:
    """Reads stored conversations; it holds no state."""

    store: ConversationStore
    formats: MessageFormats

    async def messages(self, record: ConversationRecord, *, gaps: bool = False) -> Sequence[MessageRecord]:
        """Return all messages of a conversation, oldest first.

        :param gaps: whether to include messages that cannot be read, which have a position and no bytes
        :raises ConversationNotFound: some have expired
        :raises RecordUnreadable: some cannot be read
        """
        messages = await self.store.messages(record.id, stop=record.message_count)
        if [message.position for message in messages] != list(range(1, record.message_count + 1)):
            raise ConversationNotFound(f"Messages of the conversation {record.id!r} have expired.")
        broken = [message for message in messages if message.unreadable]
        if broken and not gaps:
            positions = ", ".join(str(message.position) for message in broken[:MAX_POSITIONS])
            raise RecordUnreadable(
                f"Messages of the conversation {record.id!r} cannot be read (at {positions}): they are broken, or a "
                "newer version of Tidemark wrote them. The others can be shown and exported.",
                internal=broken[0].unreadable,
            )
        return messages

    async def sendable(self, record: ConversationRecord, dialect: Dialect) -> SendableHistory:
        """Return all readable messages of a conversation, oldest first, as a client would send them.

        What is stored stays as it is. A call or a result whose counterpart cannot be read is left out as well.

        :raises ConversationNotFound: some have expired
        """
        messages = await self.messages(record, gaps=True)
        sendable = await sendable_places(messages, dialect, self.formats)
        raws, hashes = (
            [raw for _, raw in sendable],
            [bytes.fromhex(messages[place].message_id) for place, _ in sendable],
        )
        stored = [messages[place].raw for place, _ in sendable]

        def read() -> Sequence[Message] | None:
            is_same = not any(message.scheme == REDACTED for message in messages) and not any(
                _NO_CONTENT in raw and _NO_CONTENT not in own for own, raw in zip(stored, raws, strict=True)
            )
            if is_same and all(self.formats.is_native(raw, dialect) for raw in stored):
                return None
            return self.formats.read(stored)

        return SendableHistory(raws, await offloaded(read, stored), hashes)

    async def request(
        self, dialect: Dialect, model: str, heads: Sequence[bytes], messages: Sequence[MessageRecord]
    ) -> ModelRequest:
        """Build the request that a client of a dialect would send for stored messages.

        :param heads: the system messages before them
        :raises InvalidRequest: one is of no dialect
        """
        raws = [*heads, *(message.raw for message in messages)]

        def build() -> ModelRequest:
            sendable = [raw for raw in self.formats.sendable(raws, dialect) if raw]
            return dialect.request_of(model, dialect.parse_messages(sendable))

        return await offloaded(build, raws)


async def sendable_places(
    messages: Sequence[MessageRecord], dialect: Dialect, formats: MessageFormats
) -> Sequence[tuple[int, bytes]]:
    """Return the readable ones of stored messages as a client would send them, each with its place among them."""
    raws = [message.raw for message in messages]

    def read() -> list[tuple[int, bytes]]:
        places: Sequence[int] = range(len(messages))
        if any(message.unreadable for message in messages):
            parsed = iter(formats.read([raw for raw in raws if raw]))
            places = places_without_gaps([None if message.unreadable else next(parsed) for message in messages])
        return list(zip(places, formats.sendable([raws[place] for place in places], dialect), strict=True))

    return await offloaded(read, raws)


def chain_of_stored(conversation: str, messages: Sequence[MessageRecord]) -> PrefixChain:
    """Return the chain of a stored conversation. If its client named it, the family is the seed's."""
    hashes = tuple(bytes.fromhex(message.message_id) for message in messages)
    family = bytes.fromhex(conversation)[: len(hashes[0])]
    is_named = family != hashes[0]
    return PrefixChain(family if is_named else b"", hashes, is_named)


async def offloaded(work: Callable[[], T], raws: Sequence[bytes]) -> T:
    """Do work that parses ``raws``; in a thread if they are large, so that other requests go on."""
    return await asyncio.to_thread(work) if sum(map(len, raws)) > LARGE_BYTES else work()

"""Stored conversations, read back: their messages and the chain that they form.

Stored history, compaction by hand and the archive go on from what is stored, not from what a client sent. They read it
here. A long history is parsed in a thread, without the parser's cache, which is for what clients send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from proxy.core.conversation.gaps import without_gaps
from proxy.core.conversation.prefix import PrefixChain
from proxy.core.conversation.records import StoredConversation, StoredMessage
from proxy.core.conversation.request import Dialect, ModelRequest
from proxy.core.errors import ConversationConflict, ConversationNotFound, RecordUnreadable
from proxy.core.ports import ConversationStore

T = TypeVar("T")
_MOST_PLACES = 20
"""That are named in an error."""
LARGE_BYTES = 40_000
"""Of messages that are parsed in a thread: some milliseconds of work."""


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


@dataclass(frozen=True, slots=True)
class StoredConversationReader:
    """Reads; it holds no state."""

    store: ConversationStore

    async def messages(self, record: StoredConversation, *, gaps: bool = False) -> Sequence[StoredMessage]:
        """All messages of a conversation, oldest first.

        :param gaps: give those that cannot be read as well, which have a place and no bytes
        :raises ConversationNotFound: some have expired
        :raises RecordUnreadable: some cannot be read
        """
        kept = await self.store.messages(record.id, stop=record.message_count)
        if [one.position for one in kept] != list(range(1, record.message_count + 1)):
            raise ConversationNotFound(f"Messages of the conversation {record.id!r} have expired.")
        broken = [one for one in kept if one.unreadable]
        if broken and not gaps:
            places = ", ".join(str(one.position) for one in broken[:_MOST_PLACES])
            raise RecordUnreadable(
                f"Messages of the conversation {record.id!r} cannot be read (at {places}): they are broken, or a newer "
                "version of Tidemark wrote them. The others can be shown and exported.",
                internal=broken[0].unreadable,
            )
        return kept

    async def sendable(self, record: StoredConversation, dialect: Dialect) -> Sequence[bytes]:
        """Return all readable messages of a conversation, oldest first, as a client would send them.

        What is stored stays as it is. A call or a result whose counterpart cannot be read is left out as well.

        :raises ConversationNotFound: some have expired
        """
        raws = [one.raw for one in without_gaps(await self.messages(record, gaps=True))]
        return await beside(lambda: list(map(dialect.as_sent, raws)), raws)


def chain_of_stored(conversation: str, kept: Sequence[StoredMessage]) -> PrefixChain:
    """The chain of a stored conversation. Of one that its client named, the family is the seed's."""
    hashes = tuple(bytes.fromhex(one.message_id) for one in kept)
    family = bytes.fromhex(conversation)[: len(hashes[0])]
    named = family != hashes[0]
    return PrefixChain(family if named else b"", hashes, named)


async def request_of_stored(dialect: Dialect, model: str, raws: Sequence[bytes]) -> ModelRequest:
    """Build the request that a client would send for stored messages.

    :raises InvalidRequest: an element is not a message of this dialect
    """
    return await beside(lambda: dialect.request_of(model, dialect.parse_messages(raws)), raws)


async def beside(work: Callable[[], T], raws: Sequence[bytes]) -> T:
    """Do what parses ``raws``: in a thread where they are many, so that other requests go on."""
    return await asyncio.to_thread(work) if sum(map(len, raws)) > LARGE_BYTES else work()
